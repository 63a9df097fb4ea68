"""Runs in Parquet parts, on a disk and in object storage, give the results of the run that was split."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import pytest

import eclose
from eclose.calls.cluster.workers import RaySettings, RecordShard, ShardStopSignal
from eclose.diagnosis import stream as run_counts
from eclose.diagnosis.label_table import LabelTable
from eclose.diagnosis.parts import read_part, read_parts_of_shard, read_run_in_parts
from eclose.diagnosis.stream import count_runs, split_run
from eclose.errors import SettingError, UserError
from eclose.files.parts import PartsFolder, get_remote_url, is_in_parts
from eclose.readers.judged_run import read_judged_cases
from eclose.report.formats.file_formats import ReportFormat
from eclose.values.response import ResponseSource
from tests.calls.cluster.cluster import cluster  # noqa: F401 - a fixture
from tests.diagnosis.judged_responses import random_cases
from tests.diagnosis.test_stream import contents, dirty_run, unique_questions, write_run  # noqa: F401 - a fixture

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def parts(dirty_run, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("parts") / "run"
    assert split_run(dirty_run, out, rows=17) == 6
    return out


def test_parts_are_counted_like_the_files(dirty_run, parts):  # noqa: F811
    in_memory, counted = read_judged_cases(dirty_run), count_runs([parts], large=True)
    assert contents(counted.labels) == contents(count_runs([dirty_run]).labels)
    # The whole cases are read back from the bodies, with passages and reasons.
    assert counted.case_set == in_memory


def test_a_sample_reads_single_responses(dirty_run, parts, monkeypatch):  # noqa: F811
    monkeypatch.setattr(run_counts, "SAMPLE_SIZE", 9)
    from_files, from_parts = (count_runs([run], large=True).case_set.cases for run in (dirty_run, parts))
    assert len(from_parts) == 9
    assert from_parts == from_files


def test_labels_are_read_without_bodies(parts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(parts, copy)
    shutil.rmtree(copy / "bodies")
    assert contents(count_runs([copy]).labels) == contents(count_runs([parts]).labels)


@pytest.mark.slow
def test_diagnose_and_gate_read_parts(tmp_path):
    cases = [case for case in unique_questions(random_cases(1, count=120)) if case.instance.benchmark == "HotpotQA"]
    cases = [replace(case, response=replace(case.response, source=None)) for case in cases]
    run, out = write_run(tmp_path / "run", cases), tmp_path / "parts"
    assert split_run(run, out, rows=10) == -(-len(cases) // 10)
    assert is_in_parts(out)
    results, expected = eclose.diagnose(out), eclose.diagnose(run)
    assert results.diagnosis == expected.diagnosis
    assert results.notices == expected.notices
    assert results.cases == expected.cases
    limits = {"min_trr": 0.2, "against": run, "max_trr_drop": 0.1}
    assert eclose.gate(out, **limits).report == eclose.gate(run, **limits).report


def test_a_folder_is_not_written_twice(dirty_run, parts):  # noqa: F811
    with pytest.raises(UserError, match="already"):
        split_run(dirty_run, parts)
    with pytest.raises(SettingError, match="at least one row"):
        split_run(dirty_run, parts.parent / "new", rows=0)


def test_another_version_is_refused(parts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(parts, copy)
    manifest = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**manifest, "schema": "eclose.run-parts/1"}))
    with pytest.raises(UserError, match="run-parts/1"):
        count_runs([copy])


def test_an_unfinished_split_is_no_run(parts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(parts, copy)
    (copy / "run.json").unlink()
    assert not is_in_parts(copy)
    with pytest.raises(UserError, match="holds no run in parts"):
        PartsFolder(copy).read_manifest()


def test_stale_parts_are_refused(parts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(parts, copy)
    manifest = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**manifest, "stale": ["responses.jsonl was changed."]}))
    with pytest.raises(UserError, match="was changed"):
        count_runs([copy])
    assert count_runs([copy], allow_stale=True).case_set.stale == ("responses.jsonl was changed.",)


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
def test_parts_in_object_storage_are_read_alike(dirty_run, s3):  # noqa: F811
    url = f"{s3}/runs/first"
    assert split_run(dirty_run, url, rows=30) == 4
    counted = count_runs([url])
    assert contents(counted.labels) == contents(count_runs([dirty_run]).labels)
    assert counted.case_set == read_judged_cases(dirty_run)
    with pytest.raises(UserError, match="holds no run in parts"):
        count_runs([f"{s3}/runs/missing"])
    with pytest.raises(UserError, match="already"):
        split_run(dirty_run, url)


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_ray_workers_give_the_same_bytes(parts, tmp_path):
    expected, results = eclose.diagnose(parts), eclose.diagnose(parts, ray=RaySettings())
    assert results.diagnosis == expected.diagnosis
    assert results.cases == expected.cases
    formats = [ReportFormat.HTML, ReportFormat.JSON, ReportFormat.JUNIT]
    files = [made.report(tmp_path / name, formats) for name, made in (("here", expected), ("ray", results))]
    assert [path.read_bytes() for path in files[0].values()] == [path.read_bytes() for path in files[1].values()]
    gates = [eclose.gate(parts, min_trr=0.2, ray=ray) for ray in (None, RaySettings())]
    assert gates[0].report == gates[1].report


@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_worker_is_reported(parts, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(parts, copy)
    (copy / "labels" / "part-00003.parquet").unlink()
    with pytest.raises(Exception, match="part-00003"):
        count_runs([copy], ray=RaySettings())


@pytest.mark.parametrize("shards", [1, 2, 4, 9])
def test_shards_of_parts_are_the_whole_in_order(parts, shards):
    names = [name for name, _ in PartsFolder(parts).read_manifest().parts]
    tables = []
    for index in range(shards):
        tables += asyncio.run(read_parts_of_shard(str(parts), names, RecordShard(index, shards), ShardStopSignal()))
    whole = read_run_in_parts(parts).labels
    assert contents(LabelTable.concatenate(tables)) == contents(whole)
    assert [table.positions.tolist() for table in tables] == [
        read_part(PartsFolder(parts), number, name).positions.tolist() for number, name in enumerate(names)
    ]


def test_a_shard_stops_between_parts(parts):
    stop = ShardStopSignal()
    stop.request()
    names = [name for name, _ in PartsFolder(parts).read_manifest().parts]
    assert not asyncio.run(read_parts_of_shard(str(parts), names, RecordShard(), stop))


def test_ray_counts_parts_alone(dirty_run):  # noqa: F811
    with pytest.raises(SettingError, match="eclose data split"):
        count_runs([dirty_run], ray=RaySettings())


class TestSeveralRuns:
    """Several runs of which one is in parts, against the same runs in memory."""

    @pytest.fixture
    def halves(self, tmp_path):
        cases = [case for case in unique_questions(random_cases(1, count=160)) if case.instance.benchmark == "HotpotQA"]
        return write_run(tmp_path / "first", cases[:40]), write_run(tmp_path / "second", cases[40:])

    @pytest.mark.slow
    def test_they_are_diagnosed_as_in_memory(self, halves, tmp_path):
        first, second = halves
        split_run(second, tmp_path / "parts" / "second", rows=9)
        expected, results = eclose.diagnose(halves), eclose.diagnose([first, tmp_path / "parts" / "second"])
        assert results.diagnosis == expected.diagnosis
        assert results.cases == expected.cases
        assert results.notices == expected.notices
        assert results.context.systems == expected.context.systems

    @pytest.mark.slow
    def test_repeated_ids_get_the_name_of_the_run(self, halves, tmp_path):
        first, _ = halves
        cases = read_judged_cases(first).cases
        other = [replace(case, response=replace(case.response, source=ResponseSource("another"))) for case in cases]
        runs = [first, write_run(tmp_path / "other", other)]
        split_run(runs[1], tmp_path / "parts" / "other", rows=9)
        expected = eclose.diagnose(runs)
        results = eclose.diagnose([first, tmp_path / "parts" / "other"])
        assert results.cases == expected.cases
        assert results.cases[0].response.id.startswith("first/")
        labelled = count_runs([first, tmp_path / "parts" / "other"]).labelled
        assert [case.response.id for case in labelled] == [case.response.id for case in expected.cases]

    def test_a_run_that_is_part_of_another_is_refused(self, halves, tmp_path):
        first, _ = halves
        split_run(first, tmp_path / "again")
        with pytest.raises(UserError, match="every response of first is in again too"):
            eclose.diagnose([first, tmp_path / "again"])
        with pytest.raises(SettingError, match="named twice"):
            eclose.diagnose([tmp_path / "again", tmp_path / "again"])

    def test_another_question_under_the_same_id_is_refused(self, halves, tmp_path):
        first, _ = halves
        cases = read_judged_cases(first).cases
        other = [replace(case, instance=replace(case.instance, question="Another?")) for case in cases]
        split_run(write_run(tmp_path / "other", other), tmp_path / "parts")
        with pytest.raises(UserError, match="Runs can be combined only where the same id is the same question"):
            eclose.diagnose([first, tmp_path / "parts"])

    @pytest.mark.slow
    def test_a_run_in_another_format_is_read_beside_parts(self, halves, tmp_path):
        first, second = halves
        split_run(second, tmp_path / "parts" / "second", rows=9)
        expected = eclose.diagnose(halves)
        rows = [json.loads(line) for line in (first / "responses.jsonl").read_text().splitlines()]
        (first / "responses.jsonl").write_text(json.dumps(rows))
        results = eclose.diagnose([first, tmp_path / "parts" / "second"])
        assert (results.diagnosis, results.cases) == (expected.diagnosis, expected.cases)


def test_hashes_of_questions_are_those_of_the_files(dirty_run, parts):  # noqa: F811
    hashes = [[(key, hashed) for key, hashed, _ in count_runs([run]).list_questions()] for run in (dirty_run, parts)]
    assert hashes[0] == hashes[1]
    assert all(all(hashed) for _, hashed in hashes[0])
