"""The round trip with real servers of Phoenix and MLflow: fetched, judged by a scripted server, sent back, read there.

Each runs where its program is on the path: ``phoenix`` of arize-phoenix, ``mlflow`` of mlflow.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import eclose
from eclose.files.jsonl import read_records
from eclose.integrations.fetch import fetch_traces
from eclose.integrations.scores import ScoreName
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from eclose_world.demo import make_demo_cases
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

pytestmark = pytest.mark.slow

PROJECT = "live answers"
BEGIN = datetime(2026, 11, 20, 10, tzinfo=UTC)
LOG_TRACES = """
import json, mlflow, sys
from mlflow.entities import SpanType
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment(sys.argv[2])
for case in json.load(open(sys.argv[3])):
    with mlflow.start_span("qa", span_type=SpanType.CHAIN) as root:
        root.set_inputs({"question": case["question"]})
        with mlflow.start_span("search", span_type=SpanType.RETRIEVER) as search:
            search.set_inputs({"query": "x"})
            search.set_outputs([{"page_content": text, "metadata": {}} for text in case["passages"]])
        root.set_outputs(case["answer"])
mlflow.flush_trace_async_logging()
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    """A server in a folder of its own, until it is stopped."""

    def __init__(self, program, arguments, folder, url, health, **environ):
        # Not the packages of this checkout, which may be of other versions than the program's.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environ
        command = [program, *arguments]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, env=environ, start_new_session=True, **silent)
        self.url = url
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{url}{health}").close()
                return
            except OSError:
                time.sleep(0.5)
        self.stop()
        pytest.fail(f"{program} does not answer")

    def stop(self):
        # Servers start workers, which outlive a signal to one process alone.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def find_program(name):
    if (program := shutil.which(name)) is None:
        pytest.skip(f"{name} is not installed")
    return program


@pytest.fixture
def phoenix(tmp_path):
    port, grpc = free_port(), free_port()
    environ = {"PHOENIX_WORKING_DIR": str(tmp_path), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_TELEMETRY_ENABLED": "false"}
    environ |= {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc)}
    server = Server(find_program("phoenix"), ["serve"], tmp_path, f"http://127.0.0.1:{port}", "/v1/projects", **environ)
    yield server.url
    server.stop()


@pytest.fixture
def mlflow(tmp_path):
    port = free_port()
    arguments = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    arguments += ["--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    url, environ = f"http://127.0.0.1:{port}", {"MLFLOW_DISABLE_TELEMETRY": "true"}
    server = Server(find_program("mlflow"), arguments, tmp_path, url, "/health", **environ)
    yield server.url
    server.stop()


def answered():
    """Questions of the world with their passages and answers, as an application has them."""
    cases = [case for group in make_demo_cases(3) for case in group]
    return [
        {
            "question": case.instance.question,
            "passages": [passage.text for passage in case.instance.evidence],
            "answer": f"{case.response.trace.numbered}Final answer: {case.response.answer}",
        }
        for case in cases
    ]


def send(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def judge(traces, run):
    with ModelServerThread(build_world_handlers()) as server:
        eclose.evaluate(traces, judge=server.base_url, out=run, calls=eclose.CallSettings(unpriced=True))
    responses = list(read_records(run / "responses.jsonl", Response))
    return responses, {each.response_id: each for each in read_records(run / "judgments.jsonl", Judgment)}


def test_traces_of_phoenix_are_fetched_judged_and_sent_back(phoenix, tmp_path):
    cases = answered()
    spans = []
    for number, case in enumerate(cases, start=1):
        moment = BEGIN + timedelta(minutes=20 * number)
        attributes = {
            "qa": {"input.value": case["question"], "output.value": case["answer"]},
            "search": {"retrieval.documents": [{"document": {"content": text}} for text in case["passages"]]},
        }
        for position, (name, kind) in enumerate((("qa", "CHAIN"), ("search", "RETRIEVER")), start=1):
            context = {"trace_id": f"{number:032x}", "span_id": f"{16 * number + position:016x}"}
            times = {"start_time": moment.isoformat(), "end_time": (moment + timedelta(seconds=9)).isoformat()}
            parent = None if position == 1 else f"{16 * number + 1:016x}"
            span = {"name": name, "context": context, "span_kind": kind, "parent_id": parent, "status_code": "OK"}
            spans.append({**span, **times, "attributes": attributes[name]})
    send("POST", f"{phoenix}/v1/projects", {"name": PROJECT})
    project = f"{phoenix}/v1/projects/{PROJECT.replace(' ', '%20')}"
    assert send("POST", f"{project}/spans", {"data": spans})["total_queued"] == len(spans)
    for _ in range(100):
        if len(send("GET", f"{project}/spans?limit=1000")["data"]) == len(spans):
            break
        time.sleep(0.1)
    traces = tmp_path / "traces.jsonl"
    settings = {"since": "2026-11-20", "url": phoenix, "project": PROJECT, "environ": {}}
    first = fetch_traces("phoenix", traces, until="2026-11-20T11:00:00Z", **settings)
    second = fetch_traces("phoenix", traces, until="2026-11-21", **settings)
    assert (first.state.traces, second.state.traces, second.state.records) == (2, len(cases), len(spans))
    responses, judgments = judge(traces, tmp_path / "run")
    assert [response.time for response in responses[:2]] == ["2026-11-20T10:20:09Z", "2026-11-20T10:40:09Z"]
    assert eclose.trend(tmp_path / "run", by="1h").windows[0].responses == 2
    for _ in range(2):
        assert eclose.export(tmp_path / "run", phoenix, to="phoenix", environ={}).sent == len(cases) * len(ScoreName)
    for response in responses:
        notes = send("GET", f"{project}/span_annotations?span_ids={response.span.span_id}")["data"]
        assert len(notes) == len(ScoreName)
        by_name = {note["name"]: note["result"] for note in notes}
        closed = judgments[response.id].verdict.closed
        assert by_name["eclose.closure"].get("score") == (None if closed is None else float(closed))


def test_traces_of_mlflow_are_fetched_judged_and_sent_back(mlflow, tmp_path):
    cases = answered()
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    python = Path(shutil.which("mlflow")).with_name("python")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    log = [python, "-c", LOG_TRACES, mlflow, PROJECT, tmp_path / "cases.json"]
    subprocess.run(log, check=True, cwd=tmp_path, env=environ, capture_output=True)
    traces, until = tmp_path / "traces.jsonl", datetime.now(UTC).isoformat()
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    settings = {"since": since, "until": until, "url": mlflow, "project": PROJECT, "environ": {}}
    result = fetch_traces("mlflow", traces, **settings)
    assert (result.state.traces, result.empty) == (len(cases), 0)
    assert fetch_traces("mlflow", traces, **settings).state == result.state
    responses, judgments = judge(traces, tmp_path / "run")
    assert all(response.time is not None for response in responses)
    assert eclose.export(tmp_path / "run", mlflow, to="mlflow", environ={}).sent == len(cases) * len(ScoreName)
    for response in responses:
        reply = send("GET", f"{mlflow}/api/3.0/mlflow/traces/{response.span.trace_id}")
        notes = {note["assessment_name"]: note for note in reply["trace"]["trace_info"]["assessments"]}
        assert len(notes) == len(ScoreName)
        assert notes["eclose.closure"]["feedback"].get("value") is judgments[response.id].verdict.closed
