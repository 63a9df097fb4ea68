"""Pairs of responses by their hashes are those of responses in memory."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.diagnosis.judged_responses import random_cases

from eclose.core.response import ResponseSource
from eclose.diagnosis.compare import compare_runs_by_question
from eclose.diagnosis.counts import CountedResponse
from eclose.diagnosis.pair_responses import ResponseHashes, count_transitions
from eclose.errors import UserError


def make_run(draw, cases, letter):
    """Give responses ids and sources that partly repeat those of the other run."""
    run = {}
    for case in draw.sample(cases, draw.randrange(len(cases) // 3, len(cases))):
        shared = draw.random() < 0.4
        id_ = f"r{draw.randrange(40)}" if shared else f"{letter}{case.response.id}"
        source = draw.choice([None, ResponseSource("m"), ResponseSource("m", "SFT", 1), ResponseSource("m", "SFT", 2)])
        response = replace(case.response, id=id_, source=source)
        run[id_] = replace(case, response=response, judgment=replace(case.judgment, response_id=id_))
    return list(run.values())


def hash_run(cases):
    hashes = ResponseHashes()
    for case in cases:
        hashes.add(CountedResponse.of(case))
    return hashes


@pytest.mark.parametrize("seed", range(12))
def test_pairs_are_those_of_responses_in_memory(seed):
    draw = Random(seed)
    cases = random_cases(seed, count=draw.choice([6, 40, 150]), questions=draw.choice([3, 12, 60]))
    run, base = make_run(draw, cases, "a"), make_run(draw, cases, "b")
    rows, base_rows = ([case.row for case in side] for side in (run, base))
    try:
        expected = compare_runs_by_question(rows, base_rows, rng=np.random.default_rng(1), resamples=100)
    except UserError as error:
        pytest.skip(str(error))
    transitions = count_transitions(hash_run(run), hash_run(base), [case.response.id for case in run])
    assert transitions.counts == expected.transitions
    assert transitions.partners == {pair.run.response_id: pair.classes[0] for pair in expected.pairs}


def test_runs_without_a_pair_have_no_transitions():
    assert count_transitions(ResponseHashes(), ResponseHashes(), ["r1"]) == ({}, {})


def test_hashes_of_parts_are_those_of_the_whole():
    cases = random_cases(3, count=20)
    whole, parts = hash_run(cases), hash_run(cases[:7])
    parts.include(hash_run(cases[7:]))
    assert vars(parts) == vars(whole)
