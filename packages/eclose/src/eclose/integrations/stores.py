"""Scores to trace stores by their public HTTP APIs, without their SDKs.

A score counts as sent only where the reply of the store proves it: JSON without an error, and the id of the score where
the store returns one. Ids are the same at every export: Langfuse and Phoenix overwrite a score, LangSmith refuses a
second one, and of MLflow, which gives ids of its own, the scores that a trace has are read first.
"""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from eclose.calls.http.failures import CallFailureKind, classify_http_exception, excerpt_server_text, parse_retry_after
from eclose.calls.http.providers import read_key
from eclose.errors import EcloseError, RecordError, SettingError, UserError
from eclose.files.json_reader import parse_json_object
from eclose.integrations.otlp import (
    build_log_request,
    build_span_request,
    count_accepted,
    parse_otlp_headers,
    to_otlp_ids,
)
from eclose.integrations.scores import (
    UNJUDGED_LABEL,
    Delivery,
    DeliveryStatus,
    ScoredResponse,
    VerdictScore,
    VerdictScoreTable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from eclose.calls.http.client import HttpClient

_ATTEMPTS = 5
_LONGEST_WAIT = 30.0
_DEADLINE = 30.0
"""Seconds for one attempt."""
_CONCURRENCY = 8
_BATCH = 100
"""Responses of one request to an OTLP endpoint."""
_MLFLOW_TRACES = "/api/3.0/mlflow/traces"
_SCORE_ID = "eclose.score.id"


EXPORT_OUTAGE = (
    "does not take the scores",
    "Run the same export again when it is up: scores that arrived are not doubled.",
)
"""What a store does that fails at every attempt, and what to do then."""


class StoreRefusal(EcloseError):  # noqa: N818 - an outcome that is counted
    """Scores that the store did not take for what they say; others may be accepted."""

    def __init__(self, problem: str, status: int = 200) -> None:
        self.status = status
        super().__init__(problem if status == 200 else f"HTTP {status}: {problem}".removesuffix(": "))


class StoreClient:
    """Requests to one trace store, each tried several times."""

    def __init__(self, http: HttpClient, base_url: str, outage: tuple[str, str] = EXPORT_OUTAGE) -> None:
        self._http = http
        self._base_url = base_url
        self._outage = outage

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: tuple[tuple[str, str], ...] = (),
        may_be_empty: bool = False,
    ) -> dict[str, Any]:
        """Return the reply to a request.

        Raises:
            StoreRefusal: The store refuses this body, or its reply does not prove that it took it.
            SettingError: The store refuses the key.
            UserError: The store cannot be reached, or fails at every attempt.
        """
        from eclose.calls.http.client import HTTP_ERRORS  # noqa: PLC0415 - an extra

        problem, pause = "", 0.0
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(min(pause, _LONGEST_WAIT))
            pause = 2.0**attempt / 2
            try:
                async with asyncio.timeout(_DEADLINE):
                    response = await self._http.send(method, path, body, query=query)
            except HTTP_ERRORS as error:
                failure = classify_http_exception(error, self._http.secrets)
                problem = failure.problem
                if failure.kind is CallFailureKind.PERMANENT:
                    raise StoreRefusal(problem) from None
                if failure.kind is CallFailureKind.DENIED:
                    break
                continue
            except TimeoutError:
                problem = f"no reply within {_DEADLINE:g} s"
                continue
            text = excerpt_server_text(response.body.decode("utf-8", "replace"), self._http.secrets)
            if response.status in (401, 403):
                raise SettingError(f"{self._base_url}: refuses the key (HTTP {response.status} {text}).")
            if response.status != 429 and 300 <= response.status < 500:
                raise StoreRefusal(text, response.status)
            if 200 <= response.status < 300:
                return {} if may_be_empty and not response.body.strip() else self._read(response.body, text)
            problem = f"HTTP {response.status} {text}".strip()
            pause = parse_retry_after(response.headers, time.time()) or pause
        what, remedy = self._outage
        raise UserError(f"{self._base_url}: {what} ({problem.rstrip('.')}). {remedy}")

    def _read(self, body: bytes, text: str) -> dict[str, Any]:
        try:
            reply = parse_json_object(body)
        except RecordError:
            raise StoreRefusal(f"the reply is not a JSON object, so nothing is proven: {text or 'empty'}") from None
        # LangSmith returns the whole feedback, of which an unjudged score is an error; its id proves it.
        if reply.get("error") and not reply.get("id"):
            raise StoreRefusal(text)
        return reply


@dataclass(frozen=True, slots=True)
class TraceStore:
    """Where and how the scores of a run are sent."""

    address_variables: tuple[str, ...]
    """Variables that hold the address, in the order in which they are read."""
    read_headers: Callable[[Mapping[str, str]], Mapping[str, str]]
    """Function of the environment that returns the headers of the login."""
    deliver: Callable[[StoreClient, VerdictScoreTable, Sequence[ScoredResponse]], Awaitable[Sequence[Delivery]]]
    """Function that sends the scores of some responses; a refusal that it raises is one of all of them."""
    default_address: str | None = None
    batch: int = 1
    """Responses that are sent together."""

    def find_address(self, environ: Mapping[str, str]) -> str | None:
        """Return the address in the environment, or the default one; None without either."""
        named = (environ.get(name, "").strip() for name in self.address_variables)
        return next(filter(None, named), self.default_address)


async def send_scores(
    store: TraceStore, table: VerdictScoreTable, address: str, environ: Mapping[str, str]
) -> AsyncGenerator[Delivery, None]:
    """Yield the deliveries of each response, several responses at a time, in the order of the rows."""
    from eclose.calls.http.client import HttpClient  # noqa: PLC0415 - an extra
    from eclose.calls.http.endpoint import check_base_url  # noqa: PLC0415 - an extra

    async def deliver(rows: Sequence[ScoredResponse]) -> Sequence[Delivery]:
        try:
            return await store.deliver(client, table, rows)
        except (StoreRefusal, RecordError) as refusal:
            return [Delivery(row.response_id, len(row.scores), DeliveryStatus.REFUSED, str(refusal)) for row in rows]

    base_url = check_base_url(address)
    async with HttpClient(base_url, store.read_headers(environ)) as http:
        client = StoreClient(http, base_url)
        sending: deque[asyncio.Future[Sequence[Delivery]]] = deque()
        try:
            for rows in table.batch_rows(store.batch):
                sending.append(asyncio.ensure_future(deliver(rows)))
                if len(sending) == _CONCURRENCY:
                    for delivery in await sending.popleft():
                        yield delivery
            for future in sending:
                for delivery in await future:
                    yield delivery
        finally:
            for future in sending:
                future.cancel()
            await asyncio.gather(*sending, return_exceptions=True)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _require_key(environ: Mapping[str, str], variable: str, store: str) -> str:
    if not (key := read_key(environ, variable)):
        raise SettingError(f"{store}: no key. Set {variable} in the environment or in .env.")
    return key


def _basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def _bearer(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


async def _deliver_each(
    path: str,
    build: Callable[[VerdictScoreTable, ScoredResponse, VerdictScore], dict[str, Any]],
    client: StoreClient,
    table: VerdictScoreTable,
    rows: Sequence[ScoredResponse],
    *,
    check: Callable[[Mapping[str, Any], VerdictScore], None],
    present: Container[str] = (),
    conflict: int | None = None,
) -> list[Delivery]:
    """Send the scores of a response one after the other.

    ``check`` raises for a reply that does not prove that the score was taken. A score is present where its id is in
    ``present``, or where the store refuses it with the HTTP status ``conflict``.
    """
    deliveries = []
    (row,) = rows
    for score in row.scores:
        status, reason = DeliveryStatus.PRESENT, ""
        try:
            if score.id not in present:
                check(await client.send("POST", path, build(table, row, score)), score)
                status = DeliveryStatus.SENT
        except StoreRefusal as refusal:
            if refusal.status != conflict:
                status, reason = DeliveryStatus.REFUSED, str(refusal)
        deliveries.append(Delivery(row.response_id, 1, status, reason))
    return deliveries


def _check_id(reply: Mapping[str, Any], score: VerdictScore) -> None:
    if str(reply.get("id")).lower() != score.id:
        raise StoreRefusal("the reply does not return the id of the score, so nothing is proven")


# --- Langfuse --------------------------------------------------------------------------------------------------------


def _check_langfuse(reply: Mapping[str, Any], score: VerdictScore) -> None:
    if reply.get("rejected"):
        # A server that takes scores in batches answers a rejected one with 207 and the reason.
        errors = reply.get("errors")
        reason = errors[0] if isinstance(errors, list) and errors else None
        raise StoreRefusal(excerpt_server_text(str(_object(reason).get("message") or reason or "no reason given")))
    _check_id(reply, score)


def build_langfuse_score(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return the body of one score.

    A score without a number is a category, which Langfuse averages apart from the numbers of the same name.
    """
    return _without_none(
        {
            "id": score.id,
            "traceId": row.trace_id,
            "observationId": row.span_id,
            "name": str(score.name),
            "value": score.label or UNJUDGED_LABEL if score.number is None else score.number,
            "dataType": "CATEGORICAL" if score.number is None else "BOOLEAN",
            "comment": score.explanation or score.unjudged,
            "timestamp": table.judged_time,
            "metadata": table.describe(row, score),
        }
    )


# --- LangSmith -------------------------------------------------------------------------------------------------------


def build_feedback(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return the body of one feedback; an unjudged score is marked as an error and has no number."""
    return _without_none(
        {
            "id": score.id,
            "run_id": _to_uuid(row.span_id or row.trace_id),
            "trace_id": _to_uuid(row.trace_id),
            "key": str(score.name),
            "score": score.number,
            "value": score.label or UNJUDGED_LABEL,
            "comment": score.explanation or score.unjudged,
            "error": True if score.unjudged is not None else None,
            "feedback_source": {"type": "model", "metadata": table.describe(row, score)},
        }
    )


def _to_uuid(text: str) -> str:
    """Return an id as a UUID, which the ids of LangSmith are; another id is hashed."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, text))


# --- MLflow ----------------------------------------------------------------------------------------------------------


def _read_mlflow_login(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the header of the login that MLflow's own variables give; empty without one."""
    name, password = environ.get("MLFLOW_TRACKING_USERNAME", ""), environ.get("MLFLOW_TRACKING_PASSWORD", "")
    return _bearer(read_key(environ, "MLFLOW_TRACKING_TOKEN")) or (_basic(name, password) if name and password else {})


async def _deliver_mlflow(
    client: StoreClient, table: VerdictScoreTable, rows: Sequence[ScoredResponse]
) -> list[Delivery]:
    (row,) = rows
    path = f"{_MLFLOW_TRACES}/{quote(row.trace_id, safe='')}"
    try:
        present = _read_score_ids(await client.send("GET", path))
    except StoreRefusal as refusal:
        raise StoreRefusal(f"there is no such trace ({refusal})" if refusal.status == 404 else str(refusal)) from None
    return await _deliver_each(
        f"{path}/assessments", build_assessment, client, table, rows, check=_check_assessment, present=present
    )


def _check_assessment(reply: Mapping[str, Any], _score: VerdictScore) -> None:
    if not _object(reply.get("assessment")).get("assessment_id"):
        raise StoreRefusal("the reply does not return the id of an assessment, so nothing is proven")


def _read_score_ids(reply: Mapping[str, Any]) -> set[str]:
    info = _object(reply.get("trace")).get("trace_info")
    if not isinstance(info, dict):
        raise StoreRefusal("the reply holds no trace, so its scores are unknown")
    assessments = info.get("assessments")
    metadata = [_object(_object(entry).get("metadata")) for entry in assessments or () if isinstance(assessments, list)]
    return {str(entries[_SCORE_ID]) for entries in metadata if _SCORE_ID in entries}


def build_assessment(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return the body of one assessment: the value, or for an unjudged score the error with its reason."""
    if score.unjudged is not None:
        feedback: dict[str, Any] = {"error": {"error_code": "UNJUDGED", "error_message": score.unjudged}}
    else:
        feedback = {"value": score.label if score.value is None else score.value}
    assessment = _without_none(
        {
            "assessment_name": str(score.name),
            "trace_id": row.trace_id,
            "span_id": None if row.derived else row.span_id,
            "source": {"source_type": "LLM_JUDGE", "source_id": row.judge},
            "create_time": table.judged_time,
            "last_update_time": table.judged_time,
            "feedback": feedback,
            "rationale": score.explanation or score.unjudged,
            "metadata": table.describe(row, score),
            "valid": True,
        }
    )
    return {"assessment": assessment}


# --- Phoenix ---------------------------------------------------------------------------------------------------------


async def _deliver_phoenix(
    client: StoreClient, table: VerdictScoreTable, rows: Sequence[ScoredResponse]
) -> list[Delivery]:
    (row,) = rows
    path = "/v1/span_annotations" if row.span_id else "/v1/trace_annotations"
    # Synchronous, so that a span that does not exist is answered with 404 and can be counted.
    await client.send(
        "POST", f"{path}?sync=true", {"data": [build_annotation(table, row, score) for score in row.scores]}
    )
    return [Delivery(row.response_id, len(row.scores))]


def build_annotation(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return one annotation; an unjudged score has no number, and its reason as explanation."""
    trace_id, span_id = to_otlp_ids(row)
    result = {
        "label": score.label or UNJUDGED_LABEL,
        "score": score.number,
        "explanation": score.explanation or score.unjudged,
    }
    return {
        **({"span_id": span_id} if row.span_id else {"trace_id": trace_id}),
        "name": str(score.name),
        "annotator_kind": "LLM",
        "identifier": score.id,
        "result": _without_none(result),
        "metadata": table.describe(row, score),
    }


# --- OTLP ------------------------------------------------------------------------------------------------------------


async def _deliver_otlp(
    client: StoreClient, table: VerdictScoreTable, rows: Sequence[ScoredResponse]
) -> list[Delivery]:
    logs = await client.send("POST", "/v1/logs", build_log_request(table, rows), may_be_empty=True)
    spans = await client.send("POST", "/v1/traces", build_span_request(table, rows), may_be_empty=True)
    return list(count_accepted(rows, logs, spans))


TRACE_STORES: Mapping[str, TraceStore] = {
    "otlp": TraceStore(
        ("OTEL_EXPORTER_OTLP_ENDPOINT",),
        lambda environ: parse_otlp_headers(environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")),
        _deliver_otlp,
        batch=_BATCH,
    ),
    "mlflow": TraceStore(("MLFLOW_TRACKING_URI",), _read_mlflow_login, _deliver_mlflow),
    "langfuse": TraceStore(
        ("LANGFUSE_BASE_URL", "LANGFUSE_HOST"),
        lambda environ: _basic(
            _require_key(environ, "LANGFUSE_PUBLIC_KEY", "langfuse"),
            _require_key(environ, "LANGFUSE_SECRET_KEY", "langfuse"),
        ),
        partial(_deliver_each, "/api/public/scores", build_langfuse_score, check=_check_langfuse),
        "https://cloud.langfuse.com",
    ),
    "phoenix": TraceStore(
        ("PHOENIX_COLLECTOR_ENDPOINT",),
        lambda environ: _bearer(read_key(environ, "PHOENIX_API_KEY")),  # a local Phoenix has no keys
        _deliver_phoenix,
        "http://127.0.0.1:6006",
    ),
    "langsmith": TraceStore(
        ("LANGSMITH_ENDPOINT",),
        lambda environ: {"x-api-key": _require_key(environ, "LANGSMITH_API_KEY", "langsmith")},
        partial(_deliver_each, "/feedback", build_feedback, check=_check_id, conflict=409),
        "https://api.smith.langchain.com",
    ),
}
