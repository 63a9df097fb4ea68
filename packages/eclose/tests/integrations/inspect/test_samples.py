"""Samples and scores as our values: labels that are missing stay missing."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed: pip install 'eclose[inspect]'")

from inspect_ai.model import ContentText, ModelOutput

from eclose.diagnosis.diagnose import JudgedCase
from eclose.errors import RecordError
from eclose.integrations.inspect import samples as convert_samples
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import (
    NO_ANSWER_REASON,
    NO_TRACE_REASON,
    REFERENCE_FREE_REASON,
    Criterion,
    Judgment,
    StepJudgment,
)
from eclose.values.response import Response, Trace
from eclose.values.verdict import Verdict
from tests.integrations.inspect.running import said

INSTANCE = Instance("i", "Where?", (Passage("0", "Ana", "Ana was born in Arica."),), "Arica", ("Arica, Chile",))
RESPONSE = Response("r", "i", Trace.of("Ana was born in Arica."), "Lima")
JUDGMENT = Judgment(
    "r", "house/judge", (StepJudgment(True, True),), aligned=True, closed=False, complete=True, established="Arica"
)


def test_what_was_not_judged_is_nan_and_never_zero():
    value = convert_samples.build_score_value(Verdict(locally_sound=True, aligned=True))
    assert (value["L"], value["A"]) == (1.0, 1.0)
    assert {key for key, number in value.items() if isnan(number)} == {"C", "K", "Acc", "G", "TRR", "LGG"}


def test_what_follows_from_the_labels_follows_in_the_score():
    value = convert_samples.build_score_value(
        Verdict(locally_sound=True, aligned=False)
    )  # not sufficient, whatever closure is
    assert (value["G"], value["TRR"], value["LGG"]) == (0.0, 0.0, 1.0)
    assert isnan(value["C"])


@pytest.mark.parametrize("closed", [True, False, None])
@pytest.mark.parametrize("correct", [True, False, None])
def test_a_verdict_comes_back_out_of_a_score(closed, correct):
    verdict = Verdict(True, False, closed, None, correct)
    assert convert_samples.parse_score_labels(convert_samples.build_score_value(verdict)) == verdict


def test_an_average_of_labels_is_none():
    with pytest.raises(RecordError, match="no label"):
        convert_samples.parse_score_labels({"L": 0.5})


def test_a_score_names_the_broken_link_and_holds_the_judgment():
    score = convert_samples.build_judged_score(JudgedCase(INSTANCE, RESPONSE, JUDGMENT))
    assert score.answer == "Lima"
    assert (
        score.explanation
        == "The reasoning establishes the reference answer, “Arica”, and another answer was submitted."
    )
    assert convert_samples.read_metadata_record(Judgment, score.metadata, convert_samples.JUDGMENT) == JUDGMENT


@pytest.mark.parametrize(
    ("unjudged", "reason"),
    [
        ({}, None),
        ({"K": REFERENCE_FREE_REASON, "Acc": REFERENCE_FREE_REASON}, None),
        ({"C": NO_ANSWER_REASON, "Acc": NO_ANSWER_REASON}, "invalid_response_format"),
        ({"L": NO_TRACE_REASON, "K": "refusal"}, "grader_failed"),
    ],
)
def test_whose_fault_a_missing_label_is(unjudged, reason):
    judgment = replace(JUDGMENT, unjudged={Criterion(name): why for name, why in unjudged.items()})
    score = convert_samples.build_judged_score(JudgedCase(INSTANCE, RESPONSE, judgment))
    assert score.reason == reason
    assert all(f"{name} ({why})" in score.explanation for name, why in unjudged.items())


def test_a_sample_carries_its_question_whole():
    metadata = {convert_samples.INSTANCE: convert_samples.record_to_json_dict(INSTANCE)}
    assert convert_samples.instance_from_sample("another", "asked otherwise", [], metadata) == INSTANCE


def test_passages_of_other_peoples_tasks():
    instance = convert_samples.instance_from_sample(
        7, "Where?", ["Arica", "Arica, Chile"], {"contexts": ["Ana was born in Arica."]}
    )
    assert instance == replace(INSTANCE, id="7", evidence=(Passage("0", "", "Ana was born in Arica."),))
    assert (
        convert_samples.instance_from_sample(7, "Where?", [""], {"retrieved_contexts": ["x"]}).reference_answer is None
    )


@pytest.mark.parametrize("metadata", [{}, {"contexts": "one text"}, {"contexts": [1]}, {"instance": "i"}])
def test_a_sample_without_passages_is_refused(metadata):
    with pytest.raises(RecordError):
        convert_samples.instance_from_sample("i", "Where?", [], metadata)


def test_a_response_out_of_an_output():
    response = convert_samples.response_from_output(
        INSTANCE, said("1. Ana was born in Arica.\nFinal answer: Arica"), "a/b", 1
    )
    assert (response.trace.texts, response.answer, response.instance_id) == (("Ana was born in Arica.",), "Arica", "i")
    assert (response.source.model, response.cut_off) == ("a/b", False)
    other = [("a/b", 2), ("a/c", 1)]
    assert response.id not in {
        convert_samples.response_from_output(INSTANCE, said("x"), *model_epoch).id for model_epoch in other
    }
    assert response.id == convert_samples.response_from_output(INSTANCE, said("x"), "a/b", 1).id


def test_a_response_that_was_cut_off_has_no_answer():
    response = convert_samples.response_from_output(
        INSTANCE, said("1. Ana.\nFinal answer: Ari", "max_tokens"), "a/b", 1
    )
    assert (response.answer, response.cut_off) == (None, True)


def test_no_response_is_not_an_empty_one():
    assert convert_samples.explain_missing_response(said("No.", "content_filter")) == "refusal"
    assert convert_samples.explain_missing_response(said([ContentText(text="No.", refusal=True)])) == "refusal"
    assert convert_samples.explain_missing_response(ModelOutput()) == "no_response"
    assert convert_samples.explain_missing_response(said("")) is None
    score = convert_samples.build_empty_score("refusal")
    assert (score.reason, score.metadata) == ("refusal", None)
    assert all(isnan(number) for number in score.value.values())
