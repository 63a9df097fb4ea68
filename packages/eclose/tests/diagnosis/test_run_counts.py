"""Labels are read from files with the numbers, caveats and errors of whole records; large runs show a sample."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

import eclose
from eclose.diagnosis import run_counts
from eclose.diagnosis.diagnose import diagnose_labels
from eclose.diagnosis.label_table import LabelTable
from eclose.diagnosis.run_counts import RunCounts, count_runs
from eclose.errors import RecordError, UserError
from eclose.files.jsonl import encode_json_line, write_records
from eclose.readers.judged_run import read_judged_cases
from eclose.report.comparison import describe_run_comparison, tabulate_run_comparison
from eclose.values.verdict import Verdict
from tests.diagnosis.damaged_runs import write_manifests, write_random_run
from tests.diagnosis.judged_responses import random_cases, world_cases

FAILS, HOLDS = Verdict(False, True, True), Verdict(True, True, True)


def write_run(folder, cases, *, judged=None, extra_lines=b"", questions=None):
    """Write the files of a run without a manifest; judgments in another order than responses."""
    folder.mkdir(parents=True)
    instances = {case.instance.id: case.instance for case in cases}
    write_records(folder / "instances.jsonl", list(instances.values())[:questions])
    write_records(folder / "responses.jsonl", [case.response for case in cases])
    with (folder / "responses.jsonl").open("ab") as file:
        file.write(extra_lines)
    judgments = [case.judgment for case in (cases if judged is None else judged)]
    write_records(folder / "judgments.jsonl", judgments[::-1])
    return folder


def unique_questions(cases):
    """Give every question an id of its own: one file holds one question under an id."""
    renamed = []
    for case in cases:
        instance = replace(case.instance, id=f"{case.instance.benchmark}-{case.instance.id}")
        response = replace(case.response, instance_id=instance.id)
        renamed.append(replace(case, instance=instance, response=response))
    return renamed


@pytest.fixture(scope="module")
def dirty_run(tmp_path_factory):
    """A run with unreadable, repeated, unjudged and missing records."""
    cases = unique_questions(random_cases(5, count=120, questions=40))
    lines = b'not JSON\n{"id": "r999"}\n\n' + encode_json_line(cases[0].response) + b"\n"
    judged = [*cases[:100], replace(cases[0], judgment=replace(cases[0].judgment, response_id="gone"))]
    return write_run(tmp_path_factory.mktemp("dirty") / "run", cases, judged=judged, extra_lines=lines, questions=-2)


def contents(labels):
    """Return everything in a table but where its records are."""
    renumbered = {"positions", "models", "judges", "readings", "reasons"}
    names = [field.name for field in fields(labels) if field.name not in renumbered]
    values = {name: getattr(labels, name) for name in names}
    values = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
    # Names of responses that are not used may be listed, too, and in another order.
    values["model"] = [None if code < 0 else labels.models[code] for code in labels.model]
    values["judge"] = [labels.judges[code] for code in labels.judge]
    values["reading"] = [None if code < 0 else labels.readings[code] for code in labels.reading]
    values["unjudged"] = sorted((row, labels.reasons[code]) for row, code in labels.unjudged.tolist())
    for name in ("step_failures", "votes"):
        values[name] = sorted(values[name])
    return values


def attempt(read, *arguments, **options):
    try:
        return read(*arguments, **options)
    except UserError as error:
        return str(error)


def test_the_files_hold_what_their_records_hold(dirty_run):
    in_memory, counted = read_judged_cases(dirty_run), count_runs([dirty_run])
    assert contents(counted.labels) == contents(LabelTable.of(in_memory.cases))
    assert counted.case_set == in_memory
    reasons = {reason for _, reason in in_memory.left_out}
    assert {"its question is missing", "it was not judged", "it was judged, but is missing"} < reasons
    assert in_memory.rejected["responses.jsonl"] == {"not JSON": 1, "wrong record": 1, "duplicate": 1}


@pytest.mark.parametrize("seed", range(100))
def test_runs_of_any_kind_are_read_as_their_whole_records(tmp_path, monkeypatch, seed):
    """Labels of files that are vouched for and of others are those of records that are checked in full."""
    run = write_random_run(tmp_path / "run", seed)
    result = attempt(count_runs, [run], allow_stale=True)
    monkeypatch.setattr("eclose.readers.judged_run.list_vouched_files", lambda *_: frozenset())
    expected = attempt(read_judged_cases, run, allow_stale=True)
    if isinstance(expected, str):
        assert result == expected
        return
    assert contents(result.labels) == contents(LabelTable.of(expected.cases))
    assert result.case_set == expected
    assert list(result.case_set.rejected.items()) == list(expected.rejected.items())


@pytest.mark.parametrize("world", ["short-easy", "2wiki"])
def test_worlds_are_counted_alike(tmp_path, world):
    cases = world_cases(world, items=3)
    counted = count_runs([write_run(tmp_path / "run", cases)])
    assert contents(counted.labels) == contents(LabelTable.of(cases))
    assert counted.case_set.cases == tuple(cases)


def test_labels_without_texts_have_the_same_verdicts(dirty_run, monkeypatch):
    in_memory, everything = read_judged_cases(dirty_run), count_runs([dirty_run])
    assert everything.list_verdicts() == [case.row for case in in_memory.cases]
    monkeypatch.setattr(run_counts, "LARGE_RUN", 20)
    monkeypatch.setattr(run_counts, "SAMPLE_SIZE", 9)
    counted = count_runs([dirty_run])
    assert len(counted.case_set.cases) == 9
    assert counted.list_verdicts() == [replace(case.row, source=None) for case in in_memory.cases]
    assert counted.judges == list(dict.fromkeys(case.judgment.judge for case in in_memory.cases))


def test_two_responses_under_one_id_are_refused_as_in_memory(tmp_path):
    cases = unique_questions(random_cases(5, count=20))
    other = encode_json_line(replace(cases[0].response, answer="another")) + b"\n"
    run = write_run(tmp_path / "run", cases, extra_lines=other)
    with pytest.raises(RecordError) as in_memory:
        read_judged_cases(run)
    with pytest.raises(RecordError) as streamed:
        count_runs([run])
    assert str(streamed.value) == str(in_memory.value)


def test_a_file_without_a_readable_record_is_refused_as_in_memory(tmp_path):
    run = write_run(tmp_path / "run", unique_questions(random_cases(5, count=5)))
    (run / "judgments.jsonl").write_text("{}\n")
    with pytest.raises(RecordError) as in_memory:
        read_judged_cases(run)
    with pytest.raises(RecordError) as streamed:
        count_runs([run])
    assert str(streamed.value) == str(in_memory.value)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    cases = unique_questions(random_cases(1, count=400, questions=24))
    # One dataset and two models: every further group costs a dozen intervals.
    cases = [case for case in cases if case.instance.benchmark == "HotpotQA" and case.response.source is not None]
    two_models = [case for case in cases if case.response.source.model != "m"]
    run = write_run(folder / "run", two_models)
    changed = [
        replace(case, judgment=replace(case.judgment, closed=number % 3 > 0)) for number, case in enumerate(two_models)
    ]
    return run, write_run(folder / "base", changed[10:])


@pytest.fixture
def as_large(monkeypatch):
    def lower():
        monkeypatch.setattr(run_counts, "LARGE_RUN", 20)
        monkeypatch.setattr(run_counts, "SAMPLE_SIZE", 30)

    return lower


class TestLargeRuns:
    """Commands on a run that counts as large, against the same run in memory."""

    @pytest.mark.slow
    def test_diagnose_gives_the_same_numbers(self, runs, as_large):
        run, base = runs
        in_memory = eclose.diagnose(run), eclose.diagnose(run, against=base, resamples=200)
        as_large()
        large = eclose.diagnose(run), eclose.diagnose(run, against=base, resamples=200)
        for first, second in zip(in_memory, large, strict=True):
            assert second.diagnosis == first.diagnosis
            assert second.rates == first.rates
            assert second.notices == first.notices
            assert len(second) == len(first)
        assert (len(large[0]), len(large[0].cases)) == (len(in_memory[0]), 30)
        assert large[0].context.systems[2].groups == in_memory[0].context.systems[2].groups
        assert large[1].context.base.comparison.groups == in_memory[1].context.base.comparison.groups
        assert large[1].context.base.cautions[:-1] == in_memory[1].context.base.cautions

    @pytest.mark.slow
    def test_pairs_of_responses_are_counted(self, runs, as_large):
        run, base = runs
        in_memory = eclose.compare(run, base, resamples=100)
        as_large()
        results = eclose.diagnose(run, against=base, resamples=100)
        large = results.context.base
        assert large.comparison.paired == len(in_memory.comparison.pairs) > 0
        assert list(large.comparison.transitions.items()) == list(in_memory.comparison.transitions.items())
        assert large.comparison.run_alone == in_memory.comparison.run_alone
        assert large.comparison.base_alone == in_memory.comparison.base_alone
        # The page shows what each listed response was before.
        assert large.before(results.cases) == in_memory.before(results.cases)
        assert "none" in set(large.before(results.cases).values())
        assert tabulate_run_comparison(large) == tabulate_run_comparison(in_memory)
        assert describe_run_comparison(large) == describe_run_comparison(in_memory)

    @pytest.mark.slow
    def test_gate_gives_the_same_checks(self, runs, as_large):
        run, base = runs
        limits = {"min_trr": 0.3, "max_unjudged": 0.5, "against": base, "max_trr_drop": 0.2}
        in_memory = eclose.gate(run, **limits)
        as_large()
        large = eclose.gate(run, **limits)
        assert [str(check) for check in large.checks] == [str(check) for check in in_memory.checks]
        assert (large.report, large.base, large.notices) == (in_memory.report, in_memory.base, in_memory.notices)
        assert len(large.cases) == 30

    @pytest.mark.slow
    def test_another_question_under_the_same_id_is_refused(self, runs, as_large, tmp_path):
        run, _ = runs
        cases = read_judged_cases(run).cases
        other = [replace(case, instance=replace(case.instance, question="Another?")) for case in cases]
        base = write_run(tmp_path / "base", other)
        as_large()
        with pytest.raises(UserError, match="only where the same id is the same question"):
            eclose.gate(run, against=base, max_trr_drop=0.1)

    def test_files_in_another_format_are_sampled_alike(self, tmp_path, as_large):
        cases = unique_questions(random_cases(5, count=60))
        run = write_run(tmp_path / "run", cases)
        as_large()
        expected = count_runs([run]).case_set
        rows = [json.loads(line) for line in (run / "responses.jsonl").read_text().splitlines()]
        (run / "responses.jsonl").write_text(json.dumps(rows))
        assert count_runs([run]).case_set == expected
        assert len(expected.cases) == 30


def test_a_judgment_against_the_rules_is_refused_though_its_file_is_vouched_for(tmp_path):
    run = write_random_run(tmp_path / "run", 5, faults=0)
    lines = (run / "judgments.jsonl").read_text().splitlines()
    broken = json.loads(lines[0]) | {"steps": [{"substantive": False, "sound": True}]}
    (run / "judgments.jsonl").write_text("\n".join([json.dumps(broken), *lines[1:]]))
    write_manifests(run)
    counted = count_runs([run])
    assert counted.caveats.rejected["judgments.jsonl"] == {"wrong record": 1}
    assert (broken["response_id"], "it was not judged") in counted.caveats.left_out


@pytest.mark.slow
def test_a_gate_reads_texts_only_when_they_are_asked_for(runs, monkeypatch):
    run, _ = runs
    reads = []
    whole = RunCounts.read_cases
    monkeypatch.setattr(RunCounts, "read_cases", lambda self, rows: reads.append(len(rows)) or whole(self, rows))
    result = eclose.gate(run, min_trr=0.3)
    assert not reads
    assert result.cases == read_judged_cases(run).cases
    assert result.cases is result.cases
    assert reads == [len(result.cases)]


def test_diagnosis_of_no_response_is_refused(tmp_path):
    cases = unique_questions(random_cases(5, count=4))
    counted = count_runs([write_run(tmp_path / "run", cases, judged=[])])
    with pytest.raises(UserError, match="no judged response"):
        diagnose_labels(counted.labels)
