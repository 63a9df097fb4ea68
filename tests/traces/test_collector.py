"""The collector: what it stores, what it refuses, and that nothing it acknowledged is lost."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.traces.files import make_trace, wrap_spans

from eclose.benchmarks.load import scan_recorded_responses
from eclose.errors import SettingError, UserError

aiohttp = pytest.importorskip("aiohttp")
from eclose.traces import collector as collector_module
from eclose.traces.collector import DurableLines, QueueFullError, open_collector
from eclose.traces.otlp_protobuf import encode_status

JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def run(work):
    return asyncio.run(work)


async def post(url, body, headers=JSON, path="/v1/traces"):
    async with aiohttp.ClientSession() as session, session.post(url + path, data=body, headers=headers) as reply:
        return reply.status, await reply.read(), reply.headers


def collect(out, *requests, **settings):
    """Return the replies to requests, one after the other, and the collector's counts."""

    async def work():
        async with open_collector(out, port=0, **settings) as collector:
            replies = [await post(collector.url, *request) for request in requests]
            return replies, collector.counts

    return run(work())


def test_a_request_is_a_line_that_can_be_judged(tmp_path):
    out = tmp_path / "new" / "traces.jsonl"
    body = json.dumps(wrap_spans(*make_trace()))
    packed = gzip.compress(json.dumps(wrap_spans(*make_trace(2))).encode())
    replies, counts = collect(out, (body,), (packed, {**JSON, "Content-Encoding": "gzip"}))
    assert [(status, data) for status, data, _ in replies] == [(200, b"{}")] * 2
    assert (counts.requests, counts.spans, counts.refused) == (2, 6, 0)
    assert [record.value.answer for record in scan_recorded_responses(out) if record.value] == ["Lund", "Lund"]


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        ((b"{", JSON), 400, "JSON"),
        ((b"[]", JSON), 400, "object"),
        ((b'{"spans": []}', JSON), 400, "resourceSpans"),
        ((json.dumps(wrap_spans({"name": "x"})).encode(), JSON), 400, "trace id: is missing"),
        ((b"{}", {"Content-Type": "text/plain"}), 415, "application/json"),
        ((b"x" * 5_000, JSON), 413, "larger than 4,096 bytes"),
        ((gzip.compress(b" " * 10_000_000), {**JSON, "Content-Encoding": "gzip"}), 413, "larger than 4,096 bytes"),
        ((b"{}", JSON, "/v1/metrics"), 404, "POST /v1/traces"),
    ],
)
def test_what_is_refused_is_told_and_not_stored(tmp_path, request_, status, message):
    out = tmp_path / "t.jsonl"
    ((code, body, _),), counts = collect(out, request_, max_body_bytes=4_096)
    assert code == status
    assert message in json.loads(body)["message"]
    assert counts.refused == 1
    assert out.read_bytes() == b""


def test_a_request_too_long_to_be_read_again_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(collector_module, "RECORD_LIMIT", 200)
    ((status, _, _),), _ = collect(tmp_path / "t.jsonl", (json.dumps(wrap_spans(*make_trace())),))
    assert status == 413


def test_an_empty_request_is_acknowledged_and_writes_nothing(tmp_path):
    out = tmp_path / "t.jsonl"
    replies, _ = collect(out, (b"{}",), (b'{"resourceSpans": []}',))
    assert [status for status, _, _ in replies] == [200, 200]
    assert out.read_bytes() == b""


def test_a_full_queue_asks_the_client_to_come_back(tmp_path):
    body = json.dumps(wrap_spans(*make_trace()))
    ((status, _, headers),), _ = collect(tmp_path / "t.jsonl", (body,), max_queue_bytes=100)
    assert status == 429
    assert headers["Retry-After"] == "1"


def test_a_full_disk_is_unavailable_and_leaves_no_half_line(tmp_path, monkeypatch):
    out = tmp_path / "t.jsonl"
    out.write_bytes(b'{"resourceSpans":[]}\n')

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collector_module.os, "fsync", fail)
    monkeypatch.setattr(DurableLines, "_repair_end", lambda _: None)
    ((status, data, headers),), counts = collect(out, (json.dumps(wrap_spans(*make_trace())),))
    assert status == 503
    assert "No space left" in json.loads(data)["message"]
    assert headers["Retry-After"] == "1"
    assert counts.spans == 0
    assert out.read_bytes() == b'{"resourceSpans":[]}\n'


@pytest.mark.parametrize(
    ("before", "after", "cut"),
    [
        (b'{"a": 1}\n{"resourceSp', b'{"a": 1}\n', 12),
        (b'{"a": 1}\n{"b": 2}', b'{"a": 1}\n{"b": 2}\n', 0),
        (b'{"resourceSp' + b"x" * 200_000, b"", 200_012),
        (b"", b"", 0),
    ],
)
def test_half_a_line_of_a_crash_is_removed_and_a_whole_one_ended(tmp_path, before, after, cut):
    path = tmp_path / "t.jsonl"
    path.write_bytes(before)

    async def work():
        with DurableLines(path) as lines:
            return lines.cut_bytes

    assert run(work()) == cut
    assert path.read_bytes() == after


def test_lines_that_wait_share_a_sync(tmp_path, monkeypatch):
    syncs = []
    monkeypatch.setattr(collector_module.os, "fsync", syncs.append)

    async def work():
        with DurableLines(tmp_path / "t.jsonl") as lines:
            await asyncio.gather(*(lines.append(b"%d\n" % number) for number in range(200)))

    run(work())
    assert sorted(map(int, (tmp_path / "t.jsonl").read_text().split())) == list(range(200))
    assert len(syncs) < 100


def test_a_line_after_the_end_is_refused(tmp_path):
    async def work():
        with DurableLines(tmp_path / "t.jsonl") as lines:
            pass
        with pytest.raises(QueueFullError):
            await lines.append(b"late\n")

    run(work())


def test_two_collectors_do_not_share_a_file_and_none_serves_the_network(tmp_path):
    async def twice():
        async with open_collector(tmp_path / "t.jsonl", port=0), open_collector(tmp_path / "t.jsonl", port=0):
            pass

    with pytest.raises(UserError, match="another collector writes to it"):
        run(twice())

    async def abroad():
        async with open_collector(tmp_path / "u.jsonl", host="0.0.0.0", port=0):
            pass

    with pytest.raises(SettingError, match="no authentication"):
        run(abroad())


def test_protobuf_is_stored_as_otlp_json(tmp_path):
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = service.ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name = bytes(range(16)), bytes(range(1, 9)), "qa"
    span.links.add(trace_id=bytes(range(16)), span_id=bytes(range(1, 9)))
    out = tmp_path / "t.jsonl"
    replies, _ = collect(out, (request.SerializeToString(), PROTOBUF), (b"\xff\xff", PROTOBUF))
    assert [(status, len(data) > 0) for status, data, _ in replies] == [(200, False), (400, True)]
    stored = json.loads(out.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert (stored["traceId"], stored["spanId"]) == (bytes(range(16)).hex(), bytes(range(1, 9)).hex())
    assert stored["links"][0]["traceId"] == bytes(range(16)).hex()


def test_errors_in_protobuf_are_a_status_message():
    assert encode_status(3, "x" * 200) == b"\x08\x03\x12\xc8\x01" + b"x" * 200


@pytest.mark.slow
def test_a_killed_collector_loses_nothing_it_acknowledged(tmp_path):
    campaign = Path(__file__).parents[2] / "campaigns" / "collect_kills.py"
    command = [sys.executable, campaign, "--seconds", "6", "--kills", "3", "--rate", "300", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["value"] == 0
    assert result["kills"] == 3
    assert result["acknowledged"] > 300


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_says_what_it_stored(tmp_path):
    out = tmp_path / "t.jsonl"
    code = "from eclose.cli.main import main; main()"
    command = [sys.executable, "-c", code, "collect", "--out", str(out), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[2].removesuffix("/v1/traces")
        status, _, _ = run(post(url, json.dumps(wrap_spans(*make_trace()))))
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=30)
    assert (status, process.returncode, errors) == (200, 0, "")
    assert f"3 spans of 1 requests are in {out}; 0 requests were refused." in rest
    # From Python the file is the same, byte for byte.
    collect(tmp_path / "python.jsonl", (json.dumps(wrap_spans(*make_trace())),))
    assert (tmp_path / "python.jsonl").read_bytes() == out.read_bytes()
