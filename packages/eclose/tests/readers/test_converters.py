"""The corners of each layout that the slices of real data do not reach."""

from __future__ import annotations

import json

import pytest

from eclose.errors import RecordError
from eclose.readers import benchmarks as multi_hop
from eclose.readers import conversion
from eclose.readers import rag_rows as rag_eval_formats
from eclose.readers.layouts import RecordLayout, detect_record_layout
from eclose.values.response import Trace

HOTPOT = {
    "_id": "h1",
    "question": "Who built it?",
    "answer": "Ada",
    "supporting_facts": [["Bridge", 1], ["Bridge", 0], ["Town", 0]],
    "context": [["Town", ["A town."]], ["Moon", ["A moon."]], ["Bridge", ["Ada.", " Built."]]],
}
TWO_WIKI = {**HOTPOT, "type": "compositional", "answer_id": "Q7259", "evidences": [["a", "b", "c"], ["c", "d", "e"]]}
TWO_WIKI_TEST = {key: TWO_WIKI[key] for key in ("_id", "type", "question", "context")} | {"entity_ids": "Q1_Q2"}
MUSIQUE_TEST = {
    "id": "3hop1__1_2_3",
    "question": "Who?",
    "paragraphs": [{"idx": 4, "title": "T", "paragraph_text": "x"}, {"idx": 9, "title": "T", "paragraph_text": "y"}],
}


def test_support_is_by_passage_in_the_order_of_the_evidence():
    instance = multi_hop.convert_hotpot_record(HOTPOT).instance
    assert instance.support_ids == ("0", "2")
    assert instance.evidence[2].text == "Ada. Built."
    assert instance.hops == 2


def test_a_title_shared_by_two_passages_marks_both():
    record = {**HOTPOT, "context": [*HOTPOT["context"], ["Bridge", ["Another.", " One."]]]}
    converted = multi_hop.convert_hotpot_record(record)
    assert converted.instance.support_ids == ("0", "2", "3")
    assert converted.repairs == (conversion.SUPPORT_SHARED,)


def test_facts_of_absent_passages_leave_known_but_empty_support():
    converted = multi_hop.convert_hotpot_record({**HOTPOT, "supporting_facts": [["Mars", 0], ["Venus", 0]]})
    assert converted.instance.support_ids == ()
    assert converted.repairs == (conversion.SUPPORT_ABSENT,)


@pytest.mark.parametrize("facts", [None, [], {"title": [], "sent_id": []}])
def test_support_that_is_not_told_is_unknown(facts):
    assert multi_hop.convert_hotpot_record({**HOTPOT, "supporting_facts": facts}).instance.support_ids is None


def test_ids_of_other_passages_survive_a_blank_one():
    record = {**HOTPOT, "context": [HOTPOT["context"][0], ["Moon", [" ", ""]], HOTPOT["context"][2]]}
    converted = multi_hop.convert_hotpot_record(record)
    assert [passage.id for passage in converted.instance.evidence] == ["0", "2"]
    assert converted.instance.support_ids == ("0", "2")
    assert converted.repairs == (conversion.PASSAGE_BLANK,)


def test_a_derived_id_follows_from_question_and_evidence_alone():
    bare = {key: value for key, value in HOTPOT.items() if key != "_id"}
    derived = multi_hop.convert_hotpot_record(bare).instance.id
    assert multi_hop.convert_hotpot_record({**bare, "answer": "Bob", "type": "bridge"}).instance.id == derived
    assert multi_hop.convert_hotpot_record({**bare, "question": "Why?"}).instance.id != derived


def test_two_wiki_joins_sentences_by_one_blank_and_counts_triples_as_hops():
    record = {**TWO_WIKI, "context": [["Bridge", ["Ada.", "Built."]], ["Town", ["A town."]]]}
    instance = multi_hop.convert_two_wiki_record(record).instance
    assert instance.evidence[0].text == "Ada. Built."
    assert (instance.hops, instance.kind, instance.benchmark) == (2, "compositional", "2WikiMultiHopQA")


def test_two_wiki_triples_may_be_a_table():
    table = {"fact": ["a", "c"], "relation": ["b", "d"], "entity": ["c", "e"]}
    assert multi_hop.convert_two_wiki_record({**TWO_WIKI, "evidences": table}) == multi_hop.convert_two_wiki_record(
        TWO_WIKI
    )


def test_two_wiki_test_split_has_no_reference_and_no_support():
    assert detect_record_layout(TWO_WIKI_TEST) is RecordLayout.TWO_WIKI
    instance = multi_hop.convert_two_wiki_record(TWO_WIKI_TEST).instance
    assert (instance.reference_answer, instance.support_ids, instance.hops) == (None, None, None)


def test_two_wiki_accepts_aliases_and_demonyms(tmp_path):
    path = tmp_path / "id_aliases.json"
    lines = [
        {"Q_id": "Q7259", "aliases": ["Ada", "Lady L.", " "], "demonyms": ["Adan", "Lady L."]},
        {"Q_id": "Q1", "aliases": ["Eve"], "demonyms": []},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    aliases = multi_hop.read_wikidata_aliases(path)
    assert multi_hop.convert_two_wiki_record(TWO_WIKI, aliases).instance.accepted_answers == ("Ada", "Lady L.", "Adan")
    assert multi_hop.convert_two_wiki_record({**TWO_WIKI, "answer_id": None}, aliases).instance.aliases == ()
    assert multi_hop.convert_two_wiki_record({**TWO_WIKI, "answer_id": "Q404"}, aliases).instance.aliases == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"aliases": []}', r"line 1: Q_id: is missing\. Is this the benchmark's id_aliases\.json\?"),
        ('{"Q_id": "Q1", "aliases": "x"}', r"line 1: aliases: should be a valid array"),
        ('{"Q_id": ', r"line 1: is not JSON"),
    ],
)
def test_a_broken_alias_file_is_named(tmp_path, text, problem):
    path = tmp_path / "id_aliases.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=f"id_aliases.json {problem}"):
        multi_hop.read_wikidata_aliases(path)


def test_musique_test_split_is_known_by_its_id():
    instance = multi_hop.convert_musique_record(MUSIQUE_TEST).instance
    assert (instance.kind, instance.hops, instance.support_ids) == ("3hop1", 3, None)
    assert [passage.id for passage in instance.evidence] == ["4", "9"]
    assert instance.reference_answer is None


def test_musique_hops_come_from_the_decomposition_first():
    assert multi_hop.convert_musique_record({**MUSIQUE_TEST, "question_decomposition": [{}, {}]}).instance.hops == 2
    assert multi_hop.convert_musique_record({**MUSIQUE_TEST, "id": "mine"}).instance.hops is None


def test_musique_aliases_leave_out_blanks_repeats_and_the_answer():
    record = {**MUSIQUE_TEST, "answer": "Ada", "answer_aliases": ["Ada", "", "A. L.", "A. L."]}
    assert multi_hop.convert_musique_record(record).instance.aliases == ("A. L.",)


TABLES = {
    RecordLayout.RAGAS: {"user_input": "Q?", "retrieved_contexts": ["one", "two"], "response": "R", "reference": "A"},
    RecordLayout.DEEPEVAL: {
        "input": "Q?",
        "retrieval_context": ["one", "two"],
        "actual_output": "R",
        "expected_output": "A",
        "context": ["ideal"],
    },
    RecordLayout.RAGCHECKER: {
        "query_id": "7",
        "query": "Q?",
        "retrieved_context": [{"doc_id": "a", "text": "one"}, {"doc_id": "b", "text": "two"}],
        "response": "R",
        "gt_answer": "A",
    },
}
OLD_RAGAS = {"question": "Q?", "contexts": ["one", "two"], "answer": "R", "ground_truth": "A"}


@pytest.mark.parametrize(("layout", "record"), [*TABLES.items(), (RecordLayout.RAGAS, OLD_RAGAS)])
def test_columns_mean_the_same_under_every_name(layout, record):
    assert detect_record_layout(record) is layout
    converted = rag_eval_formats.convert_tool_record(record, layout)
    instance, response = converted.instance, converted.response
    assert (instance.question, instance.reference_answer) == ("Q?", "A")
    assert [passage.text for passage in instance.evidence] == ["one", "two"]
    assert (response.instance_id, response.answer) == (instance.id, "R")


def test_documents_keep_their_ids_where_they_are_unique():
    instance = rag_eval_formats.convert_tool_record(TABLES[RecordLayout.RAGCHECKER], RecordLayout.RAGCHECKER).instance
    assert (instance.id, [passage.id for passage in instance.evidence]) == ("7", ["a", "b"])


def test_a_response_with_an_answer_line_is_read_as_a_completion():
    text = "1. Ada built it.\nFinal answer: Ada"
    response = rag_eval_formats.convert_tool_record({**OLD_RAGAS, "answer": text}, RecordLayout.RAGAS).response
    assert (response.trace, response.answer, response.completion) == (Trace.of("Ada built it."), "Ada", text)


def test_a_response_whose_answer_is_not_told_apart_is_all_answer_and_its_claims_are_steps():
    response = rag_eval_formats.convert_tool_record(
        {**OLD_RAGAS, "answer": " Ada built it.\nIn 1843. "}, RecordLayout.RAGAS
    ).response
    assert (response.trace, response.answer) == (Trace.of("Ada built it.", "In 1843."), "Ada built it.\nIn 1843.")
    assert response.answer_lines == 0


@pytest.mark.parametrize("text", [None, "", "  "])
def test_no_text_is_no_response(text):
    assert rag_eval_formats.convert_tool_record({**OLD_RAGAS, "answer": text}, RecordLayout.RAGAS).response is None
