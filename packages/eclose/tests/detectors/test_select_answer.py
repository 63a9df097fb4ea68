"""Best of k: which response is chosen, when none is, and that every question is accounted for."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.detectors.select_answer import (
    Abstention,
    ChoiceSettings,
    ChoiceStrategy,
    ResponseChoice,
    choose_responses,
    choose_run,
    count_support,
    evaluate_choices,
    is_same_answer,
)
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records
from eclose.values.response import Response, Trace
from eclose.values.verdict import SettledVerdict, Verdict
from tests.detectors.study_making import VERDICTS, write_labelled_run


def respond(*answers, question="q"):
    return [Response(f"{question}-{n}", question, Trace.of("A step."), answer) for n, answer in enumerate(answers)]


def choose(responses, scores, **settings):
    (choice,) = choose_responses(responses, scores, ChoiceSettings(**settings))
    return choice


def by_order(responses, *scores):
    return {response.id: score for response, score in zip(responses, scores, strict=True)}


def test_majority_first_and_the_verifier_within_it():
    responses = respond("Paris", "Lyon", "paris.", "The Paris", "Lyon")
    scores = by_order(responses, 0.2, 0.9, 0.7, 0.7, 0.8)
    choice = choose(responses, scores)
    assert choice.response_id == "q-2"  # the first of two equal scores
    assert (choice.candidates, choice.agreement, choice.score) == (3, 0.6, 0.7)
    assert choose(responses, scores, strategy="verifier").response_id == "q-1"
    assert choose(responses, scores, strategy="majority").response_id == "q-0"


def test_equally_frequent_answers_are_left_to_the_verifier():
    responses = respond("Paris", "Lyon", "Lyon", "Paris", "Nice")
    scores = by_order(responses, 0.2, 0.3, 0.6, 0.5, 0.9)
    assert choose(responses, scores).response_id == "q-2"
    assert choose(responses, scores).candidates == 4
    assert choose(responses, scores, strategy="majority").response_id == "q-0"


def test_a_response_without_a_score_is_chosen_only_where_none_has_one():
    responses = respond("Paris", "Paris", "Lyon")
    choice = choose(responses, {"q-1": 0.0, "q-0": None})
    assert (choice.response_id, choice.unscored) == ("q-1", 1)
    choice = choose(responses, {})
    assert (choice.response_id, choice.score, choice.unscored) == ("q-0", None, 2)
    assert choose(responses, {}, min_score=0.1).abstained is Abstention.NO_SCORE


def test_responses_without_an_answer_count_for_the_agreement_and_are_never_chosen():
    responses = respond(None, "Paris", "  ", None)
    choice = choose(responses, {"q-0": 0.9, "q-1": 0.1})
    assert (choice.response_id, choice.responses, choice.answered, choice.agreement) == ("q-1", 4, 1, 0.25)
    none = choose(respond(None, None), {})
    assert (none.response_id, none.abstained, none.responses) == (None, Abstention.NO_ANSWER, 2)


def test_low_agreement_and_low_scores_abstain():
    responses = respond("Paris", "Lyon", "Paris", "Nice")
    scores = by_order(responses, 0.4, 0.9, 0.3, 0.2)
    assert choose(responses, scores, min_agreement=0.5, min_score=0.4).response_id == "q-0"
    low = choose(responses, scores, min_agreement=0.51)
    assert (low.response_id, low.abstained, low.agreement, low.score) == (None, Abstention.LOW_AGREEMENT, 0.5, 0.4)
    assert choose(responses, scores, min_score=0.41).abstained is Abstention.LOW_SCORE
    for change in ({"min_agreement": 1.1}, {"min_score": -0.1}, {"strategy": "best"}):
        with pytest.raises(SettingError):
            ChoiceSettings(**change)


def test_the_random_choice_depends_on_seed_and_question_alone():
    questions = [respond("a", "b", "c", "d", question=f"q{n}") for n in range(60)]
    settings = ChoiceSettings(strategy=ChoiceStrategy.RANDOM)
    together = choose_responses([row for group in questions for row in group], {}, settings)
    apart = [choose(group, {}, strategy="random") for group in questions]
    assert together == apart
    counts = Counter(choice.response_id[-1] for choice in together)
    assert len(counts) == 4
    assert max(counts.values()) < 30
    assert together != choose_responses(
        [row for group in questions for row in group], {}, ChoiceSettings(strategy=ChoiceStrategy.RANDOM, seed=1)
    )


@pytest.mark.parametrize(
    "first,second,same",
    [
        ("the New York Yankees", "Yankees", True),
        ("12 July 1926", "July 12, 1926", True),
        ("Łódź", "Lodz", True),
        ("東京", "東京", True),
        ("?", "?", True),
        ("yes", "no", False),
        ("東京", "京都", False),
    ],
)
def test_which_answers_are_the_same(first, second, same):
    assert is_same_answer(first, second) is is_same_answer(second, first) is same


def test_support_does_not_chain_matches():
    # "Paris" matches both of the others, which do not match each other.
    assert count_support(["Paris", "Paris Hilton", "Paris, France"]) == [3, 2, 2]


@pytest.mark.parametrize("seed", range(3))
def test_choices_by_loops(seed):
    rng = np.random.default_rng(seed)
    responses = [
        Response(f"r{n}", f"q{rng.integers(12)}", Trace.of("A step."), rng.choice(["a1", "b1", "c1", None]))
        for n in range(80)
    ]
    scores = {row.id: None if rng.random() < 0.2 else rng.integers(5) / 4 for row in responses}
    settings = ChoiceSettings(min_agreement=0.4, min_score=0.25)
    choices = {row.instance_id: row for row in choose_responses(responses, scores, settings, instances=["q0", "empty"])}
    assert list(choices)[:2] == ["q0", "empty"]
    assert choices["empty"].abstained is Abstention.NO_RESPONSE
    assert set(choices) == {row.instance_id for row in responses} | {"empty"}
    for question, choice in choices.items():
        group = [row for row in responses if row.instance_id == question]
        assert choice.responses == len(group)
        votes = {row.id: sum(row.answer == other.answer for other in group) for row in group if row.answer}
        best = None
        for row in group:
            if row.answer is None or votes[row.id] < max(votes.values()):
                continue
            if best is None or (scores[row.id] is not None and (scores[best] is None or scores[row.id] > scores[best])):
                best = row.id
        if best is None:
            assert choice.abstained in (Abstention.NO_ANSWER, Abstention.NO_RESPONSE)
        elif votes[best] / len(group) < 0.4:
            assert choice.abstained is Abstention.LOW_AGREEMENT
        elif scores[best] is None:
            assert choice.abstained is Abstention.NO_SCORE
        else:
            assert choice.response_id == (best if scores[best] >= 0.25 else None)


def test_the_quality_of_choices_counts_labelled_ones_alone():
    choices = choose_responses(
        [row for n in range(5) for row in respond("x", question=f"q{n}")], {}, instances=["q0", "none"]
    )
    right = Verdict(locally_sound=True, aligned=True, closed=True, correct=True)
    wrong = Verdict(locally_sound=False, correct=False)
    verdicts = [
        SettledVerdict("q0-0", "q0", right),
        SettledVerdict("q1-0", "q1", wrong),
        SettledVerdict("q2-0", "q2", VERDICTS["no label A and C"]),
        SettledVerdict("q3-0", "q3", right),
    ]
    quality = evaluate_choices(choices, verdicts)
    assert (quality.questions, quality.chosen, quality.abstained) == (6, 5, {"no response": 1})
    assert (quality.reliable, quality.reliability_known, quality.reliable_share) == (2, 3, 2 / 3)
    assert (quality.accuracy, quality.correctness_known) == (2 / 3, 3)
    assert evaluate_choices([], []).reliable_share is None


def test_a_choice_has_a_response_or_a_reason():
    with pytest.raises(ValueError, match="a response or a reason"):
        ResponseChoice(
            instance_id="q", strategy=ChoiceStrategy.RANDOM, response_id=None, responses=1, answered=1, agreement=1.0
        )


@pytest.fixture
def run(tmp_path):
    responses = [row for n in range(4) for row in respond("x", "y", "x", question=f"q{n}")]
    verdicts = [SettledVerdict(row.id, row.instance_id, VERDICTS["reliable"], "hotpot") for row in responses]
    verdicts.append(SettledVerdict("unanswered", "q9", VERDICTS["reliable"], "hotpot"))
    scores = [
        DetectorScore(
            response_id=row.id,
            detector=DetectorKind.VERIFIER,
            model="linear@0",
            score=None if row.id == "q3-0" else 0.1 * int(row.id[-1]),
            unscored=Unscored.NO_ANSWER if row.id == "q3-0" else None,
        )
        for row in responses
    ]
    write_labelled_run(tmp_path / "run", responses, verdicts, scores)
    return tmp_path / "run"


def test_the_choices_of_a_run_are_written_with_every_question(run):
    scores = run / "scores-verifier.jsonl"
    chosen = choose_run(run, scores=scores)
    rows = list(read_records(run / "choices.jsonl", ResponseChoice))
    assert tuple(rows) == chosen.choices
    assert {row.instance_id: row.response_id for row in rows} == {
        **{f"q{n}": f"q{n}-2" for n in range(4)},
        "q9": None,
    }
    assert chosen.step.counts.accepted == 5
    assert choose_run(run, scores=scores).step.again
    with pytest.raises(UserError, match="with other settings"):
        choose_run(run, scores=scores, settings=ChoiceSettings(strategy=ChoiceStrategy.VERIFIER))
    majority = ChoiceSettings(strategy=ChoiceStrategy.MAJORITY)
    assert choose_run(run, settings=majority, force=True).choices[0].response_id == "q0-0"


def test_files_that_do_not_fit_are_refused(run):
    with pytest.raises(SettingError, match="--scores"):
        choose_run(run)
    rows = [json.loads(line) for line in (run / "scores-verifier.jsonl").read_text().splitlines()]
    for row in rows[:3]:
        row["model"] = "linear@1"
    other = run / "two.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="2 detectors"):
        choose_run(run, scores=other)


def test_unreadable_responses_are_told(run):
    with (run / "responses.jsonl").open("a") as file:
        file.write("{\n")
    (notice,) = choose_run(run, scores=run / "scores-verifier.jsonl").notices
    assert notice == "responses.jsonl: 1 not used (not JSON 1)."
