"""Edits of passages: what is replaced, what stays, and what is refused with which reason."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eclose.files.jsonl import unwrap_records
from eclose.readers.load import scan_instances
from eclose.values.answers import TextSpan
from eclose.values.family import TextReplacement
from eclose.values.instance import Passage
from eclose_train.families.edits import (
    EditedPassage,
    EditedText,
    EditFailure,
    EditProblem,
    RefusedEdit,
    edit_passage,
    edit_text,
    find_leftover_values,
)
from tests.tables import each_row

FIXTURES = Path(__file__).parents[3] / "eclose" / "tests" / "fixtures"
CASES = [json.loads(line) for line in (FIXTURES / "edits.jsonl").read_text(encoding="utf-8").splitlines()]


def edit(text, *pairs, keep=(), title="A title"):
    return edit_passage(Passage("p1", title, text), [TextReplacement(*pair) for pair in pairs], keep)


def reasons(result):
    assert isinstance(result, RefusedEdit), result
    return {failure.problem.value for failure in result.failures}


def outside(text, places):
    """What stands before, between and behind the places."""
    ends = [0, *(end for position in places for end in (position.start, position.end)), len(text)]
    return [text[start:end] for start, end in list(pairwise(ends))[::2]]


def assert_nothing_else_changed(before, after, changes):
    ours = outside(before, [change.before for change in changes])
    theirs = outside(after, [change.after for change in changes])
    assert [part.encode() for part in ours] == [part.encode() for part in theirs]


# Real passages. An accepted case gives each change as "left{old→new}right"; left, old and right stand once in the text.


@cache
def passages_of(name):
    instances = unwrap_records(scan_instances(FIXTURES / "qa" / name))
    return {(instance.id, passage.id): passage for instance in instances for passage in instance.evidence}


MARK = re.compile(r"\{(.*?)→(.*?)\}", re.DOTALL)


def rewritten(text, diff):
    """The new text as a person would make it: find each piece, write the other one."""
    for piece in diff:
        before, after = MARK.sub(r"\1", piece), MARK.sub(r"\2", piece)
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def test_there_are_enough_real_cases_of_both_kinds():
    refused = [case for case in CASES if "refused" in case]
    assert len(CASES) >= 100
    assert len(refused) >= 30
    assert {reason for case in refused for reason in case["refused"]} == set(EditProblem) - {EditProblem.RUNS_TOGETHER}
    for benchmark in ("2wiki", "hotpotqa", "musique"):
        assert any(benchmark in case["file"] for case in CASES)


@each_row(CASES)
def test_real_passage(case):
    passage = passages_of(case["file"])[case["instance"], case["passage"]]
    result = edit_passage(passage, [TextReplacement(*pair) for pair in case["replace"]], case["keep"])
    if "refused" in case:
        assert reasons(result) == set(case["refused"])
        return
    assert isinstance(result, EditedPassage), result
    assert result.passage == Passage(passage.id, passage.title, rewritten(passage.text, case["accepted"]))
    assert len(result.changes) == sum(len(MARK.findall(piece)) for piece in case["accepted"])
    assert_nothing_else_changed(passage.text, result.passage.text, result.changes)


SLICES = [
    "2wikimultihopqa_dev_10.json",
    "hotpotqa_train_100.json.gz",
    "hotpotqa_validation_100_hf.jsonl.gz",
    "hotpotqa_validation_first100_hf.json.gz",
    "musique_ans_train_100.json.gz",
]


@pytest.mark.slow
def test_answers_of_real_slices_replaced_by_other_answers(shared_data):
    """Every supporting passage of every question: nothing outside the answer changes, and no answer is left."""
    accepted = refused = 0
    for name in SLICES:
        path = shared_data / "qa" / name
        instances = [
            record for record in unwrap_records(scan_instances(path)) if record.reference_answer not in {"yes", "no"}
        ]
        for instance, other in pairwise(instances):
            for passage in (passage for passage in instance.evidence if passage.id in instance.support_ids):
                change = TextReplacement(instance.reference_answer, other.reference_answer)
                result = edit_passage(passage, [change])
                if isinstance(result, RefusedEdit):
                    refused += 1
                    continue
                accepted += 1
                assert_nothing_else_changed(passage.text, result.passage.text, result.changes)
                assert {passage.text[c.before.start : c.before.end] for c in result.changes} == {change.old}
                assert {result.passage.text[c.after.start : c.after.end] for c in result.changes} == {change.new}
    assert accepted > 200
    assert refused > 200


# Small texts.


def test_id_and_title_stay_and_changes_are_told_from_left_to_right():
    result = edit_passage(Passage("p7", "Lund", "Ada left. Ada came."), [TextReplacement("Ada", "Eve-Marie")])
    assert result.passage == Passage("p7", "Lund", "Eve-Marie left. Eve-Marie came.")
    assert [change.before for change in result.changes] == [TextSpan(0, 3), TextSpan(10, 13)]
    assert [change.after for change in result.changes] == [TextSpan(0, 9), TextSpan(16, 25)]


def test_replacements_happen_at_once():
    swapped = edit_text("Ann saw Bo.", [TextReplacement("Ann", "Bo"), TextReplacement("Bo", "Ann")])
    assert swapped.text == "Bo saw Ann."
    chain = edit_text(
        "Ann saw Bo and Cy.", [TextReplacement("Ann", "Bo"), TextReplacement("Bo", "Cy"), TextReplacement("Cy", "Di")]
    )
    assert chain.text == "Bo saw Cy and Di."


def test_of_nested_words_the_longer_are_replaced():
    result = edit_text(
        "Ada Byron left. Byron wrote.", [TextReplacement("Byron", "Ruiz"), TextReplacement("Ada Byron", "Ann Ruiz")]
    )
    assert result.text == "Ann Ruiz left. Ruiz wrote."
    alone = edit_text("Ada Byron left.", [TextReplacement("Byron", "Ruiz"), TextReplacement("Ada Byron", "Ann Ruiz")])
    assert reasons(alone) == {"overlap"}


def test_words_that_overlap_themselves_are_refused():
    assert reasons(edit_text("so so so", [TextReplacement("so so", "la")])) == {"overlap"}


def test_every_problem_is_reported_at_once():
    result = edit("Paris is Paris.", ("Paris", "PARIS"), ("Rome", "Oslo"), keep=["Bonn"], title="Paris")
    assert reasons(result) == {"unchanged", "not_found", "kept_not_found", "in_title"}
    result = edit_text("x", [TextReplacement("", "a"), TextReplacement("x", " "), TextReplacement("x", "x")], [" "])
    assert [failure.problem for failure in result.failures] == [
        EditProblem.EMPTY,
        EditProblem.EMPTY,
        EditProblem.UNCHANGED,
        EditProblem.NAMED_TWICE,
        EditProblem.EMPTY,
    ]


def test_a_failure_is_a_sentence():
    (failure,) = edit_text("Ada left.", [TextReplacement("Eve", "Ann")]).failures
    assert failure == EditFailure(EditProblem.NOT_FOUND, "'Eve' does not occur in the text")
    assert str(failure) == "not_found: 'Eve' does not occur in the text"
    (failure,) = edit_text("Foster’s book", [TextReplacement("Foster's", "Ann's")]).failures
    assert failure.detail == "\"Foster's\" does not occur in the text, but 'Foster’s book' does"


def test_a_left_over_is_shown_with_what_stands_around_it():
    (failure,) = edit("Born in Paris. He loved PARIS all his life.", ("Paris", "Rome")).failures
    assert failure.detail == "'Paris' is left in the text as 'n in Rome. He loved PARIS all his life.'"


@pytest.mark.parametrize(
    "text, old, new",
    [
        ("May(1930)", "(1930)", "1931"),
        ("(Ada)s", "(Ada)", "Eve"),
        ("Ada left", "Ada", "Eve\u200d"),
        ("x Ada", "Ada", "\u0301Eve"),
        ("Ada\n", "Ada", "Eve\r"),
    ],
)
def test_what_is_written_does_not_run_together_with_its_neighbours(text, old, new):
    assert reasons(edit_text(text, [TextReplacement(old, new)])) == {"runs_together"}
    assert edit_text(text, [TextReplacement(old, "(Eve)")]).text == text.replace(old, "(Eve)")


def test_a_text_to_keep_may_stand_in_the_title_alone():
    text = "Paris Hilton moved to Rome in 1999."
    assert reasons(edit(text, ("Rome", "Oslo"), title="Rome News")) == {"in_title"}
    assert edit(text, ("Rome", "Oslo"), title="Rome News", keep=["Rome News"]).passage.text == (
        "Paris Hilton moved to Oslo in 1999."
    )


def test_places_to_keep_are_found_again_behind_a_change():
    text = "Paris, then PARIS MATCH, then Paris."
    assert edit(text, ("Paris", "Reykjavik"), keep=["PARIS MATCH"]).passage.text == (
        "Reykjavik, then PARIS MATCH, then Reykjavik."
    )
    before = "PARIS MATCH, then Paris."
    assert edit(before, ("Paris", "Rome"), keep=["PARIS MATCH"]).passage.text == "PARIS MATCH, then Rome."


def test_what_a_replacement_wrote_is_not_left_over():
    assert edit("Ada came to Paris.", ("Paris", "Paris, Texas")).passage.text == "Ada came to Paris, Texas."
    assert edit("US and UK", ("US", "UK"), ("UK", "U.S.")).passage.text == "UK and U.S."


def test_what_a_replacement_completes_is_left_over():
    assert reasons(edit("New New York", ("New York", "York"))) == {"left_over"}
    edited = edit_text("New New York", [TextReplacement("New York", "York")])
    assert find_leftover_values(edited, "New York") == (TextSpan(0, 8),)


# Properties.

WORDS = st.sampled_from(
    ["Ada", "Bo", "Ada Bo", "O'Bo", "Bo-Ada", "é", "e\u0301", "東京", "1930", "1930s", "👨‍👩‍👧", "U.S."]
)
GAPS = st.sampled_from([" ", ", ", ". ", "-", "'s ", "", "\n", "–", "”", "\u200d", "\u0301"])
TEXTS = st.lists(st.tuples(WORDS, GAPS), min_size=1, max_size=12).map(
    lambda parts: "".join(word + gap for word, gap in parts)
)
REPLACEMENTS = st.lists(
    st.builds(TextReplacement, WORDS, st.one_of(WORDS, st.text(min_size=1, max_size=5))), max_size=3
)


@pytest.mark.slow
@given(TEXTS, REPLACEMENTS, st.lists(WORDS, max_size=1))
def test_an_edit_changes_its_places_and_nothing_else(text, replacements, keep):
    result = edit_text(text, replacements, keep)
    if isinstance(result, RefusedEdit):
        assert result.failures
        return
    assert_nothing_else_changed(text, result.text, result.changes)
    expected = {(replacement.old, replacement.new) for replacement in replacements}
    actual = {(text[c.before.start : c.before.end], result.text[c.after.start : c.after.end]) for c in result.changes}
    assert actual == expected
    assert all(part in result.text for part in keep)


@pytest.mark.slow
@given(st.data())
def test_an_edit_can_be_taken_back_where_the_new_words_are_new(data):
    text = data.draw(TEXTS)
    old = data.draw(st.sampled_from(sorted(set(re.findall(r"\w+", text))) or ["Ada"]))
    new = data.draw(st.sampled_from(["Zoë Q", "Q-9", "O'Zoë", "京都", "Q.Z.", "9,999"]))
    result = edit_text(text, [TextReplacement(old, new)])
    if isinstance(result, EditedText):
        assert edit_text(result.text, [TextReplacement(new, old)]).text == text


@given(st.text(max_size=40), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5))
def test_any_text_is_edited_or_refused(text, old, new, kept):
    result = edit_passage(Passage("p1", kept, text), [TextReplacement(old, new)], [kept] if kept else [])
    if isinstance(result, EditedPassage):
        assert_nothing_else_changed(text, result.passage.text, result.changes)
    else:
        assert result.failures
