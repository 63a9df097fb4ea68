"""Traces fetched by window: each once and whole, after any interruption, from servers with the APIs of the stores."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.integrations import fetch, stores
from eclose.integrations.fetch import TRACE_SOURCES, fetch_traces
from eclose.readers.import_settings import ImportSettings
from eclose.readers.load import scan_recorded_responses
from eclose.values.times import normalize_time
from tests.integrations.stores import serve
from tests.readers.spans.files import ANSWER, DOCUMENT, QUESTION

FIRST = datetime(2026, 11, 1, tzinfo=UTC)
SECRET = "sk-lf-0123456789abcdef0123"
KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-1", "LANGFUSE_SECRET_KEY": SECRET, "PHOENIX_API_KEY": SECRET}
KEYS |= {"MLFLOW_TRACKING_TOKEN": SECRET}
UNTIL = "2026-11-01T06:00:00Z"
TRACES = 23


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch):
    monkeypatch.setattr(stores, "_LONGEST_WAIT", 0.0)
    monkeypatch.setattr(fetch, "_PAGE", 4)
    monkeypatch.setattr(fetch, "_MLFLOW_PAGE", 4)


def text(moment):
    return moment.isoformat().replace("+00:00", "Z")


class Store:
    """Traces of a root and a retriever, of which every third goes on in the next hour, served as the stores do."""

    def __init__(self, kind, count=TRACES):
        self.kind = kind
        self.requests = []
        self.failures = {}
        """Status of the answer to the request of a number."""
        self.empty = set()
        """Traces that are listed and have no span."""
        starts = [FIRST + timedelta(minutes=15 * number) for number in range(count)]
        self.traces = {f"{number + 1:032x}": start for number, start in enumerate(starts)}

    def answer(self, request, body):
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.command, urlsplit(request.path), headers, json.loads(body or b"null")))
        if (status := self.failures.get(len(self.requests))) is not None:
            return status, {}, f"try later, {request.headers.get('authorization')}".encode()
        parts = urlsplit(request.path)
        reply = getattr(self, f"_{self.kind}")(parts.path, parse_qs(parts.query), json.loads(body or b"null"))
        return 200, {}, json.dumps(reply).encode()

    def _page(self, items, query):
        start, size = int(query.get("cursor", ["0"])[0]), int(query["limit"][0])
        return items[start : start + size], str(start + size) if start + size < len(items) else None

    def _begun(self, since, until):
        return [key for key, start in self.traces.items() if since <= text(start) < until]

    def _spans(self, trace_id):
        if trace_id in self.empty:
            return []
        start = self.traces[trace_id]
        later = start + timedelta(hours=1 if int(trace_id, 16) % 3 == 0 else 0)
        content = {"input.value": QUESTION, "output.value": ANSWER}
        documents = {"retrieval.documents.0.document.content": f"{DOCUMENT} {trace_id}"}
        return [
            (f"{int(trace_id, 16) * 2:016x}", None, "CHAIN", start, content),
            (f"{int(trace_id, 16) * 2 + 1:016x}", f"{int(trace_id, 16) * 2:016x}", "RETRIEVER", later, documents),
        ]

    def _phoenix(self, path, query, _):
        project, kind = path.removeprefix("/v1/projects/").split("/")
        assert unquote(project) == "default"
        if kind == "traces":
            items = [{"trace_id": key} for key in self._begun(query["start_time"][0], query["end_time"][0])]
        else:
            items = [
                {
                    "name": "s",
                    "context": {"trace_id": key, "span_id": span_id},
                    "parent_id": parent,
                    "span_kind": kind,
                    "start_time": text(start),
                    "end_time": text(start),
                    "attributes": attributes,
                }
                for key in query["trace_id"]
                for span_id, parent, kind, start, attributes in self._spans(key)
            ]
        data, cursor = self._page(items, query)
        return {"data": data, "next_cursor": cursor}

    def _langfuse(self, path, query, _):
        assert path == "/api/public/v2/observations"
        rows = [
            {
                "id": span_id,
                "traceId": key,
                "startTime": text(start),
                "endTime": text(start),
                "type": kind,
                # A null is left out, as its client does.
                **({} if parent is None else {"parentObservationId": parent}),
                "input": attributes.get("input.value"),
                "output": attributes.get("output.value") or json.dumps([{"page_content": DOCUMENT + key}]),
            }
            for key in self.traces
            for span_id, parent, kind, start, attributes in self._spans(key)
        ]
        if "traceId" in query:
            rows = [row for row in rows if row["traceId"] == query["traceId"][0]]
        else:
            rows = [row for row in rows if query["fromStartTime"][0] <= row["startTime"] < query["toStartTime"][0]]
        data, cursor = self._page(rows, query)
        return {"data": data, "meta": {} if cursor is None else {"cursor": cursor}}

    def _mlflow(self, path, query, body):
        if path.endswith("get-by-name"):
            return {"experiment": {"experiment_id": "7"}}
        if path.endswith("/search"):
            since, until = (normalize_time(word) for word in body["filter"].split() if word.isdecimal())
            items = [{"trace_id": key} for key in self._begun(since, until)]
            page = {"limit": [str(body["max_results"])], "cursor": [body.get("page_token", "0")]}
            data, cursor = self._page(items, page)
            return {**({"traces": data} if data else {}), **({"next_page_token": cursor} if cursor else {})}
        key = query["request_id"][0]
        names = {"input.value": "mlflow.spanInputs", "output.value": "mlflow.spanOutputs"}
        spans = [
            {
                "span_id": span_id,
                "parent_span_id": parent,
                "name": "s",
                "start_time_unix_nano": int(start.timestamp()) * 10**9,
                "end_time_unix_nano": int(start.timestamp()) * 10**9,
                "attributes": {"mlflow.spanType": json.dumps(kind)}
                | {names[name]: json.dumps(value) for name, value in attributes.items() if name in names}
                | ({"mlflow.spanOutputs": json.dumps([{"page_content": DOCUMENT + key}])} if parent else {}),
            }
            for span_id, parent, kind, start, attributes in self._spans(key)
        ]
        return {"spans": spans}


def fetch_from(store, out, **settings):
    with serve(store.answer) as url:
        settings = {"since": text(FIRST), "until": UNTIL, "by": "1h", "environ": KEYS, **settings}
        return fetch_traces(store.kind, out, url=settings.pop("url", url), **settings)


@pytest.mark.parametrize("kind", TRACE_SOURCES)
def test_every_trace_of_a_span_of_time_is_fetched_once_and_whole(kind, tmp_path):
    store, out = Store(kind), tmp_path / "traces.jsonl"
    result = fetch_from(store, out)
    assert (result.state.traces, result.empty, result.state.until) == (TRACES, 0, UNTIL)
    lines = out.read_text().splitlines()
    assert len(lines) == len(set(lines)) == result.state.records
    responses = [record.value for record in scan_recorded_responses(out, settings=ImportSettings())]
    assert [response.answer for response in responses] == ["Lund"] * TRACES
    assert sorted(response.span.trace_id for response in responses) == sorted(store.traces)
    assert {response.time for response in responses} == {text(start) for start in store.traces.values()}


@pytest.mark.parametrize("kind", TRACE_SOURCES)
@pytest.mark.parametrize("broken", [1, 2, 4, 9, 14])
def test_a_fetch_that_breaks_off_goes_on_without_a_loss(kind, broken, tmp_path, monkeypatch):
    whole = tmp_path / "whole.jsonl"
    fetch_from(Store(kind), whole)
    store, out = Store(kind), tmp_path / "traces.jsonl"
    monkeypatch.setattr(stores, "_ATTEMPTS", 1)
    # One trace at a time, so that a window breaks off within.
    monkeypatch.setattr(fetch, "_CONCURRENCY", 1)
    with serve(store.answer) as url:
        settings = {"since": text(FIRST), "until": UNTIL, "by": "2h", "environ": KEYS, "url": url}
        store.failures = {broken: 503}
        with pytest.raises(UserError, match=r"does not return the traces \(HTTP 503 try later"):
            fetch_traces(kind, out, **settings)
        fetch_traces(kind, out, **settings)
    assert sorted(out.read_text().splitlines()) == sorted(whole.read_text().splitlines())


def test_the_same_command_adds_what_came_since_and_then_nothing(tmp_path):
    store, out = Store("phoenix"), tmp_path / "new" / "traces.jsonl"
    with serve(store.answer) as url:
        settings = {"since": text(FIRST), "environ": KEYS, "url": url}
        first = fetch_traces("phoenix", out, until="2026-11-01T02:20:00Z", **settings)
        second = fetch_traces("phoenix", out, until=UNTIL, **settings)
        requests = len(store.requests)
        third = fetch_traces("phoenix", out, until=UNTIL, **settings)
    assert str(first) == (
        f"{out}: 10 traces of phoenix added, 20 records, from 2026-11-01T00:00:00Z to 2026-11-01T02:20:00Z"
    )
    assert (second.state.traces - second.before.traces, third.state) == (TRACES - 10, second.state)
    assert len(store.requests) == requests


def test_a_fetch_ends_a_quarter_of_an_hour_ago_by_default(tmp_path):
    result = fetch_from(Store("phoenix"), tmp_path / "t.jsonl", until=None, by="1w")
    ago = datetime.now(UTC) - datetime.fromisoformat(result.state.until)
    assert timedelta(minutes=15) <= ago < timedelta(minutes=17)


@pytest.mark.parametrize("kind", TRACE_SOURCES)
def test_traces_that_have_no_span_are_counted(kind, tmp_path):
    store = Store(kind)
    store.empty = set(list(store.traces)[3:5])
    result = fetch_from(store, tmp_path / "t.jsonl")
    # Langfuse lists observations, so such a trace is not listed.
    assert (result.empty, result.state.traces) == (0 if kind == "langfuse" else 2, TRACES - 2)


def test_a_trace_that_mlflow_deleted_since_is_counted(tmp_path):
    store = Store("mlflow")
    # Behind the six pages of the list.
    store.failures = {8: 404}
    assert fetch_from(store, tmp_path / "t.jsonl", by="6h").empty == 1


def test_requests_to_langfuse_are_those_of_its_client(tmp_path):
    store = Store("langfuse", count=2)
    fetch_from(store, tmp_path / "t.jsonl", by="1d")
    (command, listed, headers, _), (_, read, *_), *_ = store.requests
    assert headers["authorization"] == "Basic " + base64.b64encode(f"pk-lf-1:{SECRET}".encode()).decode()
    assert (command, listed.path) == ("GET", "/api/public/v2/observations")
    since = {"fromStartTime": ["2026-11-01T00:00:00Z"], "toStartTime": [UNTIL]}
    assert parse_qs(listed.query) == {**since, "fields": ["core"], "limit": ["4"]}
    expected = {"traceId": [f"{1:032x}"], "fields": ["core,basic,io,model"], "limit": ["4"]}
    assert parse_qs(read.query) == expected


def test_an_experiment_of_mlflow_is_found_by_its_name(tmp_path):
    store = Store("mlflow", count=1)
    fetch_from(store, tmp_path / "t.jsonl", project="live", by="1d")
    assert store.requests[1][3]["locations"][0]["mlflow_experiment"] == {"experiment_id": "7"}


OTHER_SPAN = {"data": [{"context": {"trace_id": "9"}}], "next_cursor": None}


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([{"data": [], "next_cursor": "a"}, {"data": [], "next_cursor": "a"}], "its pages repeat"),
        ([{"data": [{"trace_id": "1"}], "next_cursor": None}, OTHER_SPAN], "spans of other traces"),
        ([{"data": [{}]}], "listed a trace without trace_id"),
        ([{"data": "no"}], "no list of objects under 'data'"),
        ([b"<html>login</html>"], "not a JSON object"),
    ],
)
def test_replies_that_prove_nothing_end_a_fetch_and_no_window_is_taken(replies, message, tmp_path):
    store, out = Store("phoenix"), tmp_path / "t.jsonl"
    bodies = [reply if isinstance(reply, bytes) else json.dumps(reply).encode() for reply in replies]
    store.answer = lambda *_: (200, {}, bodies.pop(0))
    with pytest.raises(UserError, match=f"does not return the traces from 2026-11-01T00:00:00Z on.*{message}"):
        fetch_from(store, out)
    assert out.read_bytes() == b""


def test_a_reply_that_is_too_long_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_MOST_BYTES", 100)
    monkeypatch.setattr(stores, "_ATTEMPTS", 1)
    with pytest.raises(UserError, match="the body is longer than 100 bytes"):
        fetch_from(Store("phoenix"), tmp_path / "t.jsonl")


@pytest.mark.parametrize("kind", TRACE_SOURCES)
@pytest.mark.parametrize("status", [400, 401, 503])
def test_a_refusal_shows_no_key(kind, status, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "_ATTEMPTS", 1)
    store = Store(kind)
    store.failures = {1: status}
    with pytest.raises(UserError) as raised:
        fetch_from(store, tmp_path / "t.jsonl")
    login = base64.b64encode(f"pk-lf-1:{SECRET}".encode()).decode()
    assert SECRET not in str(raised.value)
    assert login not in str(raised.value)
    assert "[key]" in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"since": "yesterday"}, "since = 'yesterday': write ISO 8601"),
        ({"until": "soon"}, "until = 'soon'"),
        ({"by": "1y"}, "write a number with m, h, d or w"),
        ({"url": "ftp://here"}, "begins with http"),
    ],
)
def test_a_setting_that_cannot_be_read_is_refused_before_a_file_is_made(settings, message, tmp_path):
    with pytest.raises(SettingError, match=message):
        fetch_from(Store("phoenix"), tmp_path / "t.jsonl", **settings)
    assert not list(tmp_path.iterdir())


def test_a_store_without_an_address_or_a_reader_is_refused(tmp_path):
    with pytest.raises(SettingError, match="name the address with --url, or set MLFLOW_TRACKING_URI"):
        fetch_traces("mlflow", tmp_path / "t.jsonl", since="2026-11-01", environ={})
    with pytest.raises(SettingError, match="'otlp': traces are fetched from phoenix, langfuse, mlflow"):
        fetch_traces("otlp", tmp_path / "t.jsonl", since="2026-11-01", environ={})


def test_a_file_of_something_else_is_left_alone(tmp_path):
    out = tmp_path / "t.jsonl"
    out.write_text("{}\n")
    with pytest.raises(UserError, match="exists, and no fetch wrote it"):
        fetch_from(Store("phoenix"), out)
    assert out.read_text() == "{}\n"
    out.unlink()
    store = Store("phoenix")
    with serve(store.answer) as url:
        fetch_from(store, out, url=url)
        with pytest.raises(SettingError, match=r"holds traces of project default\. Name another file for live"):
            fetch_from(store, out, url=url, project="live")
        with pytest.raises(SettingError, match="begins at 2026-11-01T00:00:00Z"):
            fetch_from(store, out, url=url, since="2026-10-01")
        out.write_bytes(out.read_bytes()[:-1])
        with pytest.raises(UserError, match="is shorter than it was fetched"):
            fetch_from(store, out, url=url)


def test_the_command_fetches_as_the_function_does(tmp_path):
    store = Store("phoenix")
    store.empty = {f"{1:032x}"}
    with serve(store.answer) as url:
        words = ["data", "fetch", "phoenix", "--since", text(FIRST), "--until", UNTIL, "--url", url]
        result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "a.jsonl")])
        fetch_traces("phoenix", tmp_path / "b.jsonl", since=text(FIRST), until=UNTIL, url=url, environ={})
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        f"{tmp_path / 'a.jsonl'}: 22 traces of phoenix added, 44 records, from {text(FIRST)} to {UNTIL}",
        "  1 trace listed and returned without a span, not in the file",
    ]
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
