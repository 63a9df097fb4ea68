"""Canonical JSON, content hashes, and the orders and splits that follow from hashes."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

# Another salt would move families between training and development data.
SPLIT_SALT = "eclose-split-v1"


def canonical_json(value: object) -> str:
    """Return the one spelling shared by equal values: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_bytes(value: object) -> bytes:
    """Return canonical JSON as it is hashed and stored."""
    # Benchmark files contain lone surrogates, which plain UTF-8 refuses.
    return canonical_json(value).encode("utf-8", "surrogatepass")


def content_hash(value: object) -> str:
    """Return the hash of canonical JSON, tagged with its algorithm."""
    return hash_canonical_bytes(canonical_bytes(value))


def hash_canonical_bytes(data: bytes) -> str:
    """Return the content hash of a value that is canonical JSON already."""
    # The tag leaves room for another algorithm beside hashes that are stored in files.
    return "sha256:" + hashlib.sha256(data).hexdigest()


def hash_sort_key(*parts: str | int) -> str:
    """Return a sort key that depends on the parts alone: the same on every machine and in every run."""
    return hashlib.sha256(canonical_bytes(parts)).hexdigest()


class HashSplit(NamedTuple, Generic[T]):
    """Two disjoint parts of a collection, each in hash order within its stratum."""

    train: list[T]
    development: list[T]


def split_by_hash(
    items: Iterable[T],
    *,
    stratum: Callable[[T], str],
    identity: Callable[[T], str],
    fraction: Fraction | float = Fraction(1, 10),
    salt: str = SPLIT_SALT,
) -> HashSplit[T]:
    """Rank the items of each stratum by SHA-256 and take the first tenth for development (appendix B.6).

    The size of each part is rounded to the nearest integer, halves up. The order of the input has no influence, and
    adding an item moves at most the items at the boundary.
    """
    strata: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        strata[stratum(item)].append(item)
    split: HashSplit[T] = HashSplit([], [])
    for name, members in sorted(strata.items()):
        # The identity breaks ties, so two items of one hash keep an order that is independent of the input.
        members.sort(key=lambda item: (hash_sort_key(salt, name, identity(item)), identity(item)))
        # Exact fractions, so that halves round up whatever the size.
        size = floor(Fraction(fraction) * len(members) + Fraction(1, 2))
        split.development.extend(members[:size])
        split.train.extend(members[size:])
    return split
