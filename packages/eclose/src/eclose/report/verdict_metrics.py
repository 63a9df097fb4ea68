"""Metrics of a file of settled verdicts, overall and by group: what ``eclose metrics`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.errors import RecordError, UserError
from eclose.files.id_set import SeenIds
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import read_records
from eclose.files.verify import check_verdicts_provenance
from eclose.metrics.summary import INTERVAL_METHOD, GroupRates, summarize_verdicts
from eclose.values.verdict import SettledVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class VerdictMetrics(NamedTuple):
    """The summaries of a file of verdicts."""

    by: tuple[str, ...]
    """Columns the groups are formed by: benchmark, model, method or seed."""
    overall: GroupRates
    groups: tuple[GroupRates, ...]
    inconsistent: tuple[str, ...]
    """Ids of the responses that are reliable by every label and yet wrong."""
    stale: tuple[str, ...]
    """One sentence for each changed file; only with ``allow_stale``."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values; undefined values are null."""
        groups = [_metric_summary_to_json(summary) for summary in (self.overall, *self.groups)]
        return {"settings": {"by": list(self.by)}, "stale": self.stale, "groups": groups}


def compute_rates_of_verdicts(path: Path, by: Sequence[str] = (), *, allow_stale: bool = False) -> VerdictMetrics:
    """Read a file of verdicts and return its metrics, with 95 % intervals over questions.

    Raises:
        UserError: There is no verdict, two verdicts on one response, or, without ``allow_stale``, a changed file.
    """
    require_regular_file(path)
    # First, because verdicts on other responses would give plausible but wrong rates.
    stale = check_verdicts_provenance(path, allow_stale=allow_stale).stale
    rows = list(_read_verdicts(path))
    overall, *groups = summarize_verdicts(rows, by)
    inconsistent = tuple(row.response_id for row in rows if row.verdict.inconsistent)
    return VerdictMetrics(tuple(by), overall, tuple(groups), inconsistent, tuple(stale))


def _read_verdicts(path: Path) -> Iterator[SettledVerdict]:
    """Yield the verdicts; raise at a second one on the same response, which would count twice."""
    ids = SeenIds()
    for number, row in enumerate(read_records(path, SettledVerdict), start=1):
        if ids.add(row.response_id, None, number):
            problem = f"response {row.response_id!r} has two verdicts. Keep the settled one."
            raise RecordError(problem, path=path, record=f"record {number}")
        yield row
    if not len(ids):
        raise UserError(f"{path}: there is no verdict in this file. Check that this is the file you meant.")


def _metric_summary_to_json(summary: GroupRates) -> dict[str, Any]:
    """Return a summary as JSON values; undefined values are null."""
    parts = summary.composition
    return {
        "group": list(summary.group),
        "responses": summary.responses,
        "questions": summary.questions,
        "metrics": {
            metric.value: {
                "value": rate.value,
                "interval": summary.estimates[metric].interval,
                "interval_method": INTERVAL_METHOD if rate.n else None,
                "wilson": rate.wilson,
                "hits": rate.hits,
                "n": rate.n,
                "unjudged": rate.unjudged,
                "bounds": rate.bounds,
            }
            for metric, rate in summary.rates.items()
        },
        "trace_groups": {group.value if group else "undecided": count for group, count in parts.groups.items()},
        "failures": {failure.value: count for failure, count in parts.failures.items()},
        "gap_failures": {failure.value: count for failure, count in parts.gap_failures.items()},
        "inconsistent": parts.inconsistent,
    }
