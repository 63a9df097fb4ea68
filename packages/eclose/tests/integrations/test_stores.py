"""Stores that lie: a score counts as sent only where the reply proves it, and no reply shows a key or fills memory."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
import zlib
from urllib.parse import quote

import pytest

from eclose.calls.sync import iterate_async
from eclose.errors import SettingError, UserError
from eclose.integrations import stores
from eclose.integrations.otlp import parse_otlp_headers
from eclose.integrations.scores import DeliveryStatus, ScoredResponse, ScoreName, VerdictScore, VerdictScoreTable
from eclose.integrations.stores import TRACE_STORES, send_scores
from tests.integrations.stores import serve

SECRET, PUBLIC, PASSWORD = "sk-lf-0123456789abcdef0123", "PUBLIC_0123456789abcdef", "correct horse battery"
KEYS = {
    "LANGFUSE_PUBLIC_KEY": PUBLIC,
    "LANGFUSE_SECRET_KEY": SECRET,
    "LANGSMITH_API_KEY": SECRET,
    "PHOENIX_API_KEY": SECRET,
    "MLFLOW_TRACKING_USERNAME": "someone",
    "MLFLOW_TRACKING_PASSWORD": PASSWORD,
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{SECRET}, x-scope={PUBLIC}",
}
SCORE = VerdictScore("6f1c7b1e-1111-4222-8333-444455556666", ScoreName.RELIABILITY, True, "reliable", "“as is”: é 漢")
TABLE = VerdictScoreTable(
    "sha256:0", 10**18, (ScoredResponse("r1", "q1", "j", None, "a" * 32, "b" * 16, False, (SCORE,)),)
)
TRACE = {"trace": {"trace_info": {"assessments": []}}}


def send(to, answer):
    with serve(answer) as url:
        return list(iterate_async(send_scores(TRACE_STORES[to], TABLE, url, KEYS)))


def says(reply, **headers):
    body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return lambda *_: (200, headers, body)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch):
    monkeypatch.setattr(stores, "_LONGEST_WAIT", 0.0)


@pytest.mark.parametrize("to", TRACE_STORES)
@pytest.mark.parametrize("reply", [b"<html>login</html>", {"error": "nope"}, [], b'{"id": 1, "id": 2}'])
def test_scores_are_refused_where_the_reply_of_a_store_is_no_success(to, reply):
    (delivery,) = send(to, says(reply))
    assert (delivery.scores, delivery.status) == (1, DeliveryStatus.REFUSED)
    assert delivery.reason


@pytest.mark.parametrize("to", [to for to in TRACE_STORES if to != "otlp"])
def test_an_empty_reply_proves_nothing_except_for_otlp(to):
    assert send(to, says(b""))[0].status is DeliveryStatus.REFUSED
    assert send("otlp", says(b""))[0].status is DeliveryStatus.SENT


@pytest.mark.parametrize("to", ["langfuse", "langsmith", "mlflow"])
@pytest.mark.parametrize("reply", [TRACE, TRACE | {"id": "another"}, TRACE | {"assessment": {}}])
def test_scores_are_refused_where_their_id_is_not_returned(to, reply):
    (delivery,) = send(to, says(reply))
    assert delivery.status is DeliveryStatus.REFUSED
    assert "id" in delivery.reason


@pytest.mark.parametrize(
    ("to", "reply"),
    [
        ("langfuse", {"id": SCORE.id}),
        ("langsmith", {"id": SCORE.id.upper()}),
        ("phoenix", {"data": []}),
        ("mlflow", TRACE | {"assessment": {"assessment_id": "a-1"}}),
        ("otlp", {"partialSuccess": {}}),
    ],
)
def test_bodies_are_compact_json_in_utf_8_and_count_as_sent_where_the_id_is_returned(to, reply):
    bodies = []

    def answer(request, body):
        bodies.append(body)
        return 200, {}, json.dumps(reply).encode()

    assert [delivery.status for delivery in send(to, answer)] == [DeliveryStatus.SENT]
    for body in filter(None, bodies):
        assert json.dumps(json.loads(body), ensure_ascii=False, separators=(",", ":")).encode() == body


@pytest.mark.parametrize(
    ("to", "reply"),
    [
        ("mlflow", {"trace": None}),
        ("mlflow", {"trace": []}),
        ("mlflow", {"trace": {"trace_info": {"assessments": ["no", {"metadata": [1]}]}}}),
        ("langfuse", {"rejected": 1, "errors": ["no"]}),
        ("langfuse", {"rejected": 1, "errors": {"message": 1}}),
        ("otlp", b'{"partialSuccess": {"rejectedLogRecords": 1e400}}'),
        ("otlp", {"partialSuccess": {"rejectedLogRecords": "-5"}}),
        ("otlp", {"partialSuccess": {"rejectedLogRecords": True}}),
        ("otlp", {"partialSuccess": [1]}),
    ],
)
def test_odd_replies_are_refusals_and_no_tracebacks(to, reply):
    deliveries = send(to, says(reply))
    assert {delivery.status for delivery in deliveries} == {DeliveryStatus.REFUSED}
    assert sum(delivery.scores for delivery in deliveries) == 1


def echo(status, encode):
    def answer(request, _):
        headers = {
            name: request.headers[name] for name in ("authorization", "x-api-key", "x-scope") if request.headers[name]
        }
        return status, {}, f"denied: {' '.join(map(encode, headers.values()))}".encode()

    return answer


ENCODINGS = {
    "plain": str,
    "base64": lambda text: base64.b64encode(f"your header is {text}".encode()).decode(),
    "percent": lambda text: quote(text, safe=""),
    "JSON": json.dumps,
    "hex": lambda text: text.encode().hex(),
    "the login": lambda text: base64.b64decode(text[6:]).decode() if text.startswith("Basic ") else text,
}


@pytest.mark.parametrize("to", TRACE_STORES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_secret_of_a_header_is_shown_in_any_encoding(to, encoding):
    encode = ENCODINGS[encoding]
    texts = [str(send(to, echo(400, encode)))]
    for status in (401, 503):
        with pytest.raises(UserError) as raised:
            send(to, echo(status, encode))
        texts.append(str(raised.value))
    plain = [PUBLIC, SECRET, PASSWORD]
    logins = [f"{PUBLIC}:{SECRET}", f"someone:{PASSWORD}"]
    forbidden = [
        *plain, *(base64.b64encode(text.encode()).decode()[2:-4] for text in (*plain, *logins)),
        *(quote(text, safe="") for text in plain), *(text.encode().hex() for text in plain),
    ]  # fmt: skip
    assert [(text, word) for text in texts for word in forbidden if word in text] == []
    assert all("[key]" in text for text in texts)


@pytest.mark.parametrize("to", ["langfuse", "otlp"])
def test_a_gzip_bomb_is_not_unpacked(to):
    # 512 kB that hold 512 MB: one block of zeros, which stands there again and again.
    packing = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = packing.compress(bytes(2**20)) + packing.flush(zlib.Z_FULL_FLUSH)
    bomb = b"\x1f\x8b\x08" + bytes(6) + b"\x03" + 512 * block
    assert len(zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(bomb, 2**25)) == 2**25
    tracemalloc.start()
    with pytest.raises(UserError, match="longer than 8,388,608 bytes"):
        send(to, says(bomb, **{"content-encoding": "gzip", "content-type": "application/json"}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize(
    ("begin", "repeated", "end"),
    [(b"{", b'"k":1,', b'"k":1}'), (b"", b"[", b""), (b"", b"<", b""), (b'{"error":"', b"sk-", b'"}')],
    ids=["one key repeated", "nested", "tags", "keys"],
)
def test_a_hostile_reply_of_the_largest_size_is_read_in_bounded_time(begin, repeated, end):
    body = begin + repeated * ((2**23 - 1 - len(begin + end)) // len(repeated)) + end
    assert len(body) <= 2**23
    started = time.process_time()
    (delivery,) = send("langfuse", says(body))
    assert delivery.status is DeliveryStatus.REFUSED
    assert time.process_time() - started < 3


def test_headers_of_otlp_are_percent_decoded():
    assert parse_otlp_headers("Authorization=Basic%20YTpi%3D, x-Scope = a%2Cb") == {
        "authorization": "Basic YTpi=",
        "x-scope": "a,b",
    }
    for text in ("a", "=b", "a b=c", "a=%0d%0aX: y"):
        with pytest.raises(SettingError, match="OTEL_EXPORTER_OTLP_HEADERS"):
            parse_otlp_headers(text)
