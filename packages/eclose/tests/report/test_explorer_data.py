"""The explorer's data: what goes in comes out, and shared texts are stored once."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eclose.diagnosis.response_failure import describe_response_failure
from eclose.report.context import ReportContext
from eclose.report.explorer import EXPLORER_FACETS, OUTCOME_WORDS, derive_response_facts
from eclose.report.formats.html_page import (
    EVIDENCE_PER_CHUNK,
    RESPONSES_PER_CHUNK,
    compress_json,
    make_explorer_payload,
)
from eclose.report.headline import build_report_headline
from eclose.report.marks import build_response_flow
from eclose.values.instance import Passage
from eclose.values.judgment import Criterion, StepJudgment, StepSupport
from tests.diagnosis.test_diagnose import FAILS, HOLDS, case
from tests.report.hostile import hostile_cases
from tests.report.making import make_diagnosis


def unpack(block):
    return json.loads(zlib.decompress(base64.b64decode(block)))


def opened(cases):
    payload = make_explorer_payload(cases)
    details = [entry for block in payload.details for entry in unpack(block)]
    evidence = [entry for block in payload.evidence for entry in unpack(block)]
    return unpack(payload.index), details, evidence


def test_every_response_is_there_in_order_with_its_question_and_passages(cases):
    index, details, evidence = opened(cases)
    assert index["ids"] == [entry.response.id for entry in cases]
    assert len(details) == len(cases)
    for number, entry in enumerate(cases):
        question = index["questions"][index["question"][number]]
        assert question[0] == entry.instance.question
        assert evidence[question[4]] == [[passage.title, passage.text] for passage in entry.instance.evidence]
        assert [step[0] for step in details[number]["steps"]] == list(entry.response.trace.texts)
        assert details[number]["broken"] == describe_response_failure(entry)
        assert index["models"][index["model"][number]] == entry.response.source.model


def test_detail_gives_the_reason_where_the_evidence_has_no_label():
    judgment = replace(case().judgment, evidence_sufficient=None, evidence_unjudged="refusal: no")
    _, (detail,), _ = opened([replace(case(), judgment=judgment)])
    assert detail["unjudged"]["evidence"] == "refusal: no"


def test_every_facet_selects_the_responses_for_which_its_option_holds(cases):
    facts = [derive_response_facts(entry) for entry in cases]
    entries = {entry["name"]: entry for entry in opened(cases)[0]["facets"]}
    for facet in EXPLORER_FACETS:
        columns = {name: [name in facet.list_held(response) for response in facts] for name in facet.options}
        listed = entries.get(facet.name, {"options": [], "column": [0] * len(cases)})
        selected = {name: [bool(bits & bit) for bits in listed["column"]] for name, _, bit in listed["options"]}
        assert selected == {name: column for name, column in columns.items() if any(column)}


def test_votes_are_kept_where_they_differ():
    judgment = replace(case().judgment, votes={"A": (True, False, None), "C": (True, True, None)})
    _, (first, second), _ = opened([replace(case(), judgment=judgment), case(number=1)])
    assert first["votes"] == {"A": [1, 0, 2]}
    assert "votes" not in second


def test_questions_and_passages_are_stored_once(cases):
    index, _, evidence = opened(cases)
    assert len(index["questions"]) == len({entry.instance for entry in cases}) == 12
    assert len(evidence) == 12
    payload = make_explorer_payload(cases)
    assert len(payload.details) == -(-len(cases) // RESPONSES_PER_CHUNK)
    assert len(payload.evidence) == -(-12 // EVIDENCE_PER_CHUNK)


def test_one_id_under_two_sets_of_passages_keeps_both():
    entry, two = case(number=0), case(number=1)
    two = replace(two, instance=replace(two.instance, evidence=(Passage("0", "other", "Lima."),)))
    index, _, evidence = opened([entry, two])
    assert [evidence[index["questions"][number][4]] for number in index["question"]] == [
        [["", "Arica."]],
        [["other", "Lima."]],
    ]


@pytest.mark.slow
@given(st.text(max_size=20), st.text(min_size=1, max_size=9), st.text(max_size=9))
def test_a_quote_is_found_where_a_browser_counts_it(before, quote, after):
    text = before + quote + after
    entry = case(steps=(StepJudgment(True, True, support=StepSupport(0, quote)),))
    entry = replace(entry, instance=replace(entry.instance, evidence=(Passage("0", "", text),)))
    (detail,) = opened([entry])[1]
    passage, start, end = detail["steps"][0][5]
    units = text.encode("utf-16-le", "surrogatepass")
    assert units[2 * start : 2 * end].decode("utf-16-le", "surrogatepass") == quote
    assert passage == 0


def test_a_quote_that_is_nowhere_is_kept_as_it_is():
    supports = [StepSupport(0, "Lima"), StepSupport(5, "Arica"), StepSupport(-1, "Arica"), StepSupport(0, "")]
    entry = case(steps=tuple(StepJudgment(True, True, support=support) for support in supports))
    (detail,) = opened([entry])[1]
    assert [step[5] for step in detail["steps"]] == [[0, "Lima"], [5, "Arica"], [-1, "Arica"], [0, ""]]


def test_steps_without_a_judgement_are_shown_as_not_judged():
    entry = case()
    bare = replace(entry, judgment=replace(entry.judgment, steps=(), unjudged={Criterion.LOCAL_SOUNDNESS: "refusal"}))
    (detail,) = opened([bare])[1]
    assert detail["steps"] == [["x", 2, 2, None, None, None]]
    assert detail["labels"] == [1, 2, 1, 1, 1, 1]
    assert detail["unjudged"] == {"L": "refusal"}


@given(st.text(st.characters(codec=None)))
@example("\ud800 \udfff")
def test_any_text_survives_packing(text):
    assert unpack(compress_json([text])) == [text]


@pytest.mark.slow
def test_filters_agree_with_the_diagnosis(cases, diagnosis):
    index, _, _ = opened(cases)
    facets = {facet["name"]: facet for facet in index["facets"]}

    def count(facet, option):
        (mask,) = [bits for name, _, bits in facets[facet]["options"] if name == option]
        return sum(bool(bits & mask) for bits in facets[facet]["column"])

    parts = diagnosis.overall.composition
    assert count("outcome", "reliable") == parts.groups["reliable"]
    assert count("outcome", "gap") == parts.groups["gap"]
    assert count("outcome", "unsound") == parts.groups["locally_unsound"]
    for failure, number in parts.gap_failures.items():
        assert count("outcome", f"gap_{failure}") == number
    for failure, number in parts.failures.items():
        assert count("link", str(failure)) == number
    for kind, group in diagnosis.by_evidence.items():
        assert count("evidence", str(kind)) == group.responses
    assert count("look", "lucky") == diagnosis.correct_but_insufficient
    assert count("look", "disagree") == diagnosis.matching.judge_only + diagnosis.matching.matching_only
    assert count("unjudged", "C") == sum(diagnosis.unjudged[Criterion.CLOSURE].values())
    for code, number in diagnosis.local_failures.items():
        assert 0 < count("code", code.value) <= number


@pytest.mark.slow
def test_every_number_that_is_a_link_leads_to_as_many_responses(cases):
    rng = Random(3)
    labels = [True, True, False, None]
    odd = [
        case(
            number=number, steps=rng.choice([(HOLDS,), (FAILS,), (StepJudgment(None),)]),
            **{name: rng.choice(labels) for name in ("aligned", "closed", "complete", "correct")},
        )
        for number in range(400)
    ]  # fmt: skip
    for given_cases in (cases, odd):
        index, _, _ = opened(given_cases)
        diagnosis = make_diagnosis(given_cases, resamples=5)
        columns = {facet["name"]: facet for facet in index["facets"]}
        items = build_report_headline(diagnosis, ReportContext())
        lost = [part for stage in build_response_flow(diagnosis) for part in (*stage.lost, stage.passed)]
        linked = [entry for entry in (*items, *(part for entry in items for part in entry.parts), *lost) if entry.show]
        assert len(linked) > 8
        for entry in linked:
            facet, option = entry.show.split("=")
            masks = [bits for name, _, bits in columns[facet]["options"] if name == option]
            assert entry.count == sum(bool(bits & mask) for mask in masks for bits in columns[facet]["column"]), entry


def test_bits_fit_into_a_browsers_integers():
    assert all(len(facet.options) < 31 for facet in EXPLORER_FACETS)


def test_every_outcome_has_a_name(cases):
    assert all(derive_response_facts(entry).outcome in OUTCOME_WORDS for entry in [*cases, *hostile_cases()])


def test_the_page_is_told_what_each_judge_saw():
    criteria = {row[0]: row for row in opened([case()])[0]["criteria"]}
    assert criteria["A"][2:] == [["question", "reasoning"], ["passages", "submitted answer", "reference answer"]]
    assert criteria["evidence"][2] == ["question", "passages"]
    assert criteria["Acc"][2] == ["question", "submitted answer", "reference answer"]
