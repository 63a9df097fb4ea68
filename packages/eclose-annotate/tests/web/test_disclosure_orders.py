"""Everybody at once, in any order: nobody gets ahead, sees too early, or reaches what is another's."""

from __future__ import annotations

from collections import Counter

import pytest

from eclose_annotate import submissions, visible
from tests.web.canaries import study
from tests.web.doubles import run_doubles
from tests.web.orders import run_orders

REQUESTS = 20


@pytest.mark.slow
@pytest.mark.parametrize("orders", [10, pytest.param(40, marks=pytest.mark.study)])
def test_random_orders_win_nothing(tmp_path, orders):
    tally = run_orders(tmp_path, range(orders), REQUESTS)
    assert (tally.advances, tally.disclosures, tally.access) == ([], [], [])
    # What never happens was tried, and what may happen did.
    assert tally.orders == orders
    assert {200, 204, 303, 403, 404, 409, 422} <= tally.answers.keys()


@pytest.mark.slow
def test_two_who_submit_at_once_make_one_row(tmp_path):
    """Over a socket, with threads: the same click twice, two tabs, two opinions."""
    with study(tmp_path / "study") as small_study:
        tally = run_doubles(small_study, 24)
    assert (tally.rows, tally.wins) == (24, [])
    assert tally.answers == Counter({(303, 303): 8, (303, 409): 16})


# --- the same with a lock taken out: each of these must be found -----------------------------------------------------


def _any_task_is_open(connection, row):
    submitted = connection.execute(submissions._DONE, {"task": row.id}).scalars().all()
    return submissions.next_open_pass(
        submissions.trim_form_passes(submissions.AnnotationTaskKind(row.kind), row.passes, row.unasked.split(",")),
        submitted,
    )


def _last_pass_is_open(connection, row):
    return submissions.trim_form_passes(submissions.AnnotationTaskKind(row.kind), row.passes, row.unasked.split(","))[
        -1
    ]


def _anybody_owns(connection, person, task):
    statement = submissions.text(submissions._TASK.text.replace("AND person = :person", ""))
    return connection.execute(statement, {"task": task}).one_or_none()


def _answer_in_the_reasoning(row, evidence):
    return visible._with_answer(row, evidence)


MUTANTS = {
    "any task is open": (submissions, "_open_pass", _any_task_is_open),
    "any pass is open": (submissions, "_open_pass", _last_pass_is_open),
    "anybody owns a task": (submissions, "_find_task", _anybody_owns),
    "a submission is not known again": (submissions, "_find_repeated", lambda *_: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_server_without_a_lock_is_found_out(name, tmp_path, monkeypatch):
    monkeypatch.setattr(*MUTANTS[name])
    tally = run_orders(tmp_path, range(8), REQUESTS)
    assert tally.wins


@pytest.mark.slow
def test_an_answer_that_is_shown_early_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(visible, "PASS_QUERIES", {**visible.PASS_QUERIES, "B": visible.PASS_QUERIES["C"]})
    monkeypatch.setattr(visible, "_BUILDERS", {**visible._BUILDERS, "B": _answer_in_the_reasoning})
    tally = run_orders(tmp_path, range(8), REQUESTS)
    assert any("answer of" in disclosure for disclosure in tally.disclosures)
