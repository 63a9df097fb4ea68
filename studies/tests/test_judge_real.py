"""Tests of the labels and edits of ``studies/campaigns/judge_real.py``: consistent, and fitting their traces."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from eclose.errors import RecordError
from eclose.files import jsonl
from eclose.files.manifest import Manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.judging.settings import JudgeSettings
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Judgment, LocalFailure, StepJudgment
from eclose.values.response import Response, Trace
from eclose.values.verdict import TraceGroup, Verdict
from studies.campaigns.real_labels import ircot, labelled_response
from studies.campaigns.real_labels.edits import CLASSES, EDITS, Change, Edit, Insertion, broken_set, read_edits
from studies.campaigns.real_labels.report import HUMAN, ROSCOE, JudgedSet, Table, report
from studies.campaigns.real_labels.roscoe import roscoe_set
from tests.tables import each_row

ALL = read_edits()

RESPONSE = Response("r", "q", Trace.of("Ana directed it.", "Ana was born in Arica.", "So it is Arica."), "Arica")
EDIT = Edit("e", "L1", "q", dict.fromkeys(labelled_response.LETTERS, True), "why")


def test_there_are_sixty_edits_about_as_many_of_each_class():
    assert len({edit.id for edit in ALL}) == 60
    counts = Counter(edit.broken for edit in ALL)
    assert counts.keys() == set(CLASSES)
    assert set(counts.values()) <= {8, 9}


@each_row(ALL)
def test_the_labels_of_an_edit_are_those_of_its_class(edit):
    verdict = edit.verdict
    local = edit.broken in set(LocalFailure)
    assert verdict.trace_group is (TraceGroup.LOCALLY_UNSOUND if local else TraceGroup.GAP)
    assert verdict.failure_class == (None if local else edit.broken)
    assert not verdict.inconsistent
    assert edit.reason.endswith(".")
    # Where the trace leads to the reference and the answer is what the trace leads to, the answer is right.
    if verdict.closed and verdict.aligned:
        assert verdict.complete == verdict.correct


@each_row(ALL)
def test_an_edit_changes_something_and_never_the_same_place_twice(edit):
    assert edit.changes or edit.dropped or edit.inserted or edit.answer
    assert (edit.answer is None) <= edit.verdict.correct
    touched = [change.step for change in edit.changes] + list(edit.dropped)
    assert len(touched) == len(set(touched))
    assert len(edit.inserted) == len({insertion.after for insertion in edit.inserted})
    assert all(change.old != change.new for change in edit.changes)


def test_no_two_edits_make_the_same_of_a_trace():
    cases = [(edit.question_id, edit.changes, edit.dropped, edit.inserted, edit.answer) for edit in ALL]
    assert len(set(cases)) == len(cases)
    assert max(Counter(edit.question_id for edit in ALL).values()) <= 2


def test_notes_on_human_traces_give_a_reason_for_every_label_and_every_omission():
    notes = ircot.read_notes()
    left_out = [note for note in notes.values() if "left_out" in note]
    relabelled = [note for note in notes.values() if "labels" in note]
    assert (len(notes), len(left_out), len(relabelled)) == (23, 9, 14)
    assert all(note["left_out"] for note in left_out)
    for note in relabelled:
        assert labelled_response.verdict_of(note["labels"]).trace_group is TraceGroup.LOCALLY_UNSOUND
        assert note["reason"].startswith("Step")
    assert not notes.keys() & {edit.question_id for edit in ALL}


def test_an_edit_is_applied_where_it_says():
    edit = replace(
        EDIT,
        changes=(Change(1, "Ana", "Eva"),),
        dropped=(3,),
        inserted=(Insertion(2, "Arica is in Chile."),),
        answer="Chile",
    )
    broken = edit.apply(RESPONSE)
    assert broken.trace.texts == ("Eva directed it.", "Ana was born in Arica.", "Arica is in Chile.")
    assert (broken.id, broken.instance_id, broken.answer) == ("broken-e", "q", "Chile")
    assert replace(EDIT, dropped=(1,)).apply(RESPONSE).answer == "Arica"


@pytest.mark.parametrize(
    "misfit",
    [
        replace(EDIT, changes=(Change(1, "Tom", "Eva"),)),
        replace(EDIT, changes=(Change(2, "a", "o"),)),
        replace(EDIT, changes=(Change(4, "Ana", "Eva"),)),
        replace(EDIT, changes=(Change(2, "Ana", "Eva"),), dropped=(4,)),
        replace(EDIT, dropped=(2, 2)),
        replace(EDIT, inserted=(Insertion(9, "x"),)),
        replace(EDIT, answer="Arica"),
    ],
    ids=[
        "other words",
        "words found twice",
        "no such step",
        "nothing to drop",
        "dropped twice",
        "nowhere",
        "same answer",
    ],
)
def test_an_edit_that_does_not_fit_is_refused(misfit):
    with pytest.raises(RecordError, match="edit e: does not fit"):
        misfit.apply(RESPONSE)


def test_an_edit_with_a_field_too_many_or_a_label_too_few_is_refused(tmp_path):
    record = json.loads(EDITS.read_text("utf-8").splitlines()[0])
    path = tmp_path / "edits.jsonl"
    path.write_text(json.dumps(record | {"colour": "red"}))
    with pytest.raises(RecordError, match="colour"):
        read_edits(path)
    with pytest.raises(ValueError, match="not L, A, C, K, Acc"):
        labelled_response.verdict_of({"L": True})


def case(number, group):
    instance = Instance(f"q{number}", "?", (Passage("p", "t", "x"),), "a", benchmark="b")
    response = Response(f"r{number}", instance.id, Trace.of("s"), "a")
    return labelled_response.LabelledResponse(instance, response, Verdict(correct=True), group)


def test_fewer_are_part_of_more_and_groups_take_turns():
    cases = [case(number, "many" if number < 20 else "few") for number in range(23)]
    chosen = labelled_response.choose(cases, 8)
    assert Counter(case.group for case in chosen) == {"many": 5, "few": 3}
    assert labelled_response.choose(reversed(cases), 4) == chosen[:4]
    assert len(labelled_response.choose(cases, 99)) == 23


def test_sets_are_written_as_a_run(tmp_path):
    labelled_response.write(tmp_path, [case(1, "x"), case(2, "x")])
    assert [case.id for case in jsonl.read_records(tmp_path / "instances.jsonl", Instance)] == ["q1", "q2"]
    assert [case.id for case in jsonl.read_records(tmp_path / "responses.jsonl", Response)] == ["r1", "r2"]
    assert (tmp_path / "verdicts.jsonl").read_text("utf-8").count("\n") == 2


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (Table(10, 0, 0, 10), "better than chance"),
        (Table(0, 10, 10, 0), "worse than chance"),
        (Table(5, 5, 5, 5), "not told from chance"),
        (Table(10, 0, 10, 0), "not told from chance"),  # finds fault with everything
        (Table(1, 0, 0, 1), "not told from chance"),  # right both times: two are too few
        (Table(5, 5, 0, 0), "nothing to tell apart"),
        (Table(0, 0, 0, 0), "unjudged"),
    ],
)
def test_whether_a_judge_is_better_than_chance_is_said_in_words(table, words):
    assert table.words == words


def test_chance_is_fishers_exact_test():
    stats = pytest.importorskip("scipy.stats")
    for table in (Table(7, 2, 3, 8), Table(3, 0, 1, 4), Table(0, 4, 2, 5)):
        cells = [[table.caught, table.missed], [table.false_alarms, table.passed]]
        assert table.chance == pytest.approx(stats.fisher_exact(cells, alternative="greater").pvalue)
    assert Table.of([True, False, False], [False, False, True]) == Table(1, 1, 1, 0)


def judged_set(tmp_path, name, judge, *, received=None):
    """Make forty responses, every other one wrong in all ways, and a judge's judgment of each."""
    flawed = Verdict(*[False] * 5)
    chosen = [
        replace(
            case(number, "x"), verdict=flawed if number % 2 else ircot.RELIABLE, group="flawed" if number % 2 else "ok"
        )
        for number in range(40)
    ]
    judgments = [judge(case, number) for number, case in enumerate(chosen)]
    counts = RecordCounts(received or len(chosen), len(judgments))
    manifest = Manifest("judge", JudgeSettings().identity, {}, {}, counts)
    return JudgedSet(name, tmp_path, chosen, judgments, manifest)


def judgment(case, label):
    return Judgment(case.response.id, "j", (StepJudgment(True, label),), label, label, label, label)


@pytest.mark.slow
def test_an_exact_judge_is_called_better_and_its_verdicts_dealt_out_are_not(tmp_path, capsys):
    figure = report([judged_set(tmp_path, HUMAN, lambda case, _: judgment(case, case.verdict.correct))])
    output = capsys.readouterr().out
    assert output.count("better than chance\n") == 2 * 7  # all labels but LGG, where none is; pooled and on its own
    assert figure["value"] == 1.0
    assert figure["holds"] is True
    called, tried = map(int, output.split("called better than chance: ")[1].splitlines()[0].split(" of "))
    assert tried == 5 * 400
    assert 0 < called <= 0.05 * tried


@pytest.mark.slow
def test_a_judge_that_knows_nothing_is_said_to_be_at_chance(tmp_path, capsys):
    figure = report([judged_set(tmp_path, HUMAN, lambda case, number: judgment(case, number % 4 < 2))])
    output = capsys.readouterr().out
    assert "better than chance\n" not in output
    assert output.count("not told from chance") >= 2 * 5
    assert figure["value"] == 0.5
    assert figure["holds"] is True


@pytest.mark.slow
def test_what_was_not_judged_is_told_with_its_reason_and_without_one_nothing_holds(tmp_path, capsys):
    unjudged = dict.fromkeys(Criterion, "length")
    silent = judged_set(tmp_path, ROSCOE, lambda case, _: Judgment(case.response.id, "j", (), unjudged=unjudged))
    assert report([silent])["holds"] is True
    assert capsys.readouterr().out.count("40 of 40") == 5
    lost = judged_set(tmp_path, ROSCOE, lambda case, _: Judgment(case.response.id, "j", ()))
    assert report([lost])["holds"] is False
    missing = judged_set(tmp_path, ROSCOE, lambda case, _: judgment(case, True), received=41)
    assert report([missing])["holds"] is False
    nobody = replace(silent, judgments=[])
    assert report([nobody])["holds"] is False


def test_human_traces_are_labelled_as_noted(shared_data):
    traces, cases = ircot.read_traces(shared_data), ircot.human_set(shared_data)
    assert len(traces) == 69
    assert len({case.response.id for case in cases}) == 60
    assert ircot.read_notes().keys() <= traces.keys()
    groups = Counter(case.verdict.trace_group for case in cases)
    assert groups == {TraceGroup.RELIABLE: 46, TraceGroup.LOCALLY_UNSOUND: 14}
    for case in cases:
        assert case.response.answer == case.instance.reference_answer
        assert not any("answer is" in text for text in case.response.trace.texts)


def test_every_edit_fits_its_trace(shared_data):
    traces, cases = ircot.read_traces(shared_data), broken_set(shared_data)
    assert len(cases) == 60
    for case in cases:
        _, before = traces[case.instance.id]
        assert (case.response.trace, case.response.answer) != (before.trace, before.answer)
        assert case.response.trace.steps
        # An answer that was left alone is the reference, and one that was not is not.
        assert case.verdict.correct is (case.response.answer == case.instance.reference_answer)


def test_labels_of_roscoe_are_taken_over_only_where_they_mean_the_same(shared_data):
    cases = roscoe_set(shared_data)
    assert {case.instance.benchmark for case in cases} == {"ROSCOE DROP", "ROSCOE GSM8K"}
    chosen = labelled_response.choose(cases, 60)
    assert len(chosen) == 60
    for case in cases:
        assert case.verdict.aligned is None
        assert case.verdict.closed is None
        assert case.verdict.locally_sound is not None
        assert case.verdict.complete is not True or case.verdict.correct
        assert case.response.trace.steps
