"""Scores to Phoenix as annotations of the judged spans, by its HTTP API and without its client.

Phoenix overwrites the annotation of a span with the same name and identifier.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.integrations.export.http_client import StoreClient, StoreRefusal, deliver_rows
from eclose.integrations.export.otlp import to_otlp_ids
from eclose.integrations.export.scores import UNJUDGED_LABEL, Delivery, DeliveryStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.integrations.export.scores import ScoredResponse, VerdictScore, VerdictScoreTable


def export_phoenix(table: VerdictScoreTable, target: str, environ: Mapping[str, str]) -> Iterator[Delivery]:
    """Send the scores of each response to ``POST /v1/span_annotations``, or to the trace where no span is known."""
    # A local Phoenix has no keys.
    key = environ.get("PHOENIX_API_KEY", "").strip()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with StoreClient(target, headers, secret=key) as client:
        yield from deliver_rows(table.rows, partial(_deliver, client, table))


def _deliver(client: StoreClient, table: VerdictScoreTable, row: ScoredResponse) -> Iterator[Delivery]:
    path = "/v1/span_annotations" if row.span_id else "/v1/trace_annotations"
    body = {"data": [build_annotation(table, row, score) for score in row.scores]}
    try:
        # Synchronous, so that a span that does not exist is answered with 404 and can be counted.
        client.post(f"{path}?sync=true", body)
    except StoreRefusal as refusal:
        yield Delivery(row.response_id, len(row.scores), DeliveryStatus.REFUSED, str(refusal))
    else:
        yield Delivery(row.response_id, len(row.scores))


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
        "result": {name: value for name, value in result.items() if value is not None},
        "metadata": table.describe(row, score),
    }
