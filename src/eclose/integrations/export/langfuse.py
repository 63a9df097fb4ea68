"""Scores to Langfuse, by its public API and without its SDK.

The id of a score is the same at every export, and Langfuse overwrites a score of the same id.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.integrations.export.http_client import StoreClient, StoreRefusal, deliver_rows, require_variable
from eclose.integrations.export.scores import UNJUDGED_LABEL, Delivery, DeliveryStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.integrations.export.scores import ScoredResponse, VerdictScore, VerdictScoreTable


def export_langfuse(table: VerdictScoreTable, target: str, environ: Mapping[str, str]) -> Iterator[Delivery]:
    """Send every score to ``POST /api/public/scores``."""
    public = require_variable(environ, "LANGFUSE_PUBLIC_KEY", "langfuse")
    secret = require_variable(environ, "LANGFUSE_SECRET_KEY", "langfuse")
    with StoreClient(target, login=(public, secret), secret=secret) as client:
        yield from deliver_rows(table.rows, partial(_deliver, client, table))


def _deliver(client: StoreClient, table: VerdictScoreTable, row: ScoredResponse) -> Iterator[Delivery]:
    for score in row.scores:
        try:
            reply = client.post("/api/public/scores", build_body(table, row, score))
        except StoreRefusal as refusal:
            yield Delivery(row.response_id, 1, DeliveryStatus.REFUSED, str(refusal))
        else:
            # A server that takes scores in batches answers a rejected one with 207 and the reason.
            status = DeliveryStatus.REFUSED if reply.get("rejected") else DeliveryStatus.SENT
            yield Delivery(row.response_id, 1, status, _read_rejection(reply))


def _read_rejection(reply: Mapping[str, Any]) -> str:
    """Return why a score was rejected; empty where it was accepted."""
    if not reply.get("rejected"):
        return ""
    errors = reply.get("errors") or [{}]
    return str(errors[0].get("message") or "rejected without a reason")


def build_body(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return the body of one score.

    A score without a number is a category, which Langfuse averages apart from the numbers of the same name.
    """
    body = {
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
    return {name: value for name, value in body.items() if value is not None}
