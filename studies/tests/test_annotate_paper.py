"""Simulated annotators of ``annotate_paper.py``: error rates as fitted, and agreement counted by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from eclose.values.judgment import Ineligibility, LocalFailure, StepJudgment
from eclose.values.verdict import Verdict
from eclose_world.make.instances import make_world_items
from studies.campaigns.annotators import agreement_recount
from studies.campaigns.annotators.browser import Reader
from studies.campaigns.annotators.error_model import HARD_ERRORS, HardDecisions, SimulatedAnnotator, Truth
from studies.campaigns.annotators.labeller import TruthIndex
from studies.campaigns.annotators.material import make_world
from studies.campaigns.annotators.paper_rates import MIX, TABLE, fit, fit_annotator, make_ineligible_questions

SCRIPT = Path(__file__).parents[1] / "campaigns" / "annotate_paper.py"

STEPS = (
    StepJudgment(True, True),
    StepJudgment(False),
    StepJudgment(True, False, LocalFailure.INVALID_INFERENCE),
)
TRUTH = Truth("r", "q?", ("one", "two", "three"), "a", STEPS, Verdict(True, False, True, True, False))
ENTRIES = [
    {"substantive": "yes", "sound": "yes"},
    {"substantive": "no"},
    {"substantive": "yes", "sound": "no", "failure": "L2"},
]


def test_who_never_errs_says_what_is_true():
    exact = SimulatedAnnotator("anna")
    assert exact.steps(TRUTH) == ENTRIES
    verdict = TRUTH.verdict
    labels = {name: value for letter in "BCD" for name, value in exact.whole(TRUTH, letter)[0].items()}
    assert labels == {
        name: "yes" if getattr(verdict, name) else "no" for name in ("aligned", "closed", "correct", "complete")
    }
    assert exact.screening("q?", Ineligibility.ILL_POSED) == [{"eligible": "no", "code": "N4"}]
    assert exact.screening("q?", None) == [{"eligible": "yes"}]


def test_people_err_in_hard_decisions_alone_and_always_in_the_same_way():
    hard = HardDecisions(no=0.6, yes=0.2, yes_in_trouble=0.9)
    rng = Random(1)

    def share_of_errors(holds, level, **options):
        return sum(hard.decide(holds, level, rng, **options) is not holds for _ in range(4_000)) / 4_000

    for holds, level, options in ((False, 0.5, {}), (True, 0.1, {}), (True, 0.8, {"trouble": True})):
        assert share_of_errors(holds, level, **options) == pytest.approx(HARD_ERRORS, abs=0.03)
    for holds, level, options in ((False, 0.7, {}), (True, 0.3, {}), (True, 0.95, {"trouble": True})):
        assert share_of_errors(holds, level, **options) == 0
    always = HardDecisions(no=1.0, yes=1.0, yes_in_trouble=1.0)
    annotator = SimulatedAnnotator("anna", {"sound": always, "aligned": always}, 1.0, {"L1": 0.5, "L2": 0.5})
    assert [annotator.steps(TRUTH), annotator.whole(TRUTH, "B")] == [
        annotator.steps(TRUTH),
        annotator.whole(TRUTH, "B"),
    ]
    others = [replace(annotator, name=f"anna{number}").steps(TRUTH) for number in range(30)]
    assert any(other != annotator.steps(TRUTH) for other in others)


@pytest.mark.parametrize("row", ["Step soundness", "Alignment A", "Answer correctness", "Completeness K"])
def test_two_who_err_as_fitted_agree_as_far_as_the_paper_says(row):
    no = 1 - TABLE[row].majority
    hard, rng = HardDecisions(*fit(no, TABLE[row].alpha, no)), Random(2)
    # The difficulty of a case is the same for both.
    cases = [(rng.random() >= no, rng.random()) for _ in range(60_000)]
    pairs = [(str(hard.decide(*case, rng)), str(hard.decide(*case, rng))) for case in cases]
    counted = agreement_recount._count(pairs)
    assert counted.alpha == pytest.approx(TABLE[row].alpha, abs=0.02)
    assert counted.raw == pytest.approx(TABLE[row].raw, abs=0.01)


def test_agreement_is_counted_where_the_question_arises_for_both():
    mine = {
        "A": ENTRIES,
        "B": [{"aligned": "yes"}],
        "C": [{"closed": "no"}],
        "D": [{"correct": "no", "complete": "yes"}],
    }
    other = [
        {"substantive": "yes", "sound": "yes"},
        {"substantive": "yes", "sound": "yes"},
        {"substantive": "yes", "sound": "no", "failure": "L1"},
    ]
    theirs = {**mine, "A": other, "C": [{"closed": "yes"}]}
    counts = agreement_recount.count(
        [agreement_recount.SubjectForms([mine, theirs], None), agreement_recount.SubjectForms([mine, mine], None)]
    )
    assert {name: item.n for name, item in counts.items() if item.n != 2} == {
        "Substantive status": 6,
        "Step soundness": 4,
    }
    assert counts["Substantive status"].raw == 5 / 6
    assert (counts["Step soundness"].raw, counts["Local-failure reason"].raw) == (1.0, 0.5)
    # One of two pairs differs; three no and one yes: 1 - (1/2) / (2 · 3 · 1 / (4 · 3)) = 0.
    assert counts["Closure C"].alpha == pytest.approx(0.0)
    assert counts["Global sufficiency G"].raw == counts["Closure C"].raw == 0.5


def test_what_holds_in_the_end_is_held_against_what_is_true():
    exact = SimulatedAnnotator("anna")
    true = {"A": exact.steps(TRUTH), **{name: exact.whole(TRUTH, name) for name in "BCD"}}
    assert not agreement_recount.wrong(agreement_recount.SubjectForms([true, true], None), TRUTH)
    miscoded = {**true, "A": [*ENTRIES[:2], {**ENTRIES[2], "failure": "L1"}]}
    off = {**true, "C": [{"closed": "no" if TRUTH.verdict.closed else "yes"}]}
    assert agreement_recount.wrong(agreement_recount.SubjectForms([miscoded, miscoded], None), TRUTH)
    assert agreement_recount.wrong(agreement_recount.SubjectForms([off, off], None), TRUTH)
    assert not agreement_recount.wrong(agreement_recount.SubjectForms([off, true], true), TRUTH)


def test_a_page_is_read_for_its_question_its_trace_and_its_form():
    page = Reader(
        '<div class="asked"><p><span class="words">q?</span></p></div><p class="words">a passage</p>'
        '<form id="form" action="/tasks/x/C"><input type="hidden" name="key" value="k">'
        '<p class="words block">one\ntwo\nthree</p><p class="words">a &amp; b</p>'
        '<input type="radio" name="1.closed" value="yes" checked><input type="radio" name="1.closed" value="no"></form>'
    )
    assert page.words == ["q?", "one\ntwo\nthree", "a & b"]
    assert page.forms[0].fields == {"key": "k", "1.closed": "yes"}
    assert page.forms[0].choices == {"1.closed": ["yes", "no"]}
    truths = TruthIndex([replace(TRUTH, answer="a & b")])
    assert truths.entries(SimulatedAnnotator("anna"), "C", page, 1) == SimulatedAnnotator("anna").whole(TRUTH, "C")


@pytest.mark.slow
def test_failures_are_about_as_common_as_in_the_paper_and_rates_follow_from_them():
    world = make_world(40, MIX)
    assert len(world.responses) == len(world.truths) == 120
    assert len({item.id for item in world.responses}) == 120
    assert 0.1 < sum(item.trouble for item in world.truths) / 120 < 0.4
    annotator = fit_annotator(world.truths)
    assert all(
        0 <= limit <= 1 for hard in annotator.hard.values() for limit in (hard.no, hard.yes, hard.yes_in_trouble)
    )
    assert annotator.hard["sound"].yes_in_trouble > annotator.hard["sound"].yes


def test_questions_that_cannot_be_used_are_none_of_the_others():
    instances = [item.instance for item in islice(make_world_items("2wiki", 42), 5)]
    pairs = make_ineligible_questions(13, instances)
    assert {code for _, code in pairs} >= {Ineligibility.MISSING_LINK, Ineligibility.ILL_POSED}
    assert not {item.question for item, _ in pairs} & {item.question for item in instances}
    assert len({item.id for item, _ in pairs}) == len(pairs)


@pytest.mark.slow
def test_a_small_study_comes_to_its_end_over_http():
    command = [sys.executable, str(SCRIPT), "--questions", "9"]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    figure = json.loads(process.stdout.splitlines()[-1])
    assert (process.returncode, figure["holds"]) == (0, True), process.stdout + process.stderr
    assert "27 of 27 responses" not in process.stdout  # not everything is adjudicated
