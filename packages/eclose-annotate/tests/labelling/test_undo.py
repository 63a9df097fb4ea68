"""A pass that its person undoes counts as first submitted in its new form."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest
from sqlalchemy import text

from eclose_annotate.labelling import undo
from eclose_annotate.read import read_annotations
from eclose_annotate.results.agreement_report import agreement_to_json, build_agreement_report
from eclose_annotate.results.export_project import export_project, load_annotations
from eclose_annotate.web import dashboard
from tests.projects import filled, make_project, next_sheet, submit, undo_last, who, work_off


def annotations_of(project):
    with project.reading() as connection:
        return read_annotations(connection)


def subjects(project):
    with project.reading() as connection:
        rows = connection.execute(text("SELECT DISTINCT subject FROM annotate_adjudications ORDER BY subject"))
        return rows.scalars().all()


@pytest.mark.parametrize("taken", [False, True])
def test_an_undone_pass_counts_as_first_submitted(tmp_path, taken):
    project = make_project(tmp_path / "study", questions=1, annotators=("ann", "bob"), share_questions=True)
    for name in ("ann", "bob"):
        work_off(project, who(project, name), correct="no" if name == "bob" else "yes")
    assert len(subjects(project)) == 2
    if taken:
        eve = who(project, "eve")
        while len([response for response in annotations_of(project).responses if response.adjudication]) < 2:
            submit(project, eve, next_sheet(project, eve))
    assert undo_last(project, "bob", ({"correct": "yes", "complete": "yes"},)).receipt
    responses = annotations_of(project).responses
    assert Counter(judgment.correct for response in responses for judgment in response.judgments) == {True: 3, False: 1}
    if taken:
        # Both were adjudicated before, and that holds; the one that was undone has no other trigger.
        assert [response.final.origin for response in responses] == ["adjudicated", "adjudicated"]
        assert sorted(response.triggers[0] for response in responses) == ["amendment", "correctness"]
    else:
        assert sorted(response.open_reason or response.final.origin for response in responses) == [
            "agreed",
            "waits for adjudication",
        ]
        assert len(subjects(project)) == 1
    with project.reading() as connection:
        (queue,) = dashboard.read_dashboard_queues(connection)
    counts = build_agreement_report(annotations_of(project), resamples=100).responses.adjudication
    assert (counts.adjudicated, counts.waiting) == (queue.adjudicated, queue.in_adjudication)
    project.close()


def test_the_newest_change_holds_and_an_unused_one_changes_nothing(tmp_path):
    project = make_project(tmp_path / "study", questions=1, annotators=("ann",), adjudicators=(), per_response=1,
                           share_questions=True)  # fmt: skip
    work_off(project, who(project, "ann"))
    ann = who(project, "ann")
    for correct in ("no", "yes", "no"):
        assert undo_last(project, "ann", ({"correct": correct, "complete": "yes"},)).receipt
    with project.writing() as connection:
        last = undo.find_undoable_pass(connection, ann)
        opened = undo.undo_last_pass(connection, ann, *last)
        # Clicked twice, the pass is open once.
        assert undo.undo_last_pass(connection, ann, *last) == opened
        assert [row.id for row in undo.list_reopened_passes(connection, ann)] == [opened]
        assert undo.open_pass_amendment(connection, project, ann, opened).draft == (
            {"correct": "no", "complete": "yes"},
        )
        (own, _) = undo.list_own_tasks(connection, ann)
    assert (own.passes[-1].entries[0]["correct"], own.passes[-1].amended, own.passes[-1].reopening) == (
        "no",
        True,
        opened,
    )
    assert Counter(response.judgments[0].correct for response in annotations_of(project).responses) == {
        True: 1,
        False: 1,
    }
    project.close()


def test_what_another_person_submitted_or_an_earlier_pass_cannot_be_undone(tmp_path):
    project = make_project(tmp_path / "study", questions=1, annotators=("ann", "bob"), share_questions=True)
    ann, bob = who(project, "ann"), who(project, "bob")
    sheet = next_sheet(project, ann)
    submit(project, ann, sheet)
    with project.writing() as connection:
        assert undo.undo_last_pass(connection, bob, sheet.task, "A") is None
        assert undo.reopen_own_pass(connection, bob, sheet.task, "A") is None
        opened = undo.undo_last_pass(connection, ann, sheet.task, "A")
        assert undo.open_pass_amendment(connection, project, bob, opened) is None
        assert undo.submit_pass_amendment(connection, project, bob, opened, filled(sheet)).receipt is None
    submit(project, ann, next_sheet(project, ann))
    with project.writing() as connection:
        # Pass C shows the answer.
        assert undo.find_undoable_pass(connection, ann) is None
        assert undo.undo_last_pass(connection, ann, sheet.task, "A") is None
        assert undo.undo_last_pass(connection, ann, sheet.task, "B") is None
    project.close()


def recount(path):
    """Work the figures of a report out again, from the lines of annotations.jsonl alone."""
    lines = defaultdict(list)
    for line in map(json.loads, path.read_text().splitlines()):
        lines[line["response_id"]].append(line)
    counts = Counter()
    for rows in lines.values():
        first = [row["judgment"] for row in rows if not row.get("adjudicates")]
        labels = [
            [*((step["substantive"], step.get("sound"), step.get("failure")) for step in judgment["steps"])]
            + [judgment.get(name) for name in ("aligned", "closed", "complete", "correct")]
            for judgment in first
        ]
        differ = any(other != labels[0] for other in labels[1:])
        counts["differ"] += differ
        counts["closure"] += len({judgment["closed"] for judgment in first}) > 1
        counts["closure agrees"] += len({judgment["closed"] for judgment in first}) == 1
        counts["adjudicated"] += any(row.get("adjudicates") for row in rows)
    return counts


@pytest.mark.slow
def test_all_figures_of_a_report_agree_with_each_other(tmp_path):
    project = make_project(tmp_path / "study", questions=4, annotators=("ann", "bob"), share_questions=True)
    work_off(project, who(project, "bob"))
    ann, number = who(project, "ann"), 0
    while (sheet := next_sheet(project, ann)) is not None:
        number += sheet.form.name == "C"
        submit(project, ann, sheet, filled(sheet, closed="no" if number % 2 else "yes"))
    eve = who(project, "eve")
    for _ in range(4 * 3):
        submit(project, eve, (sheet := next_sheet(project, eve)), filled(sheet, closed="no"))
    with project.reading() as connection:
        report = agreement_to_json(build_agreement_report(read_annotations(connection), resamples=100))
        (queue,) = dashboard.read_dashboard_queues(connection)
    project.close()
    export_project(tmp_path / "study", tmp_path / "out")
    counts, counted = report["responses"]["adjudication"], recount(tmp_path / "out" / "annotations.jsonl")
    assert counts["disagreements"] == counted["differ"] == 4
    assert counts["amended_only"] == 0
    assert counts["to_adjudicate"] == 4
    assert counts["triggers"] == {"closure": counted["closure"]}
    assert counts["adjudicated"] == counted["adjudicated"] == queue.adjudicated == 3
    assert counts["waiting"] == queue.in_adjudication == 1
    (closure,) = [row for row in report["responses"]["agreement"] if row["judgment"].startswith("Closure")]
    assert closure["raw"]["value"] == counted["closure agrees"] / 8
    labels = [json.loads(line) for line in (tmp_path / "out" / "labels.jsonl").read_text().splitlines()]
    assert Counter(label["origin"] for label in labels) == {"adjudicated": 3, "agreed": 4}
    assert queue.settled == len(labels) == 7
    # The export read again gives the same report.
    again = agreement_to_json(build_agreement_report(load_annotations(tmp_path / "out"), resamples=100))
    assert again["responses"] == report["responses"]
