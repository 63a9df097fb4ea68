"""A table of labels in Parquet, on a disk and in object storage, gives the results of the run it was written from."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

import eclose
from eclose.api.results import default_report_folder
from eclose.diagnosis import run_counts
from eclose.diagnosis.label_file import (
    DERIVED_COLUMNS,
    RECORD_COLUMNS,
    describe_labels,
    is_label_file,
    label_schema,
    write_labels,
)
from eclose.diagnosis.label_table import NO_TIME
from eclose.diagnosis.run_counts import count_runs
from eclose.errors import RecordError, SettingError, UserError
from eclose.files.parquet import get_remote_url
from eclose.readers.judged_run import UNCHECKED_CAVEAT, JudgedCase, read_judged_cases
from eclose.report.formats.file_formats import ReportFormat
from eclose.values.instance import Instance
from eclose.values.judgment import WHOLE_TRACE_REASON, Criterion, Judgment, LocalFailure, StepJudgment
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.times import normalize_time
from tests.diagnosis.damaged_runs import write_random_run
from tests.diagnosis.judged_responses import random_cases
from tests.diagnosis.test_run_counts import attempt, contents, dirty_run, unique_questions, write_run  # noqa: F401 - a fixture

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
arrow_dataset = pytest.importorskip("pyarrow.dataset")
fs = pytest.importorskip("pyarrow.fs")


@pytest.fixture(scope="module")
def labels(dirty_run, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("labels") / "run.parquet"
    assert write_labels(dirty_run, out) == len(read_judged_cases(dirty_run).cases)
    return out


def edit(labels, path, change):
    """Write a changed copy of a table."""
    parquet.write_table(change(parquet.read_table(labels)), path)
    return path


def test_a_table_of_labels_is_counted_like_the_files(dirty_run, labels):  # noqa: F811
    counted = count_runs([labels])
    assert contents(counted.labels) == contents(count_runs([dirty_run]).labels)
    # The whole cases are read back, with passages and reasons, and so are the caveats.
    assert counted.case_set == read_judged_cases(dirty_run)


@pytest.mark.parametrize("seed", range(30))
def test_runs_of_any_kind_are_read_alike_from_both_forms(tmp_path, seed):
    run = write_random_run(tmp_path / "run", seed)
    expected = attempt(count_runs, [run], allow_stale=True)
    written = attempt(write_labels, run, tmp_path / "run.parquet", allow_stale=True)
    if isinstance(expected, str):
        assert written == expected
        return
    runs = count_runs([tmp_path / "run.parquet"], allow_stale=True)
    assert written == len(runs.labels)
    assert contents(runs.labels) == contents(expected.labels)
    assert runs.case_set == expected.case_set


def test_a_folder_of_tables_is_read_in_the_order_of_their_names(labels, tmp_path):
    whole = parquet.read_table(labels)
    for number, start in enumerate(range(0, len(whole), 17)):
        parquet.write_table(whole.slice(start, 17), tmp_path / f"part-{number}.parquet", row_group_size=5)
    counted, expected = count_runs([tmp_path]), count_runs([labels])
    assert contents(counted.labels) == contents(expected.labels)
    assert counted.case_set.cases == expected.case_set.cases


def scatter(labels, folder):
    """Write the table of a file as an engine does: several files, unfinished ones, and marks of success."""
    whole = parquet.read_table(labels)
    for number, start in enumerate(range(0, len(whole), 17)):
        part = whole.slice(start, 17).replace_schema_metadata(None)
        parquet.write_table(part, folder / f"part-{number:05}.snappy.parquet")
        (folder / f".part-{number:05}.snappy.parquet.crc").write_bytes(b"crc")
    (folder / "_SUCCESS").touch()
    for hidden in ("_temporary/0/part-00000.parquet", ".staging/part-00000.parquet", "._part-00000.parquet"):
        (folder / hidden).parent.mkdir(parents=True, exist_ok=True)
        (folder / hidden).write_bytes(b"not yet")
    return whole


def test_files_that_engines_hide_are_not_read(labels, tmp_path):
    scatter(labels, tmp_path)
    counted, expected = count_runs([tmp_path]), count_runs([labels])
    assert contents(counted.labels) == contents(expected.labels)
    assert counted.case_set.cases == expected.case_set.cases
    assert counted.case_set.notices == (UNCHECKED_CAVEAT,)


@pytest.mark.parametrize("pattern", ["june/*.parquet", "ju*/part-?????.snappy.parquet", "j*", "**/*.parquet", "[j]une"])
def test_a_pattern_stands_for_the_files_that_match(labels, tmp_path, monkeypatch, pattern):
    (tmp_path / "june").mkdir()
    scatter(labels, tmp_path / "june")
    monkeypatch.chdir(tmp_path)
    expected = contents(count_runs([labels]).labels)
    for run in (pattern, tmp_path / pattern):
        assert contents(count_runs([run]).labels) == expected


@pytest.mark.parametrize(
    "run,folder",
    [
        ("june/*.parquet", "june/report"),
        ("*.parquet", "report"),
        ("/data/j*/a.parquet", "/data/report"),
        ("june/a.parquet", "june/report"),
        ("run", "run/report"),
    ],
)
def test_the_report_of_a_pattern_lies_above_its_first_wildcard(run, folder):
    assert default_report_folder(run) == Path(folder)


def test_a_pattern_of_no_file_is_refused_and_a_name_with_brackets_is_no_pattern(labels, tmp_path):
    with pytest.raises(UserError, match=r"july/\*\.parquet: holds no Parquet file"):
        count_runs([tmp_path / "july" / "*.parquet"])
    folder = tmp_path / "run[1]"
    folder.mkdir()
    scatter(labels, folder)
    assert len(count_runs([folder]).labels) == len(count_runs([labels]).labels)


def test_columns_in_the_names_of_folders_are_read(labels, tmp_path):
    whole = parquet.read_table(labels)
    whole = whole.append_column("day", arrow.array(["2026-11-20", "2026-11-21"] * len(whole))[: len(whole)])
    options = {"partitioning": ["model", "day", "aligned"], "partitioning_flavor": "hive", "format": "parquet"}
    # A name above the table says nothing about its rows.
    folder = tmp_path / "benchmark=none" / "labels"
    arrow_dataset.write_dataset(whole, folder, **options)
    assert not list(folder.glob("*.parquet"))
    assert is_label_file(folder)
    counted, expected = count_runs([folder]), count_runs([labels])
    assert sorted(list_rows(counted)) == sorted(list_rows(expected))
    days = {case.response.id: case.response.columns["day"] for case in counted.case_set.cases}
    assert days == dict(zip(whole["response_id"].to_pylist(), whole["day"].to_pylist(), strict=True))


def list_rows(counted):
    labels = counted.labels
    models = [labels.models[code] if code >= 0 else "" for code in labels.model]
    keys = [labels.questions[number] for number in labels.question]
    return list(zip(labels.ids.tolist(), labels.verdict.tolist(), models, map(str, keys), strict=True))


TEXTS = arrow.array(["1"])


@pytest.mark.parametrize(
    "first,second,values",
    [
        (TEXTS.dictionary_encode(), TEXTS, {"1"}),
        (TEXTS, TEXTS.cast(arrow.large_string()), {"1"}),
        (arrow.array([1]), TEXTS, {"1"}),
        (arrow.nulls(1), TEXTS, {"1"}),
        (arrow.array([1]), arrow.array([1.5]), {1, 1.5}),
        (arrow.array([date(2026, 11, 20)]), TEXTS, {"2026-11-20", "1"}),
    ],
    ids=["categories", "long-texts", "numbers-and-texts", "nothing-and-texts", "numbers", "days-and-texts"],
)
def test_an_own_column_has_another_type_in_another_file(labels, tmp_path, first, second, values):
    whole = parquet.read_table(labels)
    for number, value in enumerate((first, second)):
        part = whole.slice(17 * number, 17)
        own = arrow.chunked_array([value] * len(part))
        parquet.write_table(part.append_column("own", own), tmp_path / f"part-{number}.parquet")
    counted = count_runs([tmp_path])
    read = {case.response.columns["own"] for case in counted.case_set.cases if "own" in case.response.columns}
    assert read == values


def test_an_own_column_of_lists_and_texts_is_refused(labels, tmp_path):
    whole = parquet.read_table(labels)
    for number, value in enumerate((TEXTS, arrow.array([["1"]]))):
        part = whole.slice(number, 1).append_column("own", value)
        parquet.write_table(part, tmp_path / f"part-{number}.parquet")
    with pytest.raises(UserError, match="column own holds lists in one file and not in another"):
        count_runs([tmp_path])


@pytest.mark.parametrize("trace", ["_delta_log/00000.json", "metadata/v1.metadata.json", ".hoodie/hoodie.properties"])
def test_a_folder_that_keeps_replaced_files_is_refused(labels, tmp_path, trace):
    scatter(labels, tmp_path)
    (tmp_path / trace).parent.mkdir()
    (tmp_path / trace).touch()
    with pytest.raises(UserError, match="is a table of Delta, Iceberg or Hudi"):
        count_runs([tmp_path])


def test_a_sample_reads_single_responses(dirty_run, labels, monkeypatch):  # noqa: F811
    monkeypatch.setattr(run_counts, "LARGE_RUN", 20)
    monkeypatch.setattr(run_counts, "SAMPLE_SIZE", 9)
    from_files, from_labels = (count_runs([run]).case_set.cases for run in (dirty_run, labels))
    assert len(from_labels) == 9
    assert from_labels == from_files


def test_labels_are_counted_without_records_and_shown_without_texts(labels, tmp_path):
    bare = edit(labels, tmp_path / "bare.parquet", lambda table: table.drop(list(RECORD_COLUMNS)))
    counted, expected = count_runs([bare]), count_runs([labels])
    assert contents(counted.labels) == contents(expected.labels)
    assert [replace(case.row, source=None) for case in counted.case_set.cases] == [
        replace(case.row, source=None) for case in expected.case_set.cases
    ]
    assert not any(case.instance.question for case in counted.case_set.cases)


def test_a_table_of_another_program_needs_ids_a_judge_and_three_labels(tmp_path):
    columns = {
        "response_id": arrow.array(["a", "b", "c"], arrow.large_string()),
        "instance_id": arrow.array(["q", "q", "r"]).dictionary_encode(),
        "judge": ["j"] * 3,
        "locally_sound": [True, True, None],
        "aligned": [True, False, True],
        "closed": [True, True, True],
        "complete": arrow.nulls(3),
    }
    path = tmp_path / "spark.parquet"
    parquet.write_table(arrow.table(columns), path)
    results = eclose.diagnose(path)
    rates = results.rates
    assert [(rates[name].value, rates[name].n, rates[name].unjudged) for name in ("TRR", "LSR")] == [
        (0.5, 2, 1),
        (1, 2, 1),
    ]
    assert rates["Acc"].value is None
    assert UNCHECKED_CAVEAT in results.notices
    assert results.diagnosis.overall.questions == 2
    assert "report.html" in results.report(tmp_path / "report", [ReportFormat.HTML])


def drop_closed(table):
    return table.drop(["closed"])


def number_labels(table):
    return table.set_column(table.column_names.index("aligned"), "aligned", table["aligned"].cast("int8"))


def repeat_rows(table):
    return arrow.concat_tables([table, table.slice(3, 2)])


def remove_judges(table):
    return table.set_column(table.column_names.index("judge"), "judge", arrow.nulls(len(table), "string"))


def invent_codes(table):
    codes = arrow.array([["L9"]] * len(table))
    return table.set_column(table.column_names.index("step_failures"), "step_failures", codes)


def repeat_a_column(table):
    return table.append_column("aligned", table["aligned"])


def raise_version(table):
    metadata = {b"eclose": table.schema.metadata[b"eclose"].replace(b"eclose.labels/2", b"eclose.labels/1")}
    return table.replace_schema_metadata(metadata)


@pytest.mark.parametrize(
    "change,message",
    [
        (drop_closed, "has no column closed"),
        (number_labels, "column aligned is int8"),
        (repeat_rows, "was judged twice, in row 4 and row"),
        (remove_judges, "rows have no judge"),
        (invent_codes, "'L9' is none of"),
        (repeat_a_column, "has two columns aligned"),
        (raise_version, "this version reads eclose.labels/2"),
    ],
)
def test_a_table_that_would_be_misread_is_refused(labels, tmp_path, change, message):
    path = edit(labels, tmp_path / "other.parquet", change)
    with pytest.raises((UserError, RecordError), match=message):
        count_runs([path])


def test_a_file_that_is_cut_off_or_missing_is_refused(labels, tmp_path):
    (tmp_path / "cut.parquet").write_bytes(labels.read_bytes()[:-9])
    for name in ("cut.parquet", "missing.parquet"):
        with pytest.raises(UserError, match="holds no table of labels that can be read"):
            count_runs([tmp_path / name])


@pytest.mark.slow
def test_diagnose_and_gate_read_labels_with_the_same_files(tmp_path):
    cases = [case for case in unique_questions(random_cases(1, count=120)) if case.instance.benchmark == "HotpotQA"]
    cases = [replace(case, response=replace(case.response, source=None)) for case in cases]
    run, out = write_run(tmp_path / "run", cases), tmp_path / "labels" / "run.parquet"
    assert write_labels(run, out) == len(cases)
    results, expected = eclose.diagnose(out), eclose.diagnose(run)
    assert results.diagnosis == expected.diagnosis
    assert results.notices == expected.notices
    assert results.cases == expected.cases
    formats = [ReportFormat.HTML, ReportFormat.JSON, ReportFormat.JUNIT]
    files = [result.report(tmp_path / name, formats) for name, result in (("labels", results), ("run", expected))]
    assert [path.read_bytes() for path in files[0].values()] == [path.read_bytes() for path in files[1].values()]
    limits = {"min_trr": 0.2, "against": run, "max_trr_drop": 0.1}
    assert eclose.gate(out, **limits).report == eclose.gate(run, **limits).report


def test_a_table_is_not_written_twice(dirty_run, labels):  # noqa: F811
    with pytest.raises(UserError, match="exists already"):
        write_labels(dirty_run, labels)


def test_a_conversion_that_fails_leaves_nothing(dirty_run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("eclose.diagnosis.label_file.describe_labels", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_labels(dirty_run, tmp_path / "run.parquet")
    assert not list(tmp_path.iterdir())


def test_labels_of_stale_judgments_are_refused(dirty_run, labels, tmp_path):  # noqa: F811
    def mark_stale(table):
        content = table.schema.metadata[b"eclose"].replace(b'"stale": []', b'"stale": ["responses.jsonl was changed."]')
        return table.replace_schema_metadata({b"eclose": content})

    path = edit(labels, tmp_path / "stale.parquet", mark_stale)
    with pytest.raises(UserError, match="was changed"):
        count_runs([path])
    assert count_runs([path], allow_stale=True).case_set.stale == ("responses.jsonl was changed.",)


def test_a_run_is_told_from_a_table_of_labels(labels, tmp_path):
    assert is_label_file(labels)
    assert is_label_file(labels.parent)
    assert not is_label_file(tmp_path)
    (tmp_path / "labels.parquet").touch()
    (tmp_path / "responses.jsonl").touch()
    assert not is_label_file(tmp_path)
    assert is_label_file("s3:/bucket/run")


@pytest.mark.parametrize(
    "run,url",
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3:/bucket/a/", "s3://bucket/a"),
        ("abfss://container@account/x", "abfss://container@account/x"),
        ("runs/s3", None),
        ("C:/runs", None),
    ],
)
def test_addresses_are_told_from_folders(run, url):
    assert get_remote_url(run) == url


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """A bucket of an S3 server on loopback."""
    pytest.importorskip("moto.server", reason="needs moto[s3] and flask, an S3 server for tests")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=log, stderr=log)
    endpoint = f"http://127.0.0.1:{port}"
    names = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield "s3://bucket"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        server.terminate()
        server.wait()
        log.close()


@pytest.mark.slow
def test_labels_in_object_storage_are_read_alike(dirty_run, s3):  # noqa: F811
    url = f"{s3}/runs/first.parquet"
    write_labels(dirty_run, url)
    counted = count_runs([url])
    assert contents(counted.labels) == contents(count_runs([dirty_run]).labels)
    assert counted.case_set == read_judged_cases(dirty_run)
    with pytest.raises(UserError, match="holds no table of labels that can be read"):
        count_runs([f"{s3}/runs/missing.parquet"])
    with pytest.raises(UserError, match="already"):
        write_labels(dirty_run, url)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["labels", "labels/part-*.parquet", "l*/*", "labels/*.parquet?region=us-east-1"])
def test_files_in_object_storage_are_read_by_folder_and_pattern(labels, s3, tmp_path, run):
    scatter(labels, tmp_path)
    filesystem, bucket = fs.FileSystem.from_uri(s3)
    fs.copy_files(str(tmp_path), f"{bucket}/labels", destination_filesystem=filesystem)
    for url in (f"{s3}/{run}", Path(f"{s3}/{run}")):
        assert contents(count_runs([url]).labels) == contents(count_runs([labels]).labels)
    with pytest.raises(UserError, match="holds no Parquet file"):
        count_runs([f"{s3}/labels/july-*.parquet"])
    with pytest.raises(SettingError, match="Name a folder on this computer"):
        default_report_folder(f"{s3}/{run}")


class TestSeveralRuns:
    """Several runs of which one is a table of labels, against the same runs in JSON Lines."""

    @pytest.fixture
    def halves(self, tmp_path):
        cases = [case for case in unique_questions(random_cases(1, count=160)) if case.instance.benchmark == "HotpotQA"]
        return write_run(tmp_path / "first", cases[:40]), write_run(tmp_path / "second", cases[40:])

    @pytest.mark.slow
    def test_they_are_diagnosed_alike(self, halves, tmp_path):
        first, second = halves
        write_labels(second, tmp_path / "second.parquet")
        expected, results = eclose.diagnose(halves), eclose.diagnose([first, tmp_path / "second.parquet"])
        assert results.diagnosis == expected.diagnosis
        assert results.cases == expected.cases
        assert results.context.systems == expected.context.systems

    @pytest.mark.slow
    def test_repeated_ids_get_the_name_of_the_run(self, halves, tmp_path):
        first, _ = halves
        cases = read_judged_cases(first).cases
        other = [replace(case, response=replace(case.response, source=ResponseSource("another"))) for case in cases]
        write_labels(write_run(tmp_path / "other", other), tmp_path / "labels" / "other.parquet")
        results = eclose.diagnose([first, tmp_path / "labels" / "other.parquet"])
        assert len(results) == 2 * len(cases)
        assert results.cases[0].response.id.startswith("first/")
        assert results.cases[-1].response.id.startswith("other.parquet/")

    def test_a_run_that_is_part_of_another_is_refused(self, halves, tmp_path):
        first, _ = halves
        again = tmp_path / "again.parquet"
        write_labels(first, again)
        with pytest.raises(UserError, match=r"every response of first is in again\.parquet too"):
            eclose.diagnose([first, again])
        with pytest.raises(SettingError, match="named twice"):
            eclose.diagnose([again, again])

    def test_another_question_under_the_same_id_is_refused(self, halves, tmp_path):
        first, _ = halves
        cases = read_judged_cases(first).cases
        other = [replace(case, instance=replace(case.instance, question="Another?")) for case in cases]
        other = [replace(case, response=replace(case.response, answer="another")) for case in other]
        write_labels(write_run(tmp_path / "other", other), tmp_path / "other.parquet")
        with pytest.raises(UserError, match="Runs can be combined only where the same id is the same question"):
            eclose.diagnose([first, tmp_path / "other.parquet"])


def test_hashes_of_questions_are_those_of_the_files(dirty_run, labels):  # noqa: F811
    hashes = [[(key, hashed) for key, hashed, _ in count_runs([run]).list_questions()] for run in (dirty_run, labels)]
    assert hashes[0] == hashes[1]
    assert all(all(hashed) for _, hashed in hashes[0])


def test_the_columns_of_results_are_named_as_those_of_labels(dirty_run):  # noqa: F811
    shared = {"response_id", "instance_id", "benchmark", "model", "judge", "locally_sound", "aligned", "closed"}
    assert shared <= {*label_schema().names} & {*eclose.diagnose(dirty_run).to_arrow().column_names}


class TestDerivedColumns:
    """Columns that say what is wrong, for queries of other programs."""

    STEPS = (
        StepJudgment(substantive=True, sound=True, reason="It does."),
        StepJudgment(substantive=True, sound=False, failure=LocalFailure.INVALID_INFERENCE, reason="It does not."),
    )

    def describe(self, **fields):
        response = Response("r", "q", Trace.of("First.", "Second."), "x")
        judgment = Judgment("r", "judge", fields.pop("steps", self.STEPS[:1] * 2), **fields)
        return describe_labels(JudgedCase(Instance("q", "Who?", ()), response, judgment))

    def test_a_row_has_the_columns_of_the_schema(self):
        assert sorted(self.describe()) == sorted(label_schema().names)

    def test_an_unsound_step_is_named_with_its_text_and_the_judges_words(self):
        row = self.describe(steps=self.STEPS, aligned=True, closed=True)
        assert (row["reliable"], row["in_gap"], row["failure"]) == (False, False, "Step 2 does not hold.")
        assert (row["first_unsound_step"], row["first_unsound_text"]) == (2, "Second.")
        assert row["judge_sentence"] == "It does not."
        assert row["broken_link"] is None

    @pytest.mark.parametrize(
        "labels,link,sentence",
        [
            ({"aligned": False, "closed": True}, "alignment", "On A."),
            ({"aligned": True, "closed": False, "complete": False}, "completeness", "On K."),
            ({"aligned": True, "closed": False, "complete": True}, "closure", "On C."),
            ({"aligned": True, "closed": False}, "closure", "On C."),
            ({"closed": False}, None, "On C."),
        ],
    )
    def test_the_first_broken_link_is_named_with_the_reason_of_its_label(self, labels, link, sentence):
        reasons = {criterion: f"On {criterion}." for criterion in Criterion}
        row = self.describe(**labels, reasons=reasons, pursued="p", established="e", missing_evidence="m")
        assert (row["broken_link"], row["judge_sentence"]) == (link, sentence)
        assert [row[name] for name in ("in_gap", "pursued", "established", "missing_evidence")] == [True, "p", "e", "m"]

    def test_nothing_is_said_where_nothing_is_known_to_be_wrong(self):
        for closed in (True, None):
            row = self.describe(aligned=True, closed=closed)
            assert row["reliable"] is closed
            assert [row[name] for name in ("failure", "failure_class", "judge_sentence")] == [None] * 3

    def test_one_label_for_the_whole_trace_names_no_step(self):
        whole = (StepJudgment(True, False, reason=WHOLE_TRACE_REASON),)
        row = self.describe(steps=whole, reasons={Criterion.LOCAL_SOUNDNESS: "On L."})
        assert (row["first_unsound_step"], row["first_unsound_text"]) == (None, None)
        assert row["judge_sentence"] == "On L."

    def test_readers_ignore_them_whatever_their_types(self, labels, tmp_path):
        lists = arrow.array([[1]] * parquet.read_metadata(labels).num_rows)

        def spoil(table):
            for name in DERIVED_COLUMNS:
                table = table.set_column(table.column_names.index(name), name, lists)
            return table

        counted, expected = count_runs([edit(labels, tmp_path / "spoilt.parquet", spoil)]), count_runs([labels])
        assert contents(counted.labels) == contents(expected.labels)
        assert counted.case_set.cases == expected.case_set.cases


def times_of(path):
    return parquet.read_table(path, columns=["answered_at"])["answered_at"].to_pylist()


def test_the_time_of_a_response_is_a_column_and_minus_two_to_the_63_where_there_is_none(labels):
    times = times_of(labels)
    known = [None if time is None else time.isoformat() for time in times]
    assert set(known) == {"2026-11-20T10:00:00+00:00", "2026-11-21T09:00:00.500000+00:00", None}
    counted = count_runs([labels]).labels.time.tolist()
    assert counted == [NO_TIME if time is None else int(time.timestamp() * 10**6) for time in times]


def test_a_table_of_another_program_gives_its_responses_their_time(labels, tmp_path):
    plain = edit(labels, tmp_path / "plain.parquet", lambda table: table.drop_columns(list(RECORD_COLUMNS)))
    counted = count_runs([plain])
    times = [case.response.time for case in counted.read_cases(np.arange(len(counted.labels)))]
    assert times == [None if time is None else normalize_time(time) for time in times_of(plain)]


class TestOwnColumns:
    """Columns of the user's own in a table of labels."""

    @pytest.fixture
    def run(self, tmp_path):
        cases = unique_questions(random_cases(1, count=60))
        rows = [{"city": f"c{n}", "n": n if n % 2 else n / 4, "Cost": 1, "tags": ["a"]} for n in range(len(cases))]
        rows[50]["late"] = True
        rows[51] = {}
        own = [
            replace(case, response=replace(case.response, columns=row)) for case, row in zip(cases, rows, strict=False)
        ]
        return write_run(tmp_path / "run", own)

    def test_they_are_columns_of_the_table_with_a_type_of_their_own(self, run, tmp_path, monkeypatch):
        # The column that only a late row has comes in the third group.
        monkeypatch.setattr("eclose.diagnosis.label_file._GROUP_ROWS", 20)
        write_labels(run, tmp_path / "run.parquet")
        table = parquet.read_table(tmp_path / "run.parquet")
        own = {name: str(table.schema.field(name).type) for name in table.schema.names[len(label_schema()) :]}
        assert own == {"city": "string", "n": "double", "own_Cost": "int64", "tags": "string", "late": "bool"}
        rows = table.select(list(own)).to_pylist()
        assert rows[50] == {"city": "c50", "n": 12.5, "own_Cost": 1, "tags": '["a"]', "late": True}
        assert rows[51] == dict.fromkeys(own)
        assert count_runs([tmp_path / "run.parquet"]).case_set == count_runs([run]).case_set

    def test_a_column_that_another_program_added_is_read_with_the_response(self, run, tmp_path):
        write_labels(run, tmp_path / "run.parquet")
        days = arrow.array([date(2026, 1, 1 + number % 28) for number in range(60)])
        joined = edit(
            tmp_path / "run.parquet", tmp_path / "joined.parquet", lambda table: table.append_column("day", days)
        )
        case = count_runs([joined]).case_set.cases[0]
        assert case.response.columns == {"city": "c0", "n": 0.0, "Cost": 1, "tags": ["a"], "day": "2026-01-01"}

    def test_columns_of_a_table_without_records_are_read_from_all_its_files(self, run, tmp_path):
        write_labels(run, tmp_path / "run.parquet")
        bare = parquet.read_table(tmp_path / "run.parquet").drop(list(RECORD_COLUMNS))
        (tmp_path / "labels").mkdir()
        parquet.write_table(bare.slice(0, 30).drop(["late", "n"]), tmp_path / "labels" / "a.parquet")
        parquet.write_table(bare.slice(30), tmp_path / "labels" / "b.parquet")
        cases = count_runs([tmp_path / "labels"]).case_set.cases
        assert cases[0].response.columns == {"city": "c0", "own_Cost": 1, "tags": '["a"]'}
        assert cases[50].response.columns["late"] is True

    @pytest.mark.slow
    def test_rows_of_results_have_them(self, run):
        results = eclose.diagnose(run)
        rows = results.to_dicts()
        assert [rows[0][name] for name in ("city", "n", "own_Cost", "tags", "late")] == ["c0", 0.0, 1, ["a"], None]
        assert results.to_arrow().schema.field("late").type == arrow.bool_()
        assert results.to_arrow()["tags"][0].as_py() == '["a"]'
        assert results.to_arrow()["city"].to_pylist() == [row["city"] for row in rows]
        frame = results.to_pandas()
        assert (frame["city"][50], frame["late"][50], frame["city"].isna().sum()) == ("c50", True, 1)


@pytest.mark.parametrize("column", [[1_795_168_800] * 2, [1.5, None], ["2026-11-20T10:00:00Z"] * 2])
def test_a_column_of_that_name_that_is_no_timestamp_is_refused(column, labels, tmp_path):
    def change(table):
        table = table.slice(0, 2)
        return table.set_column(table.schema.get_field_index("answered_at"), "answered_at", arrow.array(column))

    with pytest.raises(UserError, match=r"column answered_at is \w+. Write a timestamp in UTC"):
        count_runs([edit(labels, tmp_path / "time.parquet", change)])
