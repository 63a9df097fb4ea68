"""The list of failures: every unreliable response under one kind, the same from memory and from files."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import replace
from itertools import product
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.diagnosis import run_counts
from eclose.diagnosis.label_file import write_labels
from eclose.diagnosis.response_failure import find_failure_kind
from eclose.diagnosis.run_counts import RunCounts, count_runs
from eclose.errors import SettingError
from eclose.readers.judged_run import JudgedCase
from eclose.report.failures import FailureList, write_failures
from eclose.report.formats.file_formats import FailureFormat
from eclose.report.formats.json_file import render_diagnosis_json
from eclose.report.formats.junit import render_responses_junit
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Judgment, LocalFailure, StepJudgment, StepSupport
from eclose.values.response import Response, Trace
from eclose.values.verdict import FailureKind
from tests.diagnosis.judged_responses import random_cases
from tests.diagnosis.test_run_counts import unique_questions, write_run

LABELS = (True, False, None)


def make_case(sound=True, aligned=True, closed=True, complete=None, evidence=True, answer="Lund", **fields):
    steps = (StepJudgment(substantive=True, sound=sound),)
    response = Response("r", "q", Trace.of("It is so."), answer)
    judgment = Judgment("r", "j", steps, aligned, closed, complete, evidence_sufficient=evidence, **fields)
    return JudgedCase(Instance("q", "Where?", (Passage("0", "", "Lund."),), "Lund"), response, judgment)


@pytest.mark.parametrize(
    "labels,kind",
    [
        ({"evidence": False, "sound": False, "aligned": False}, "retrieval"),
        ({"sound": False, "answer": "I do not know."}, "abstained"),
        ({"aligned": False, "answer": "I do not know."}, "abstained"),
        ({"sound": False, "aligned": False}, "unsound"),
        ({"sound": None, "aligned": False}, "path"),
        ({"closed": False, "complete": False}, "incomplete"),
        ({"closed": False, "complete": True}, "decoupling"),
        ({"closed": False}, "closure"),
        ({"closed": False, "aligned": None}, "closure"),
        ({"evidence": False}, None),
        ({"closed": None}, None),
    ],
)
def test_a_response_has_the_first_kind_that_applies(labels, kind):
    assert find_failure_kind(make_case(**labels)) == kind


def test_every_unreliable_response_has_one_kind_and_no_other_has_any():
    for sound, aligned, closed, complete, evidence in product(LABELS, repeat=5):
        for answer in ("Lund", "I do not know.", None):
            case = make_case(sound, aligned, closed, complete, evidence, answer)
            assert (find_failure_kind(case) is not None) == (case.verdict.reliable is False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    cases = unique_questions(random_cases(3, count=200))
    own = [{"city": f"c{number}", "Link": number} for number in range(len(cases))]
    cases = [replace(case, response=replace(case.response, columns=row)) for case, row in zip(cases, own, strict=True)]
    return write_run(tmp_path_factory.mktemp("failures") / "run", cases)


def test_the_kinds_and_the_undecided_add_up(run):
    counted = count_runs([run])
    failures = FailureList(counted)
    reliable = Counter(case.verdict.reliable for case in counted.case_set.cases)
    assert len(failures) == sum(failures.counts.values()) == reliable[False]
    assert (failures.responses, failures.undecided) == (reliable.total(), reliable[None])
    assert list(failures.counts.values()) == sorted(failures.counts.values(), reverse=True)
    rows = list(failures)
    assert Counter(row["kind"] for row in rows) == failures.counts
    assert list(dict.fromkeys(row["kind"] for row in rows)) == list(failures.counts)
    assert all(tuple(row) == failures.columns for row in rows)


@pytest.mark.parametrize("kind", FailureKind)
def test_a_list_of_one_kind_is_a_part_of_the_whole(run, kind):
    counted = count_runs([run])
    whole, part = FailureList(counted), FailureList(counted, kind)
    assert list(part) == [row for row in whole if row["kind"] == kind]
    assert part.counts == whole.counts


def test_the_worst_are_those_with_the_most_false_labels(run):
    failures = FailureList(count_runs([run]))
    rows = list(failures)
    for kind, worst in failures.list_worst(3).items():
        false = [sum(row[name] is False for name in LABEL_COLUMNS) for row in rows if row["kind"] == kind]
        shown = [sum(row[name] is False for name in LABEL_COLUMNS) for row in worst]
        assert shown == sorted(false, reverse=True)[:3]


LABEL_COLUMNS = ("locally_sound", "aligned", "closed", "complete", "correct")


@pytest.mark.slow
def test_lists_of_files_of_labels_of_large_runs_and_of_results_are_the_same(run, tmp_path, monkeypatch):
    expected = list(FailureList(count_runs([run])))
    write_labels(run, tmp_path / "run.parquet")
    results = eclose.diagnose(run)
    assert list(FailureList(count_runs([tmp_path / "run.parquet"]))) == expected
    assert results.failures() == expected
    assert results.failures("path") == [row for row in expected if row["kind"] == "path"]
    monkeypatch.setattr(run_counts, "LARGE_RUN", 50)
    monkeypatch.setattr(run_counts, "SAMPLE_SIZE", 20)
    large = eclose.diagnose(run)
    assert len(large.cases) == 20
    assert large.failures() == expected
    with pytest.raises(ValueError, match="'unknown' is not a valid FailureKind"):
        results.failures("unknown")


def test_responses_of_several_runs_have_the_name_of_their_run_where_ids_repeat(run, tmp_path):
    other = write_run(tmp_path / "other", [replace(case) for case in count_runs([run]).case_set.cases[:50]])
    cases = [
        replace(case, response=replace(case.response, answer="other")) for case in count_runs([other]).case_set.cases
    ]
    counted = RunCounts(
        {**count_runs([run]).runs, **count_runs([write_run(tmp_path / "again", cases)]).runs},
        count_runs([run]).shown,
        repeated_ids=True,
    )
    failures = FailureList(counted)
    assert {row["response_id"].partition("/")[0] for row in failures} == {"run", "again"}
    assert sum(map(len, failures.list_worst(500).values())) == len(failures)


def test_every_form_holds_every_row(run, tmp_path, capsysbinary):
    parquet = pytest.importorskip("pyarrow.parquet")
    failures = FailureList(count_runs([run]), page=tmp_path / "report.html")
    rows = list(failures)
    for kind in FailureFormat:
        assert write_failures(failures, kind, tmp_path / f"list.{kind}") == len(rows)
    lines = (tmp_path / "list.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    table = parquet.read_table(tmp_path / "list.parquet")
    assert table.to_pylist() == rows
    assert [str(table.schema.field(name).type) for name in ("reliable", "first_unsound_step", "city", "own_Link")] == [
        "bool", "int64", "string", "int64",
    ]  # fmt: skip
    with (tmp_path / "list.csv").open(encoding="utf-8-sig") as file:
        cells = list(csv.DictReader(file))
    assert [(row["response_id"], row["city"], row["reliable"]) for row in cells] == [
        (row["response_id"], row["city"], "no") for row in rows
    ]
    markdown = (tmp_path / "list.markdown").read_text()
    assert markdown.count("\n- **") == len(rows)
    assert f"report.html#r={rows[0]['response_id']}>" in markdown
    write_failures(failures, "jsonl")
    assert capsysbinary.readouterr().out == (tmp_path / "list.jsonl").read_bytes()
    with pytest.raises(SettingError, match="--out FILE"):
        write_failures(failures, "parquet")


def test_a_row_says_what_to_mend():
    steps = (
        StepJudgment(substantive=True, sound=True, support=StepSupport(0, "Not this.")),
        StepJudgment(True, False, LocalFailure.UNSUPPORTED_CONTENT, StepSupport(0, "Lund."), "No passage says so."),
    )
    case = make_case(aligned=True, closed=False, complete=False, pursued="Which?", established="Malmö",
                     missing_evidence="The year.", reasons={Criterion.CLOSURE: "Another."})  # fmt: skip
    case = replace(case, judgment=replace(case.judgment, steps=steps))
    case = replace(case, response=replace(case.response, trace=Trace.of("One.", "Two."), columns={"ticket": 7}))
    (row,) = FailureList(RunCounts.of([case]))
    assert {name: row[name] for name in row if name not in ("response_id", "instance_id", *LABEL_COLUMNS)} == {
        "benchmark": None, "model": None, "question": "Where?", "answer": "Lund", "reference_answer": "Lund",
        "judge": "j", "globally_sufficient": False, "reliable": False, "in_gap": False, "evidence_sufficient": True,
        "trace_group": "locally_unsound", "kind": "unsound", "failure_class": "incomplete_reasoning",
        "failure": "Step 2 does not hold. The reasoning establishes neither the reference answer nor the submitted "
        "one, but “Malmö”.",
        "broken_link": "completeness", "judge_sentence": "No passage says so.", "first_unsound_step": 2,
        "first_unsound_text": "Two.", "pursued": "Which?", "established": "Malmö", "missing_evidence": "The year.",
        "abstention": None, "cost": None, "step_failure": "L1", "quote": "Lund.", "reading": "trace/marked/protocol",
        "unjudged": None, "link": None, "ticket": 7,
    }  # fmt: skip


class TestCommand:
    """``eclose failures``."""

    def call(self, *arguments, code=0):
        result = CliRunner().invoke(app, ["failures", *map(str, arguments)])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def test_the_largest_kinds_are_printed_first_with_their_worst_responses(self, run):
        output = self.call(run).stdout
        failures = FailureList(count_runs([run]))
        _, *lines = output.splitlines()
        assert lines[0] == f"{len(failures)} of {failures.responses} judged responses are unreliable."
        kinds = [line.split()[0] for line in lines[2 : 2 + len(failures.counts)]]
        assert kinds == list(failures.counts)
        assert f"{failures.undecided} lack labels and are neither reliable nor unreliable: not listed." in lines
        headings = [line.partition(":")[0] for line in lines if line.partition(":")[0] in list(FailureKind)]
        assert headings == kinds
        worst = failures.list_worst(2)
        assert all(row["response_id"] in output for rows in worst.values() for row in rows)
        assert "city: c" in output

    def test_a_kind_without_a_response_is_said(self, run, tmp_path):
        cases = [case for case in count_runs([run]).case_set.cases if find_failure_kind(case) != "path"]
        assert (
            "No response is of the kind path." in self.call(write_run(tmp_path / "run", cases), "--kind", "path").stdout
        )

    def test_a_run_without_failures_is_said_to_have_none(self, tmp_path):
        case = replace(make_case(), judgment=replace(make_case().judgment, correct=True))
        assert self.call(write_run(tmp_path / "run", [case])).stdout.endswith(
            "0 of 1 judged response are unreliable.\n"
        )

    def test_a_list_on_the_standard_output_has_no_other_line(self, run):
        result = self.call(run, "--to", "jsonl", "--kind", "unsound")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert rows == list(FailureList(count_runs([run]), "unsound"))
        assert "No manifest says" in result.stderr

    def test_the_ending_of_a_file_names_the_format(self, run, tmp_path):
        failures = FailureList(count_runs([run]))
        out = tmp_path / "list.csv"
        assert f"{out}: {len(failures)} responses\n" in self.call(run, "--out", out).stdout
        assert out.read_text("utf-8-sig").startswith('"response_id"')
        assert self.call(run, "--out", tmp_path / "list.txt", code=1).exception is not None
        assert self.call(run, "--to", "parquet", code=1).exception is not None


class TestReportFiles:
    """The same fields in ``diagnosis.json`` and JUnit."""

    def test_json_lists_every_response_with_its_fields(self, run):
        results = eclose.diagnose(run)
        output = json.loads(render_diagnosis_json(results.diagnosis, results.context, results.cases))
        assert output["listed_note"] is None
        for listed, row in zip(output["listed"], results.to_dicts(), strict=True):
            columns = listed.pop("columns")
            assert row == {**listed, **{name: columns.get(name.removeprefix("own_")) for name in ("city", "Link")}}

    def test_json_of_a_large_run_lists_the_failures_and_says_where_the_others_are(self, run, monkeypatch):
        monkeypatch.setattr("eclose.report.formats.json_file.MAX_LISTED", 100)
        results = eclose.diagnose(run)
        output = json.loads(render_diagnosis_json(results.diagnosis, results.context, results.cases))
        failures = [row["response_id"] for row in results.to_dicts() if row["reliable"] is False]
        assert [row["response_id"] for row in output["listed"]] == failures[:100]
        assert output["listed_note"].startswith("100 unreliable ones of 200 responses.")

    def test_a_junit_failure_names_step_sentence_and_missing_evidence(self):
        steps = (StepJudgment(True, False, LocalFailure.UNSUPPORTED_CONTENT, reason="No passage <says> so."),)
        case = make_case(closed=False, missing_evidence="The year.", pursued="Which?")
        response = replace(case.response, columns={"ticket": 7})
        case = replace(case, judgment=replace(case.judgment, steps=steps), response=response)
        (failure,) = ElementTree.fromstring(render_responses_junit([case])).iter("failure")
        lines = failure.text.splitlines()
        assert lines[:3] == ["Question: Where?", "1. It is so.", "Submitted: Lund"]
        assert set(lines[3:]) == {
            "Reference: Lund", "Kind: unsound", "Class: closure_failure", "Step 1: It is so.",
            "Judge: No passage <says> so.", "Pursued: Which?", "Missing evidence: The year.", "ticket: 7",
        }  # fmt: skip
