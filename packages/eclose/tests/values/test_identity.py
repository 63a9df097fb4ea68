"""Hashes that do not depend on order, and a split that depends on nothing but the hashes."""

import hashlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.values.identity import canonical_json, content_hash, hash_sort_key, split_by_hash

PAPER = {"2WikiMultiHopQA": 1_276, "MuSiQue": 559, "HotpotQA": 1_017}


def split(items, **settings):
    return split_by_hash(items, stratum=lambda item: item[0], identity=lambda item: item[1], **settings)


def families(sizes=PAPER):
    return [(dataset, f"{dataset}-{number}") for dataset, size in sizes.items() for number in range(size)]


def test_equal_values_have_one_hash():
    assert content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1})
    assert content_hash([1]) == "sha256:" + hashlib.sha256(b"[1]").hexdigest()
    assert canonical_json({"é": None}) == '{"é":null}'


def test_what_is_not_json_has_no_hash():
    with pytest.raises(ValueError, match="not JSON compliant"):
        content_hash(float("nan"))


def test_half_a_character_still_has_a_place():
    assert hash_sort_key("\ud800") != hash_sort_key("\ud801")


def test_the_papers_split():
    parts = split(families())
    assert (len(parts.train), len(parts.development)) == (2_566, 286)
    by_dataset = {name: sum(item[0] == name for item in parts.development) for name in PAPER}
    assert by_dataset == {"2WikiMultiHopQA": 128, "MuSiQue": 56, "HotpotQA": 102}
    assert sorted(parts.train + parts.development) == sorted(families())


def test_the_split_does_not_depend_on_the_order():
    assert split(reversed(families())) == split(families())


def test_the_split_follows_the_hash_order():
    parts = split(families({"x": 40}))
    ranked = sorted(families({"x": 40}), key=lambda item: hash_sort_key("eclose-split-v1", "x", item[1]))
    assert parts.development == ranked[:4]
    assert parts.train == ranked[4:]


def test_another_salt_gives_another_split():
    assert split(families(), salt="other").development != split(families()).development


@pytest.mark.slow
@given(st.integers(0, 200), st.fractions(0, 1))
def test_sizes_are_rounded_to_the_nearest_integer(size, fraction):
    count = len(split(families({"x": size}), fraction=fraction).development)
    assert abs(count - fraction * size) <= Fraction(1, 2)
    if fraction * size % 1 == Fraction(1, 2):
        assert count == fraction * size + Fraction(1, 2)
