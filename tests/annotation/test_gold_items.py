"""Gold items: in the queue of every annotator, unmarked, and in no result but their own."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from sqlalchemy import text
from tests.annotation.projects import material, next_sheet, submit, who, work_off
from typer.testing import CliRunner

from eclose.annotation import audit_log
from eclose.annotation.accounts import people
from eclose.annotation.assignment.choices import ScreeningMode
from eclose.annotation.dashboard import read_dashboard_queues
from eclose.annotation.project import AnnotationProjectSettings, create_annotation_project, open_annotation_project
from eclose.annotation.queues import count_eligibility, find_flagged_responses
from eclose.annotation.read_annotations import read_annotations
from eclose.annotation.results.agreement_pairs import LabelMatch, measure_gold_agreement, measure_pair_agreement
from eclose.annotation.results.export_project import export_project
from eclose.annotation.setup import AnnotationCrew, add_gold_items, add_project_material, invite_and_assign_crew
from eclose.annotation.staffing import add_people, reassign_tasks
from eclose.cli.main import app
from eclose.core.judgment import Criterion, Judgment, StepJudgment
from eclose.errors import UserError
from eclose.store.records.jsonl import write_records

NAMES = ("ann", "bob", "cyd", "dan")


def gold_judgment(response_id, **labels):
    steps = (StepJudgment(substantive=True, sound=True),)
    values = {"aligned": True, "closed": True, "complete": True, "correct": True} | labels
    return Judgment(response_id, "expert", steps, **values)


def write_gold(folder, judgments, instances=(), responses=()):
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / "judgments.jsonl", judgments)
    if responses:
        write_records(folder / "instances.jsonl", instances)
        write_records(folder / "responses.jsonl", responses)
    return folder / "judgments.jsonl"


def gold_material(count=2):
    """Return gold questions, one response to each, and its labels; C is no in the first."""
    study = {instance.id for instance in material(3)[0]}
    instances, responses = material(9)
    instances = [instance for instance in instances if instance.id not in study][:count]
    ids = {instance.id for instance in instances}
    first = {response.instance_id: response for response in reversed(responses) if response.instance_id in ids}
    chosen = [replace(response, id=f"gold-{number}") for number, response in enumerate(first.values())]
    judgments = [gold_judgment(row.id, closed=number > 0) for number, row in enumerate(chosen)]
    return instances, chosen, judgments


@pytest.fixture
def project(tmp_path):
    return make_gold_project(tmp_path)


def make_gold_project(tmp_path, *, screeners=(), per_response=2, **settings):
    """Make a study of 3 questions with 2 responses each, and 2 gold items of other questions."""
    instances, responses = material(3)
    gold_instances, gold_responses, judgments = gold_material()
    path = write_gold(tmp_path / "gold", judgments, gold_instances, gold_responses)
    project = create_annotation_project(tmp_path / "study", AnnotationProjectSettings("study", **settings))
    crew = AnnotationCrew(NAMES, ("eve",), screeners, ("sol",) if screeners else (), ("lead",), per_response)
    with project.writing() as connection:
        add_project_material(connection, instances, responses)
        assert add_gold_items(connection, path) == 2
        invite_and_assign_crew(connection, project.settings, crew)
    return project


def gold_tasks(project):
    query = text(
        "SELECT p.name, t.place, t.withdrawn FROM annotate_tasks t JOIN annotate_people p ON p.id = t.person"
        " JOIN annotate_gold g ON g.response = t.response ORDER BY p.name, t.place"
    )
    with project.reading() as connection:
        return connection.execute(query).all()


def annotations_of(project, **options):
    with project.reading() as connection:
        return read_annotations(connection, **options)


def test_every_annotator_gets_all_gold_items_mixed_into_the_queue(project):
    rows = gold_tasks(project)
    assert [row.name for row in rows] == [name for name in NAMES for _ in range(2)]
    # 3 tasks of the study each. The places differ from person to person, and are not all at one end.
    places = {name: tuple(row.place for row in rows if row.name == name) for name in NAMES}
    assert len(set(places.values())) > 1
    assert {place for pair in places.values() for place in pair} - {1, 2} - {4, 5}
    with project.reading() as connection:
        totals = connection.execute(text("SELECT count(*) FROM annotate_tasks GROUP BY person")).scalars().all()
    assert totals == [5, 5, 5, 5]


def test_gold_items_are_in_no_result_but_their_own(project, tmp_path):
    for name in NAMES:
        work_off(project, who(project, name), closed="no" if name == "ann" else "yes")
    annotations = annotations_of(project, names=True)
    assert len(annotations.responses) == 6
    assert all(not response.response_id.startswith("gold") for response in annotations.responses)
    assert all(not str(time.response_id).startswith("gold") for time in annotations.times)
    assert sum(pair.subjects for pair in measure_pair_agreement(annotations)) == 6
    with project.reading() as connection:
        (queue,) = read_dashboard_queues(connection)
        disputed = connection.execute(text("SELECT response FROM annotate_adjudications")).scalars().all()
        gold = connection.execute(text("SELECT response FROM annotate_gold")).scalars().all()
    assert (queue.total, queue.finished) == (6, 6)
    # ann differs from the others in every gold item, which no adjudicator gets.
    assert len(disputed) == 3
    assert not set(disputed) & set(gold)
    project.close()
    export_project(project.folder, tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert "gold-" not in path.read_text(), path.name


def test_results_are_shares_of_gold_labels_by_person_and_criterion(project, tmp_path):
    work_off(project, who(project, "ann"), closed="no")
    work_off(project, who(project, "bob"), closed="yes", correct="no")
    results = {row.people[0]: row for row in measure_gold_agreement(annotations_of(project, names=True).gold)}
    assert list(results) == list(NAMES)
    # C is no in one of two gold items.
    assert results["ann"].labels["C"] == LabelMatch(1, 2)
    assert results["ann"].labels["Acc"] == LabelMatch(2, 2)
    assert results["bob"].labels["Acc"] == LabelMatch(0, 2)
    assert (results["cyd"].subjects, results["cyd"].labels) == (0, {})
    project.close()
    export_project(project.folder, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out/gold.jsonl").read_text().splitlines()]
    assert len(lines) == len(NAMES) * len(Criterion)
    by_key = {(line["annotator"], line["criterion"]): line for line in lines}
    assert by_key["A1", "C"] == {
        "annotator": "A1",
        "criterion": "C",
        "items": 2,
        "compared": 2,
        "met": 1,
        "share": 0.5,
    }
    # Not finished: undefined, not zero.
    assert by_key["A3", "C"]["share"] is None


def test_a_project_without_gold_items_has_no_gold_file(tmp_path):
    instances, responses = material(1)
    project = create_annotation_project(tmp_path / "study", AnnotationProjectSettings("study"))
    with project.writing() as connection:
        add_project_material(connection, instances, responses)
        invite_and_assign_crew(connection, project.settings, AnnotationCrew(NAMES, leads=("lead",)))
    project.close()
    export_project(project.folder, tmp_path / "out")
    assert not (tmp_path / "out/gold.jsonl").exists()


def test_inconsistent_labels_of_a_single_annotator_reach_no_one_for_gold_items(tmp_path):
    project = make_gold_project(tmp_path, per_response=1)
    for name in NAMES:
        work_off(project, who(project, name), correct="no")
    with project.reading() as connection:
        connection.execute(text("DELETE FROM annotate_adjudications"))
        flagged = find_flagged_responses(connection)
        gold = set(connection.execute(text("SELECT response FROM annotate_gold")).scalars())
    assert len(flagged) == 6
    assert not {task.response for task in flagged} & gold


def test_gold_questions_are_screened_like_others_and_counted_nowhere(tmp_path):
    project = make_gold_project(tmp_path, screeners=("sue", "sam"), screening=ScreeningMode.REQUIRED)
    # Before screening, nothing is open, gold items neither: they would be known by it.
    assert next_sheet(project, who(project, "ann")) is None
    for name in ("sue", "sam"):
        assert work_off(project, who(project, name)) == 5
    with project.reading() as connection:
        assert count_eligibility(connection) == {"eligible": 3}
        assert {queue.kind: queue.total for queue in read_dashboard_queues(connection)} == {
            "response": 6,
            "screening": 3,
        }
    assert len(annotations_of(project).questions) == 3
    assert work_off(project, who(project, "ann")) == 5 * 4


def test_a_leaver_keeps_no_gold_item_and_a_newcomer_gets_all(project):
    bob = who(project, "bob")
    assert submit(project, bob, next_sheet(project, bob)).receipt
    with project.writing() as connection:
        people.deactivate_person(connection, bob.id)
        rows = {audit_log.AuditedKind.PEOPLE: [bob.id]}
        audit_log.append_audit_event(connection, "lead", "deactivate", rows=rows)
    add_people(project, ["hal"], "annotator", actor="lead")
    assert [row.name for row in gold_tasks(project)].count("hal") == 2
    reassign_tasks(project, "bob", to=["hal"], actor="lead", reason="left")
    rows = gold_tasks(project)
    assert all(row.withdrawn is not None for row in rows if row.name == "bob")
    assert [row.withdrawn for row in rows if row.name == "hal"] == [None, None]
    assert work_off(project, who(project, "hal")) == 4 * (3 + 2)
    with project.reading() as connection:
        report = audit_log.check_audit_log(connection, project.head, asdict(project.settings))
    assert report.problems == ()
    assert report.records[audit_log.AuditedKind.GOLD] == 2


def test_changed_gold_labels_are_found_by_the_audit(project):
    with project.writing() as connection:
        connection.execute(text("UPDATE annotate_gold SET labels = '{}'"))
    with project.reading() as connection:
        problems = audit_log.check_audit_log(connection, project.head).problems
    assert any("gold labels differ" in problem for problem in problems)


@pytest.mark.parametrize(
    ("judgments", "message"),
    [
        ([], "holds no judgment"),
        ([gold_judgment("unknown")], "'unknown' is not among the responses"),
        ([gold_judgment("gold-0")] * 2, "'gold-0' has two lines"),
        (
            [Judgment("gold-0", "expert", (), unjudged=dict.fromkeys(Criterion, "not judged"))],
            "'gold-0' has no label",
        ),
    ],
)
def test_unusable_gold_is_refused(tmp_path, judgments, message):
    instances, responses, _ = gold_material()
    path = write_gold(tmp_path / "gold", judgments, instances, responses)
    project = create_annotation_project(tmp_path / "study", AnnotationProjectSettings("study"))
    with pytest.raises(UserError, match=message), project.writing() as connection:
        add_gold_items(connection, path)


def test_a_gold_item_of_a_question_with_other_responses_needs_shared_questions(tmp_path):
    instances, responses = material(4)
    path = write_gold(tmp_path / "gold", [gold_judgment(responses[0].id)])
    for share in (False, True):
        settings = AnnotationProjectSettings("study", share_questions=share)
        project = create_annotation_project(tmp_path / f"study-{share}", settings)
        with project.writing() as connection:
            add_project_material(connection, instances, responses)
            assert add_gold_items(connection, path) == 1
            crew = AnnotationCrew(NAMES, leads=("lead",))
            if share:
                invite_and_assign_crew(connection, settings, crew)
            else:
                with pytest.raises(UserError, match="--share-questions"):
                    invite_and_assign_crew(connection, settings, crew)
    assert len(gold_tasks(project)) == len(NAMES)


def test_init_takes_a_gold_file(tmp_path):
    instances, responses = material(3)
    write_gold(tmp_path / "run", [], instances, responses)
    gold_instances, gold_responses, judgments = gold_material()
    path = write_gold(tmp_path / "gold", judgments, gold_instances, gold_responses)
    command = ["annotate", "init", str(tmp_path / "study"), str(tmp_path / "run"), "--gold", str(path)]
    result = CliRunner().invoke(app, [*command, "--annotators", ",".join(NAMES)])
    assert result.exit_code == 0, result.output
    assert "3 questions, 6 responses; 2 gold items for every annotator" in result.output
    assert "response: 12 tasks, 3 for each of 4" in result.output
    assert len(gold_tasks(open_annotation_project(tmp_path / "study"))) == 8
