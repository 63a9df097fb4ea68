"""Paths in tokens, before anybody trains: never fewer than training counts, with a tokenizer hardly more."""

from __future__ import annotations

from itertools import islice, product

import pytest

from eclose_train.construction.lengths import make_estimating_counter, make_path_counter, make_tokenizer_counter
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_world.make.families import make_world_families
from tests.tiny_models import tokenizer

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def families():
    return [family for profile in ("2wiki", "hotpot") for family in islice(make_world_families(profile, 7), 4)]


def longest(family):
    """As training renders them: traces and answers of one view under the prompt of another."""
    renderer = TokenPathRenderer(tokenizer(), max_length=10**9)
    paths = product(family.views, family.views, family.views)
    return max(len(renderer.render(p.question, p.evidence, t.trace, a.answer).ids) for p, t, a in paths)


def test_with_the_tokenizer_it_is_what_training_counts(families):
    length = make_tokenizer_counter(tokenizer())
    for family in families:
        assert longest(family) <= length.count_family(family) <= longest(family) + 4


def test_without_one_it_is_more_but_not_twice_as_much(families):
    length = make_path_counter(None)
    for family in families:
        assert longest(family) <= length.count_family(family) <= 2 * longest(family)


def test_a_prompt_alone_is_less_than_any_path_under_it(families):
    for family in families:
        gold = family.gold
        assert make_estimating_counter().count_prompt(
            gold.question, gold.evidence
        ) < make_estimating_counter().count_family(family)
