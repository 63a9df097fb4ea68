"""The first screen: the worst response, and what is better and what is worse, against counts made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eclose.api.results import _paired_systems
from eclose.diagnosis.run_counts import RunCounts
from eclose.report.comparison import compare_with_base_run
from eclose.report.context import ReportContext
from eclose.report.overview import _excerpt, compare_side_by_side, find_worst_example
from eclose.values.judgment import Criterion
from eclose.values.response import ResponseSource
from tests.diagnosis.judged_responses import hold_cases
from tests.diagnosis.test_diagnose import FAILS, case
from tests.report.making import make_diagnosis


def by(model, response_case):
    source = ResponseSource(model)
    response = replace(response_case.response, id=f"{response_case.response.id}/{model}", source=source)
    return replace(response_case, response=response, judgment=replace(response_case.judgment, response_id=response.id))


def asked(number, **labels):
    """A response to a question of its own."""
    response_case = case(number=number, **labels)
    instance = replace(response_case.instance, id=f"q{number}")
    return replace(response_case, instance=instance, response=replace(response_case.response, instance_id=instance.id))


def test_the_worst_response_is_in_the_gap_and_wrong():
    unsound = case(number=1, steps=(FAILS,), closed=False, correct=False)
    lucky = case(number=2, closed=False, correct=True)
    wrong = case(number=3, closed=False, correct=False)
    for cases in ([case(), unsound, lucky, wrong], [wrong, lucky, unsound, case()]):
        worst = find_worst_example(cases)
        assert cases[worst.position] is wrong
        assert worst.kind.startswith("gap_")
        assert worst.title.startswith("One of them")
    assert find_worst_example([case(), unsound]).kind == "unsound"
    assert find_worst_example([case()]) is None
    open_ = replace(case(closed=None), judgment=replace(case(closed=None).judgment, unjudged={Criterion.CLOSURE: "x"}))
    assert find_worst_example([open_]) is None, "an unjudged response is not a failing one"


def test_of_a_long_quote_the_sentence_that_the_step_repeats_is_shown():
    filler = "After the war years it nearly closed, and seven members of staff bought shares to keep it going."
    quote = f"Cole Publishing is a company. {filler} {filler} It has its seat in Upper Ostberg."
    step = "The passages say that Cole Publishing is based in Upper Ostberg [12]."
    assert _excerpt(quote, step, "Cole Publishing") == "… It has its seat in Upper Ostberg."
    assert _excerpt("Short.", step, "Cole Publishing") == "Short."
    # A quote without sentences is cut behind a word.
    assert _excerpt("many words " * 30, "words", "").removesuffix("…").split()[-1] in ("many", "words")
    assert len(_excerpt("x" * 400, "x", "")) <= 150


@pytest.fixture(scope="module")
def systems():
    """Of 60 questions, old answers 30 correctly with 6 in the gap; new answers 48 correctly with 24 in the gap."""
    old = [by("old", asked(number, correct=number < 30, closed=number >= 6)) for number in range(60)]
    new = [by("new", asked(number, correct=number < 48, closed=number >= 24)) for number in range(60)]
    return old, new


def pair_systems(cases):
    return _paired_systems(RunCounts.of(cases), 42, 200)


def test_two_systems_of_a_run_are_compared_in_words(systems):
    old, new = systems
    # In the order of their names: the later name is compared with the earlier one.
    pair = pair_systems([*old, *new])
    assert pair[:2] == ("new", "old")
    sides = compare_side_by_side(make_diagnosis([*old, *new]), ReportContext(systems=pair))
    assert sides.sentence.startswith(
        "old against new: accuracy is 30.0 points lower, but 10.0 % instead of 40.0 % look right step by step and fail "
        "as a whole: the gap is 4.0 times smaller."
    )
    assert "Clearly worse: correct answers." in sides.sentence
    rows = {row[0].text: row for row in sides.rows}
    assert [cell.text for cell in rows["correct answers"]] == ["correct answers", "80.0 %", "50.0 %", "worse"]
    assert rows["look right step by step, fail as a whole"][3].text == "better"


def test_a_base_run_is_compared_in_words(systems):
    old, new = systems
    base = compare_with_base_run(hold_cases(new), hold_cases(old), "main", rng=np.random.default_rng(1), resamples=200)
    sides = compare_side_by_side(make_diagnosis(new), ReportContext(base=base))
    assert sides.title.startswith("Against main")
    assert sides.sentence.startswith(
        "This run against main: accuracy is 30.0 points higher, but 40.0 % instead of 10.0 % look right step "
        "by step and fail as a whole: the gap is 4.0 times as large."
    )
    assert "Clearly better: correct answers." in sides.sentence
    assert (
        "Clearly worse: look right step by step, fail as a whole; reliable; establish their answer." in sides.sentence
    )


def test_equal_runs_have_no_clear_change(systems):
    old, _ = systems
    base = compare_with_base_run(hold_cases(old), hold_cases(old), "main", rng=np.random.default_rng(1), resamples=200)
    sides = compare_side_by_side(make_diagnosis(old), ReportContext(base=base))
    assert "Clearly" not in sides.sentence
    assert "accuracy is the same" in sides.sentence
    assert {row[3].text for row in sides.rows} == {"no clear change"}


def test_several_systems_are_ranked_by_the_gap(systems):
    old, new = systems
    third = [by("third", asked(number, correct=number < 12)) for number in range(60)]
    cases = [*old, *new, *third]
    assert pair_systems(cases) is None
    sides = compare_side_by_side(make_diagnosis(cases), ReportContext())
    assert [row[0].text.split(" · ")[-1] for row in sides.rows] == ["third", "old", "new"]
    assert "has the most correct answers (80.0 %)" in sides.sentence
    assert "has the smallest gap: 0.0 %" in sides.sentence


def test_one_system_has_nothing_beside_it(systems):
    assert compare_side_by_side(make_diagnosis(systems[0]), ReportContext()) is None
    assert pair_systems(systems[0]) is None
