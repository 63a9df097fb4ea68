"""Scores to MLflow as feedback on traces, by its REST API and without its client.

MLflow gives every assessment an id of its own, so those that a trace has are read first and not sent again.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from eclose.integrations.export.http_client import StoreClient, StoreRefusal, deliver_rows
from eclose.integrations.export.scores import Delivery, DeliveryStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eclose.integrations.export.scores import ScoredResponse, VerdictScore, VerdictScoreTable

_TRACES = "/api/3.0/mlflow/traces"
_SCORE_ID = "eclose.score.id"
_UNJUDGED_CODE = "UNJUDGED"


def export_mlflow(table: VerdictScoreTable, target: str, environ: Mapping[str, str]) -> Iterator[Delivery]:
    """Send every score that its trace does not have to ``POST /traces/{id}/assessments``."""
    headers, secret = _build_login(environ)
    with StoreClient(target, headers, secret=secret) as client:
        yield from deliver_rows(table.rows, partial(_deliver, client, table))


def _build_login(environ: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the header of the login that MLflow's own variables give, and its secret; both empty without one."""
    token = environ.get("MLFLOW_TRACKING_TOKEN", "").strip()
    if token:
        return {"authorization": f"Bearer {token}"}, token
    name, password = environ.get("MLFLOW_TRACKING_USERNAME", ""), environ.get("MLFLOW_TRACKING_PASSWORD", "")
    if not (name and password):
        return {}, ""
    return {"authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}, password


def _deliver(client: StoreClient, table: VerdictScoreTable, row: ScoredResponse) -> Iterator[Delivery]:
    path = f"{_TRACES}/{quote(row.trace_id, safe='')}"
    try:
        present = _read_score_ids(client.get(path))
    except StoreRefusal as refusal:
        reason = f"there is no such trace ({refusal})" if refusal.status == 404 else str(refusal)
        yield Delivery(row.response_id, len(row.scores), DeliveryStatus.REFUSED, reason)
        return
    for score in row.scores:
        if score.id in present:
            yield Delivery(row.response_id, 1, DeliveryStatus.PRESENT)
            continue
        try:
            client.post(f"{path}/assessments", {"assessment": build_assessment(table, row, score)})
        except StoreRefusal as refusal:
            yield Delivery(row.response_id, 1, DeliveryStatus.REFUSED, str(refusal))
        else:
            yield Delivery(row.response_id, 1)


def _read_score_ids(reply: Mapping[str, Any]) -> set[str]:
    """Return the ids of our scores among the assessments of a trace."""
    info = reply.get("trace", {}).get("trace_info", {})
    metadata = (assessment.get("metadata") or {} for assessment in info.get("assessments") or ())
    return {str(entries[_SCORE_ID]) for entries in metadata if _SCORE_ID in entries}


def build_assessment(table: VerdictScoreTable, row: ScoredResponse, score: VerdictScore) -> dict[str, Any]:
    """Return one assessment: the value, or for an unjudged score the error with its reason."""
    if score.unjudged is not None:
        feedback: dict[str, Any] = {"error": {"error_code": _UNJUDGED_CODE, "error_message": score.unjudged}}
    else:
        feedback = {"value": score.label if score.value is None else score.value}
    assessment = {
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
    return {name: value for name, value in assessment.items() if value is not None}
