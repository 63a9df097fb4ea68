"""Tests for labelled rows from families."""

from __future__ import annotations

from itertools import islice

import pytest

from eclose import Family, Trace
from eclose.errors import UserError
from eclose.values.answers import match_answer
from eclose.values.family import QuestionEdit, View, ViewKind
from eclose_train.verifier.linear import VerifierHead
from eclose_train.verifier.rows import (
    RowEdit,
    RowPairing,
    VerifierRow,
    build_verifier_rows,
    check_edits_under_both_labels,
    count_rows,
)
from eclose_world.make.families import make_world_families
from tests.verifier.verifier_families import CROSSED_QUESTION, QUESTION, make_family


def select(rows: list[VerifierRow], head: VerifierHead, edit: RowEdit) -> list[VerifierRow]:
    return [row for row in rows if row.head is head and row.edit is edit]


@pytest.fixture
def rows() -> list[VerifierRow]:
    return build_verifier_rows([make_family()])


def test_every_question_and_every_trace_of_the_alignment_head_occurs_under_both_labels(rows: list[VerifierRow]) -> None:
    for edit in (RowEdit.UNEDITED, RowEdit.TRUNCATED):
        pairs = {
            (row.input.question, row.input.steps[0], row.label) for row in select(rows, VerifierHead.ALIGNMENT, edit)
        }
        directed, wrote = "Norman Jewison directed Moonstruck [1].", "John Shanley wrote Moonstruck [1]."
        assert pairs == {
            (QUESTION, directed, True),
            (CROSSED_QUESTION, directed, False),
            (CROSSED_QUESTION, wrote, True),
            (QUESTION, wrote, False),
        }


def test_rows_of_the_alignment_head_hold_no_answer(rows: list[VerifierRow]) -> None:
    assert {row.input.answer for row in rows if row.head is VerifierHead.ALIGNMENT} == {""}


def test_a_beginning_that_serves_both_questions_is_not_labelled() -> None:
    family = make_family()
    steps = ("Norman Jewison directed Moonstruck.", "Norman Jewison was born in Toronto.")
    other = "In the end Norman Jewison died in Malibu."
    gold = View(ViewKind.GOLD, "Where was he born?", (), Trace.of(*steps), "Toronto", ())
    crossed = View(ViewKind.QUESTION_CF, "Where did he die?", (), Trace.of(steps[0], other), "Malibu", ())
    rows = build_verifier_rows([Family("f", family.source, gold, (), QuestionEdit(crossed))])

    assert select(rows, VerifierHead.ALIGNMENT, RowEdit.UNEDITED)
    assert select(rows, VerifierHead.ALIGNMENT, RowEdit.TRUNCATED) == []


def test_closure_is_true_with_the_answer_of_the_trace_alone(rows: list[VerifierRow]) -> None:
    for row in select(rows, VerifierHead.CLOSURE, RowEdit.UNEDITED):
        assert (row.input.answer in row.input.steps[-1]) is row.label


def test_crossed_questions_occur_under_both_labels_of_closure(rows: list[VerifierRow]) -> None:
    counts = count_rows(rows)
    closure = VerifierHead.CLOSURE
    assert counts[closure, RowEdit.UNEDITED, RowPairing.CROSSED_QUESTION, True] == 2
    assert counts[closure, RowEdit.UNEDITED, RowPairing.CROSSED_BOTH, False] == 2


def test_a_trace_without_its_conclusion_closes_and_one_without_a_needed_fact_does_not(rows: list[VerifierRow]) -> None:
    truncated = select(rows, VerifierHead.CLOSURE, RowEdit.TRUNCATED)

    assert {len(row.input.steps) for row in truncated if row.label} == {2}
    assert {len(row.input.steps) for row in truncated if row.pairing is RowPairing.MATCHED and not row.label} == {1}
    # The same trace without its conclusion occurs with another answer as well.
    assert {len(row.input.steps) for row in truncated if row.pairing is RowPairing.CROSSED_ANSWER} == {2}


def test_replaced_answers_are_right_ones_in_other_words_and_other_names_of_the_trace(rows: list[VerifierRow]) -> None:
    replaced = select(rows, VerifierHead.CLOSURE, RowEdit.REPLACED_ANSWER)
    answers = {view.answer for view in make_family().views}

    assert len(replaced) == 6
    for row in replaced:
        assert row.input.answer not in answers
        assert any(match_answer(row.input.answer, answer) for answer in answers) is row.label


def test_the_name_that_a_beginning_reaches_is_not_its_answer(rows: list[VerifierRow]) -> None:
    reached = select(rows, VerifierHead.CLOSURE, RowEdit.TRUNCATED_AND_REPLACED)

    assert {(len(row.input.steps), row.label) for row in reached} == {(1, False), (2, True), (2, False)}
    people = [row.input.answer.title() for row in reached if len(row.input.steps) == 1]
    assert all("Jewison" in person or "Shanley" in person for person in people)


def test_a_trace_that_calls_two_names_the_same_gets_no_replaced_answer() -> None:
    family = make_family()
    trace = Trace.of("Norman Jewison is another name of Jim Hale.", "Jim Hale directed Moonstruck.")
    view = View(ViewKind.GOLD, "Who directed Moonstruck?", (), trace, "Jim Hale", ())
    rows = build_verifier_rows([Family("f", family.source, view, (), family.question_edit)])

    replaced = select(rows, VerifierHead.CLOSURE, RowEdit.REPLACED_ANSWER)
    assert {row.input.question for row in replaced} == {CROSSED_QUESTION}


def test_a_step_is_supported_by_its_own_evidence_and_not_by_the_edited_one(rows: list[VerifierRow]) -> None:
    support = select(rows, VerifierHead.SUPPORT, RowEdit.UNEDITED)

    # Steps on passages that the edit left alone stay supported, so they occur in no row.
    assert {row.input.steps for row in support} == {
        ("Norman Jewison was born in Toronto.",),
        ("Norman Jewison was born in Ottawa.",),
    }
    for row in support:
        city = row.input.steps[0].removesuffix(".").rsplit(" ", 1)[-1]
        assert (city in row.input.evidence[1].text) is row.label


def test_rows_without_a_proof_have_no_truncated_closure() -> None:
    family = make_family()
    view = View(ViewKind.GOLD, QUESTION, (), family.gold.trace, "Toronto", ())
    rows = build_verifier_rows([Family("f", family.source, view, (), family.question_edit)])
    gold = [row for row in select(rows, VerifierHead.CLOSURE, RowEdit.TRUNCATED) if "Jewison" in row.input.steps[0]]

    assert gold == []


def test_an_edit_under_one_label_is_refused_by_head_and_edit(rows: list[VerifierRow]) -> None:
    truncated = [row for row in rows if row.edit is not RowEdit.TRUNCATED or row.label]

    with pytest.raises(UserError, match=r"alignment head with the edit 'truncated' are 2 true and 0 false"):
        check_edits_under_both_labels(truncated)


def test_a_single_counterexample_is_not_enough(rows: list[VerifierRow]) -> None:
    closure = select(rows, VerifierHead.CLOSURE, RowEdit.REPLACED_ANSWER)
    true_rows, false_rows = ([row for row in closure if row.label is label] for label in (True, False))

    check_edits_under_both_labels(true_rows * 3 + false_rows[:1])
    with pytest.raises(UserError, match="30 true and 1 false"):
        check_edits_under_both_labels(true_rows * 10 + false_rows[:1])


def test_the_same_seed_gives_the_same_rows() -> None:
    families = [make_family(), make_family("f2")]

    assert build_verifier_rows(families, 3) == build_verifier_rows(families, 3)
    assert any(build_verifier_rows(families, 3) != build_verifier_rows(families, seed) for seed in range(4, 8))


@pytest.mark.slow
def test_families_of_the_world_give_rows_of_every_head_edit_and_label() -> None:
    families = list(islice(make_world_families("short-hard", 5), 12))
    cells = {(row.head, row.edit, row.label) for row in build_verifier_rows(families)}

    assert len(cells) == 2 * (2 + 4 + 1)
