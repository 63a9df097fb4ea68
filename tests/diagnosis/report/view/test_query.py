"""Filters, search, order and pages of an index, against the same on the responses themselves."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from dataclasses import replace

import pytest
from tests.diagnosis.report.making import make_cases, make_questions

from eclose.detection.scores import DetectorKind
from eclose.detection.study import NO_RECORD
from eclose.detection.study_statistics import DetectorIdentity
from eclose.diagnosis.report.explorer.filters import EXPLORER_FACETS, OUTCOME_WORDS, derive_response_facts
from eclose.diagnosis.report.html import EVIDENCE_PER_CHUNK, RESPONSES_PER_CHUNK, build_response_detail
from eclose.diagnosis.report.scores.columns import ScoreColumn
from eclose.diagnosis.report.view import query
from eclose.diagnosis.report.view.build import build_view_index
from eclose.diagnosis.report.view.query import ResponseQuery, ViewIndex, read_index_key
from eclose.errors import UserError

ODD_ID = "odd \ud800/\u202e1"


@pytest.fixture(scope="module")
def cases():
    made = make_cases(make_questions(20), 200, seed=5)
    odd = made[7]
    made[7] = replace(odd, response=replace(odd.response, id=ODD_ID, answer="Zyzzyva \ud800"))
    return made


@pytest.fixture(scope="module")
def scores(cases):
    column = ScoreColumn(DetectorIdentity(DetectorKind.CLOSURE, "m"), "scores-closure.jsonl")
    for number, case in enumerate(cases):
        if number % 10:
            column.scores[case.response.id] = (number * 37 % 101) / 101
        elif number % 20:
            column.reasons[case.response.id] = "no trace"
    return (column,)


@pytest.fixture(scope="module")
def path(cases, scores, tmp_path_factory):
    file = tmp_path_factory.mktemp("index") / "view.sqlite"
    build_view_index(
        file, iter(cases), key="k1", render=lambda data: f"page of {data['total']}", scores=scores,
        worst_id=cases[3].response.id,
    )  # fmt: skip
    return file


@pytest.fixture
def index(path):
    opened = ViewIndex(path)
    yield opened
    opened.close()


def test_the_file_knows_what_it_was_built_from(path, index, tmp_path):
    assert read_index_key(path) == "k1"
    assert index.read_fact("page") == "page of 200"
    assert read_index_key(tmp_path / "missing.sqlite") is None
    (tmp_path / "other").write_text("no database")
    assert read_index_key(tmp_path / "other") is None
    with pytest.raises(UserError, match="Delete it"):
        ViewIndex(tmp_path / "other")


def test_nothing_is_left_where_building_fails(tmp_path, cases):
    def broken():
        yield cases[0]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        build_view_index(tmp_path / "view.sqlite", broken(), key="k", render=str)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("facet", EXPLORER_FACETS, ids=lambda facet: facet.name)
def test_every_option_selects_and_counts_what_holds(index, cases, facet):
    facts = [derive_response_facts(case) for case in cases]
    selection = index.select(ResponseQuery(sort="given"))
    entries = {entry["name"]: (number, entry) for number, entry in enumerate(index.data["facets"])}
    for option in facet.options:
        expected = [number for number, fact in enumerate(facts) if option.holds(fact)]
        if not expected:
            assert facet.name not in entries or option.name not in [o[0] for o in entries[facet.name][1]["options"]]
            continue
        number, entry = entries[facet.name]
        place = [name for name, *_ in entry["options"]].index(option.name)
        assert selection.counts[number][place] == len(expected)
        chosen = index.select(ResponseQuery({facet.name: option.name}, sort="given"))
        assert chosen.positions.tolist() == expected
        # The counts of the chosen facet are those without its own choice.
        assert chosen.counts[number] == selection.counts[number]


def test_filters_of_dataset_model_and_outcome_hold_together(index, cases):
    dataset = cases[0].instance.benchmark
    chosen = {"dataset": dataset, "model": "atlas-8b", "outcome": "reliable"}
    expected = [
        number
        for number, case in enumerate(cases)
        if case.instance.benchmark == dataset and case.response.source.model == "atlas-8b" and case.verdict.reliable
    ]
    assert expected
    assert index.select(ResponseQuery(chosen, sort="given")).positions.tolist() == expected
    assert len(index.select(ResponseQuery({"outcome": "no such option"})).positions) == len(cases)


def words_of(case, *, passages=False):
    detail = build_response_detail(case)
    texts = [case.response.id, case.response.answer or "", case.instance.question, case.instance.reference_answer or ""]
    texts += [*case.instance.aliases, case.instance.id, detail["broken"]]
    texts += [detail.get(name, "") for name in ("pursued", "established", "missing")]
    texts += [*detail.get("reasons", {}).values(), *detail.get("unjudged", {}).values()]
    texts += [text or "" for step in detail["steps"] for text in (step[0], step[4])]
    if passages:
        texts += [text for passage in case.instance.evidence for text in (passage.title, passage.text)]
    return set(re.findall(r"[^\W_]+", "\n".join(texts).lower()))


def test_a_page_says_why_the_evidence_has_no_label(cases):
    judgment = replace(cases[0].judgment, evidence_sufficient=None, evidence_unjudged="refusal: no")
    assert build_response_detail(replace(cases[0], judgment=judgment))["unjudged"]["evidence"] == "refusal: no"


@pytest.mark.parametrize("passages", [False, True])
def test_a_search_finds_the_beginnings_of_words_everywhere(index, cases, passages):
    words = [words_of(case, passages=passages) for case in cases]
    counted = Counter(word for each in words for word in each)
    rare = [word for word, count in counted.items() if 2 <= count <= 60 and len(word) > 3][:8]
    assert len(rare) == 8
    for word in rare:
        expected = [number for number, each in enumerate(words) if any(w.startswith(word[:4]) for w in each)]
        query = ResponseQuery(search=word[:4].upper(), in_passages=passages, sort="given")
        assert index.select(query).positions.tolist() == expected, word


def test_every_word_of_a_search_must_occur(index, cases):
    both = index.select(ResponseQuery(search="atlas step", sort="given")).positions.tolist()
    words = [words_of(case) for case in cases]
    assert both == [
        number
        for number, each in enumerate(words)
        if all(any(word.startswith(term) for word in each) for term in ("atlas", "step"))
    ]
    assert 0 < len(both) < len(cases)
    assert len(index.select(ResponseQuery(search="?!")).positions) == 0
    # The language of the search index is not that of the page: its signs and words are ordinary ones.
    plain, signs = (index.select(ResponseQuery(search=text)).positions for text in ("or near", '" OR (near*'))
    assert plain.tolist() == signs.tolist()
    assert len(index.select(ResponseQuery(search="  ")).positions) == len(cases)


def test_the_worst_comes_first_then_failures_then_the_rest(index, cases):
    outcomes = list(OUTCOME_WORDS)
    ranks = [outcomes.index(derive_response_facts(case).outcome) or 99 for case in cases]
    ranks[3] = -1
    expected = sorted(range(len(cases)), key=lambda number: (ranks[number], number))
    assert index.select(ResponseQuery()).positions.tolist() == expected


def test_the_other_orders(index, cases, scores):
    def order(sort):
        return index.select(ResponseQuery(sort=sort)).positions.tolist()

    numbers = range(len(cases))
    assert order("given") == list(numbers)
    assert order("question") == sorted(numbers, key=lambda n: (cases[n].instance.question, n))
    assert order("model") == sorted(
        numbers, key=lambda n: (cases[n].instance.benchmark, cases[n].response.source.model, n)
    )
    assert order("long") == sorted(numbers, key=lambda n: (-len(cases[n].response.trace), n))
    values = [scores[0].get_value(case.response.id) for case in cases]
    for sort, sign in (("low-closure", 1), ("high-closure", -1)):
        assert order(sort) == sorted(
            numbers, key=lambda n: (9 if isinstance(values[n], str) else sign * round(values[n], 4), n)
        )


def test_bounds_of_a_score_leave_out_and_count_what_has_none(index, cases, scores):
    values = [scores[0].get_value(case.response.id) for case in cases]
    selection = index.select(ResponseQuery(score="closure", lowest=0.25, highest=0.5, sort="given"))
    assert selection.positions.tolist() == [
        n for n, value in enumerate(values) if not isinstance(value, str) and 0.25 <= round(value, 4) <= 0.5
    ]
    assert selection.unscored == sum(isinstance(value, str) for value in values) == 20
    # A detector without bounds filters nothing.
    assert len(index.select(ResponseQuery(score="closure")).positions) == len(cases)


def test_responses_without_a_score_by_reason(index, cases, scores):
    page = index.read_page(ResponseQuery({"unscored": "because-no-trace"}), 0)
    assert sorted(page["ids"]) == sorted(scores[0].reasons)
    assert set(page["scores"][0]) == {"no trace"}
    assert NO_RECORD in index.data["reasons"]


def test_pages_hold_the_list_in_its_order(index, cases, monkeypatch):
    monkeypatch.setattr(query, "PAGE_ROWS", 64)
    pages = [index.read_page(ResponseQuery(sort="given"), first) for first in (0, 70, 128, 192)]
    assert [page["first"] for page in pages] == [0, 64, 128, 192]
    assert [id_ for page in pages for id_ in page["ids"]] == [case.response.id for case in cases]
    for page in pages:
        for row, position in enumerate(page["positions"]):
            case = cases[position]
            assert page["answers"][row] == case.response.answer
            assert page["questions"][page["question"][row]][0] == case.instance.question
            assert page["steps"][row] == len(case.response.trace)
            assert index.data["models"][page["model"][row]] == case.response.source.model
            assert index.data["judges"][page["judge"][row]] == case.judgment.judge
    assert index.read_page(ResponseQuery(sort="given"), 10**9)["first"] == 192
    assert index.read_page(ResponseQuery(search="nosuchword"), 5)["ids"] == []


def test_the_page_of_a_response_is_found_by_its_id(index, cases, monkeypatch):
    monkeypatch.setattr(query, "PAGE_ROWS", 64)
    page = index.read_page(ResponseQuery(sort="given"), 0, response_id=cases[199].response.id)
    assert (page["first"], page["at"], page["known"]) == (192, 199, True)
    assert index.read_page(ResponseQuery(), 0, response_id=ODD_ID)["known"]
    assert index.read_page(ResponseQuery(), 0, response_id="no such id")["known"] is False
    excluded = index.read_page(ResponseQuery(search="nosuchword"), 0, response_id=cases[199].response.id)
    assert (excluded["at"], excluded["known"]) == (None, True)


def test_blocks_are_those_of_the_page_of_a_small_run(index, cases):
    details = json.loads(zlib.decompress(index.read_block("details-1")))
    expected = [build_response_detail(case) for case in cases[RESPONSES_PER_CHUNK : 2 * RESPONSES_PER_CHUNK]]
    assert details == json.loads(json.dumps(expected))
    entry = index.read_page(ResponseQuery(sort="given"), 0)["questions"][0]
    passages = json.loads(zlib.decompress(index.read_block(f"evidence-{entry[4] // EVIDENCE_PER_CHUNK}")))
    question = next(case.instance for case in cases if case.instance.id == entry[3])
    assert passages[entry[4] % EVIDENCE_PER_CHUNK] == [[each.title, each.text] for each in question.evidence]
    assert index.read_block("details-99") is None
