"""A judged run whose responses have spans, and stand-ins of trace stores with the shapes of their public APIs."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import eclose
from eclose.files.jsonl import write_records
from eclose.values.response import SpanRef
from eclose_world.demo import make_demo_cases
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread

LANGFUSE_FIELDS = {
    "id", "traceId", "observationId", "name", "value", "dataType", "comment", "metadata", "timestamp",
}  # fmt: skip
FEEDBACK_FIELDS = {
    "id", "run_id", "trace_id", "key", "score", "value", "comment", "error", "feedback_source",
}  # fmt: skip
ANNOTATION_FIELDS = {"span_id", "trace_id", "name", "annotator_kind", "identifier", "result", "metadata"}
SECRET = "sk-lf-0123456789abcdef0123"


def write_judged_run(folder, questions=20):
    """Write responses with spans, the first without, the second without an answer; judge them by the world."""
    cases = [case for group in make_demo_cases(questions) for case in group]
    write_records(folder / "instances.jsonl", [case.instance for case in cases[::2]])
    responses = [
        replace(case.response, span=SpanRef(f"{number:032x}", f"{number:016x}", "otlp") if number else None)
        for number, case in enumerate(cases)
    ]
    # Without an answer, closure and correctness cannot be judged.
    responses[1] = replace(responses[1], answer=None, completion=None)
    write_records(folder / "responses.jsonl", responses)
    with ModelServerThread(build_world_handlers()) as server:
        eclose.evaluate(folder, judge=server.base_url, calls=eclose.CallSettings(unpriced=True))
    return folder


class _Server(ThreadingHTTPServer):
    # The default of 5 drops connections of eight clients on a busy machine.
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False


@contextmanager
def serve(answer):
    """Serve the answers of a function of request and body, (status, headers, body); yield the address."""

    class Handler(BaseHTTPRequestHandler):
        # Connections are reused, and Nagle's algorithm would delay every reply on them.
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self):
            status, headers, body = answer(self, self.rfile.read(int(self.headers.get("content-length") or 0)))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TraceStore:
    """A server that stores what it is sent under its id, as the stores do, and notes every request."""

    def __init__(self):
        self.scores = {}
        self.requests = []
        self.failures = []
        """Status codes to answer the next requests with."""
        self.unknown_spans = set()
        self.rejected_names = set()
        """Names of scores that Langfuse accepts as a request and rejects as a score."""
        self._lock = threading.Lock()
        self._serving = serve(self._reply)

    def __enter__(self):
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *error):
        self._serving.__exit__(*error)

    def _reply(self, request, body):
        with self._lock:
            status, reply = self._answer(request.path, json.loads(body), dict(request.headers))
        return status, {"content-type": "application/json", "retry-after": "0"}, json.dumps(reply).encode()

    def _answer(self, path, body, headers):
        self.requests.append((path, body, headers))
        if self.failures:
            return self.failures.pop(0), {"message": f"try later, {SECRET}"}
        return {
            "/api/public/scores": self._langfuse,
            "/feedback": self._langsmith,
            "/v1/span_annotations?sync=true": self._phoenix,
            "/v1/logs": self._otlp,
            "/v1/traces": self._otlp,
        }[path](body, {name.lower(): value for name, value in headers.items()})

    def _langfuse(self, body, headers):
        if headers.get("authorization") != "Basic " + base64.b64encode(f"pk-lf-1:{SECRET}".encode()).decode():
            return 401, {"message": "Invalid credentials"}
        assert set(body) <= LANGFUSE_FIELDS
        # A Boolean score takes 0 or 1 alone, a category takes a text.
        assert body["value"] in (0, 1) if body["dataType"] == "BOOLEAN" else isinstance(body["value"], str)
        if body["name"] in self.rejected_names:
            return 207, {"accepted": 0, "rejected": 1, "errors": [{"message": "no such score config"}]}
        self.scores[body["id"]] = body
        return 200, {"id": body["id"]}

    def _langsmith(self, body, headers):
        if headers.get("x-api-key") != SECRET:
            return 403, {"detail": "Forbidden"}
        assert set(body) <= FEEDBACK_FIELDS
        if body["id"] in self.scores:
            return 409, {"detail": "Conflict"}
        self.scores[body["id"]] = body
        return 200, body

    def _phoenix(self, body, _headers):
        for annotation in body["data"]:
            assert set(annotation) <= ANNOTATION_FIELDS
            assert annotation["result"], "at least a label, a score or an explanation"
            if annotation["span_id"] in self.unknown_spans:
                return 404, {"detail": f"Spans with IDs {annotation['span_id']} do not exist."}
        for annotation in body["data"]:
            key = (annotation["span_id"], annotation["name"], annotation["identifier"])
            self.scores[key] = annotation
        return 200, {"data": [{"id": "U3Bhbg=="} for _ in body["data"]]}

    def _otlp(self, body, _headers):
        for logs in body.get("resourceLogs", ()):
            for scope in logs["scopeLogs"]:
                for record in scope["logRecords"]:
                    values = {pair["key"]: next(iter(pair["value"].values())) for pair in record["attributes"]}
                    self.scores[values["log.record.uid"]] = values
        return 200, {}
