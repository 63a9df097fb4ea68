"""What makes two things the same: canonical JSON, content hashes, and orders and splits that follow from them."""

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

SPLIT_SALT = "eclose-split-v1"


def canonical_json(value: object) -> str:
    """One spelling for equal values: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_bytes(value: object) -> bytes:
    """The same as it is hashed and kept; lone surrogates too, for files hold them."""
    return canonical_json(value).encode("utf-8", "surrogatepass")


def content_hash(value: object) -> str:
    """Tagged hash of canonical JSON; the tag lets the algorithm change one day."""
    return hash_of(canonical_bytes(value))


def hash_of(spelled: bytes) -> str:
    """The content hash of a value that is spelled canonically already."""
    return "sha256:" + hashlib.sha256(spelled).hexdigest()


def hash_rank(*parts: str | int) -> str:
    """A place in an order that depends on the parts alone, the same on every machine and in every run."""
    return hashlib.sha256(canonical_bytes(parts)).hexdigest()


class Split(NamedTuple, Generic[T]):
    """Two disjoint parts of a collection, each in hash order within its stratum."""

    train: list[T]
    development: list[T]


def hash_split(
    items: Iterable[T],
    *,
    stratum: Callable[[T], str],
    identity: Callable[[T], str],
    fraction: Fraction | float = Fraction(1, 10),
    salt: str = SPLIT_SALT,
) -> Split[T]:
    """Rank items within their stratum by SHA-256; the first tenth is for development (appendix B.6).

    The size of each part is rounded to the nearest integer, halves up. Adding an item moves at most the items
    at the boundary, and no item's place depends on the order of the input.
    """
    strata: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        strata[stratum(item)].append(item)
    split: Split[T] = Split([], [])
    for name, members in sorted(strata.items()):
        members.sort(key=lambda item: (hash_rank(salt, name, identity(item)), identity(item)))
        size = floor(Fraction(fraction) * len(members) + Fraction(1, 2))
        split.development.extend(members[:size])
        split.train.extend(members[size:])
    return split
