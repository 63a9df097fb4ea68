"""An amended label is kept beside the first one and never overrules the adjudicator."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest
from sqlalchemy import text
from tests.annotation.projects import amend, filled, make_project, next_sheet, submit, who, work_off

from eclose.annotation import audit_log, dashboard, reopening
from eclose.annotation.adjudication import AdjudicationTrigger, LabelOrigin
from eclose.annotation.read_annotations import read_annotations
from eclose.annotation.results.agreement_report import agreement_to_json, build_agreement_report
from eclose.annotation.results.export_project import export_project, load_annotations


@pytest.fixture
def project(tmp_path):
    """Two annotators who differ on closure of every response, and an adjudicator who finds nothing closed."""
    project = make_project(tmp_path / "study", questions=3, annotators=("ann", "bob"), share_questions=True)
    work_off(project, who(project, "ann"), closed="no")
    work_off(project, who(project, "bob"))
    work_off(project, who(project, "eve"), closed="no")
    yield project
    project.close()


def responses(project):
    with project.reading() as connection:
        return read_annotations(connection).responses


def subjects(project):
    with project.reading() as connection:
        rows = connection.execute(text("SELECT DISTINCT subject FROM annotate_adjudications ORDER BY subject"))
        return rows.scalars().all()


def test_an_amendment_never_settles_an_adjudicated_case(project):
    before = responses(project)
    for subject in subjects(project):
        assert amend(project, "ann", "C", ({"closed": "yes"},), subject=subject).receipt
    after = responses(project)
    assert len(after) == 6
    for old, new in zip(before, after, strict=True):
        assert new.final.judgment == old.final.judgment
        assert (new.final.origin, new.final.judgment.closed) == (LabelOrigin.ADJUDICATED, False)
        assert new.final.triggers == (AdjudicationTrigger.CLOSURE, AdjudicationTrigger.AMENDMENT)
        assert new.final.changed == {"C": (False, True)}


def test_an_amendment_reopens_the_pass_for_the_adjudicator_whose_new_label_is_final(project):
    subject, eve = subjects(project)[0], who(project, "eve")
    amend(project, "ann", "C", ({"closed": "yes"},), subject=subject)
    amend(project, "bob", "C", ({"closed": "no"},), subject=subject)
    with project.writing() as connection:
        # Once, although two people have amended the pass.
        (granted,) = reopening.list_granted_reopenings(connection, eve)
        assert granted.pass_name == "C"
        entries = ({"closed": "yes"},)
        assert reopening.submit_pass_amendment(connection, project, eve, granted.id, entries, "k").receipt
        assert reopening.list_granted_reopenings(connection, eve) == ()
    final = Counter((one.final.origin, one.final.judgment.closed) for one in responses(project))
    assert final == {(LabelOrigin.ADJUDICATED, False): 5, (LabelOrigin.ADJUDICATED, True): 1}


def test_an_agreed_response_that_is_amended_goes_to_the_adjudicator(tmp_path):
    project = make_project(tmp_path / "study", questions=1, annotators=("ann", "bob"), share_questions=True)
    for name in ("ann", "bob"):
        work_off(project, who(project, name))
    amend(project, "ann", "C", ({"closed": "no"},))
    assert [one.open_reason for one in responses(project)].count("waits for adjudication") == 1
    assert work_off(project, who(project, "eve"), closed="no") == 4
    assert Counter(one.final.origin for one in responses(project)) == {"agreed": 1, "adjudicated": 1}
    project.close()


def undo(project, name, entries):
    """Undo the last pass of a person, and submit it with other entries."""
    person = who(project, name)
    with project.writing() as connection:
        task, pass_name = reopening.find_undoable_pass(connection, person)
        request, _ = reopening.undo_last_pass(connection, person, task, pass_name)
        assert reopening.submit_pass_amendment(connection, project, person, request, entries, f"undo {name}").receipt


@pytest.mark.parametrize("taken", [False, True])
def test_an_undone_pass_counts_as_first_submitted(tmp_path, taken):
    project = make_project(tmp_path / "study", questions=1, annotators=("ann", "bob"), share_questions=True)
    for name in ("ann", "bob"):
        work_off(project, who(project, name), correct="no" if name == "bob" else "yes")
    assert len(subjects(project)) == 2
    if taken:
        eve = who(project, "eve")
        while len([one for one in responses(project) if one.adjudication]) < 2:
            submit(project, eve, next_sheet(project, eve))
    undo(project, "bob", ({"correct": "yes", "complete": "yes"},))
    found = responses(project)
    assert Counter(judgment.correct for one in found for judgment in one.first_judgments) == {True: 3, False: 1}
    assert not any(row.amended for one in found for row in one.annotations)
    if taken:
        # Both were adjudicated before, and that holds; the one that was undone has no other trigger.
        assert [one.final.origin for one in found] == ["adjudicated", "adjudicated"]
        assert sorted(one.triggers[0] for one in found) == ["amendment", "correctness"]
    else:
        assert sorted(one.open_reason or one.final.origin for one in found) == ["agreed", "waits for adjudication"]
        assert len(subjects(project)) == 1
    with project.reading() as connection:
        assert audit_log.check_audit_log(connection, project.head).problems == ()
        (queue,) = dashboard.read_dashboard_queues(connection)
    counts = build_agreement_report(annotations_of(project), resamples=100).responses.adjudication
    assert (counts.adjudicated, counts.waiting) == (queue.adjudicated, queue.in_adjudication)
    project.close()


def annotations_of(project):
    with project.reading() as connection:
        return read_annotations(connection)


def recount(path):
    """Work the figures of a report out again, from the lines of annotations.jsonl alone."""
    lines = defaultdict(list)
    for line in map(json.loads, path.read_text().splitlines()):
        lines[line["response_id"]].append(line)
    found = Counter()
    for rows in lines.values():
        first = [row["judgment"] for row in rows if not row.get("adjudicates")]
        labels = [
            [*((step["substantive"], step.get("sound"), step.get("failure")) for step in judgment["steps"])]
            + [judgment.get(name) for name in ("aligned", "closed", "complete", "correct")]
            for judgment in first
        ]
        differ = any(other != labels[0] for other in labels[1:])
        amended = any(row.get("amended") for row in rows if not row.get("adjudicates"))
        found["differ"] += differ
        found["amended only"] += amended and not differ
        found["closure"] += len({judgment["closed"] for judgment in first}) > 1
        found["closure agrees"] += len({judgment["closed"] for judgment in first}) == 1
        found["adjudicated"] += any(row.get("adjudicates") for row in rows)
    return found


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
    # One of the adjudicated and one of the agreed are amended: the first changes no figure, the second adds a case.
    found = responses(project)
    with project.reading() as connection:
        numbers = {
            json.loads(key): f"response {id_}"
            for id_, key in connection.execute(text("SELECT id, key FROM annotate_responses"))
        }
    adjudicated = next(one for one in found if one.final and one.final.origin == "adjudicated")
    agreed = next(one for one in found if one.final and one.final.origin == "agreed")
    amend(project, "ann", "C", ({"closed": "yes"},), subject=numbers[adjudicated.response_id])
    amend(project, "bob", "B", ({"aligned": "no"},), subject=numbers[agreed.response_id])
    with project.reading() as connection:
        report = agreement_to_json(build_agreement_report(read_annotations(connection), resamples=100))
        (queue,) = dashboard.read_dashboard_queues(connection)
    project.close()
    export_project(tmp_path / "study", tmp_path / "out")
    counts, counted = report["responses"]["adjudication"], recount(tmp_path / "out" / "annotations.jsonl")
    assert counts["disagreements"] == counted["differ"] == 4
    assert counts["amended_only"] == counted["amended only"] == 1
    assert counts["to_adjudicate"] == 5
    assert counts["triggers"] == {"closure": counted["closure"], "amendment": 2}
    assert counts["adjudicated"] == counted["adjudicated"] == queue.adjudicated == 3
    assert counts["waiting"] == queue.in_adjudication == 2
    (closure,) = [row for row in report["responses"]["agreement"] if row["judgment"].startswith("Closure")]
    assert closure["raw"]["value"] == counted["closure agrees"] / 8
    labels = [json.loads(line) for line in (tmp_path / "out" / "labels.jsonl").read_text().splitlines()]
    assert Counter(label["origin"] for label in labels) == {"adjudicated": 3, "agreed": 3}
    assert queue.settled == len(labels) == 6
    # The export read again gives the same report.
    again = agreement_to_json(build_agreement_report(load_annotations(tmp_path / "out"), resamples=100))
    assert again["responses"] == report["responses"]
