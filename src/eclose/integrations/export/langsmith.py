"""Scores to LangSmith as feedback, by its HTTP API and without its SDK."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.integrations.export.http_client import StoreClient, StoreRefusal, deliver_rows, require_variable
from eclose.integrations.export.scores import UNJUDGED_LABEL, Delivery, DeliveryStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.integrations.export.scores import ScoredResponse, VerdictScore, VerdictScoreTable


def export_langsmith(table: VerdictScoreTable, target: str, environ: Mapping[str, str]) -> Iterator[Delivery]:
    """Send every score to ``POST /feedback``."""
    key = require_variable(environ, "LANGSMITH_API_KEY", "langsmith")
    with StoreClient(target, {"x-api-key": key}, secret=key) as client:
        yield from deliver_rows(table.rows, partial(_deliver, client, table))


def _deliver(client: StoreClient, table: VerdictScoreTable, row: ScoredResponse) -> Iterator[Delivery]:
    for score in row.scores:
        try:
            client.post("/feedback", build_body(table, row, score))
        except StoreRefusal as refusal:
            # 409: feedback of this id exists, from an earlier export.
            status = DeliveryStatus.PRESENT if refusal.status == 409 else DeliveryStatus.REFUSED
            yield Delivery(row.response_id, 1, status, "" if refusal.status == 409 else str(refusal))
        else:
            yield Delivery(row.response_id, 1)


def build_body(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return the body of one feedback; an unjudged score is marked as an error and has no number."""
    body = {
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
    return {name: value for name, value in body.items() if value is not None}


def _to_uuid(text: str) -> str:
    """Return an id as a UUID, which the ids of LangSmith are; another id is hashed."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, text))
