"""Feedback on the traces of a real MLflow server, read back by its own client."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace

import pytest

import eclose
from eclose.files.jsonl import read_records, write_records
from eclose.integrations.scores import ScoreName
from eclose.values.judgment import Judgment
from eclose.values.response import Response, SpanRef
from tests.integrations.stores import write_judged_run

pytestmark = pytest.mark.slow
mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(
        [*command, "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"],
        cwd=folder,
        env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield url
    finally:
        # The server starts workers, which outlive a signal to itself alone.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.filterwarnings("ignore")
def test_feedback_is_read_back_and_not_doubled(server, tmp_path):
    run = write_judged_run(tmp_path / "run", questions=3)
    mlflow.set_tracking_uri(server)
    responses = list(read_records(run / "responses.jsonl", Response))
    traced = []
    for response in responses[1:]:
        with mlflow.start_span("answer") as span:
            span.set_inputs({"question": response.instance_id})
            span.set_outputs(response.answer)
        traced.append(replace(response, span=SpanRef(span.trace_id, span.span_id, "mlflow")))
    mlflow.flush_trace_async_logging()
    write_records(run / "responses.jsonl", [responses[0], *traced])
    first = eclose.export(run, server, to="mlflow", environ={}, allow_stale=True)
    # The first response has no trace in the store, so its scores are refused and counted.
    assert (first.sent, sum(first.refused.values())) == (5 * len(ScoreName), len(ScoreName))
    assert "no such trace" in next(iter(first.refused))
    second = eclose.export(run, server, to="mlflow", environ={}, allow_stale=True)
    assert (second.sent, second.present) == (0, first.sent)
    judgments = {judgment.response_id: judgment for judgment in read_records(run / "judgments.jsonl", Judgment)}
    unjudged = 0
    for response in traced:
        feedback = {item.name: item for item in mlflow.get_trace(response.span.trace_id).info.assessments}
        verdict = judgments[response.id].verdict
        assert len(feedback) == len(ScoreName)
        for name, label in (("alignment", "aligned"), ("closure", "closed"), ("accuracy", "correct")):
            item, value = feedback[f"eclose.{name}"], getattr(verdict, label)
            assert item.value is value
            assert (item.error is not None) == (value is None)
            assert item.source.source_type == "LLM_JUDGE"
            assert item.metadata["eclose.run"].startswith("sha256:")
            assert item.span_id == response.span.span_id
            unjudged += value is None
    assert unjudged
