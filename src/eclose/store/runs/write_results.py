"""Export of a finished run from its ledger: results in the order of their ids, rejected and quarantined records,
and the manifest.

The files do not depend on the order of the work, nor on how often it was interrupted.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import eclose
from eclose.core.identity import canonical_json
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.outcome_counts import RecordCounts
from eclose.store.runs.manifest import Manifest, hash_files
from eclose.store.runs.runner import READ_STAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eclose.store.ledger.ledger import Ledger, RecordOutcome
    from eclose.store.runs.step import PipelineStep


async def count_run_funnel(ledger: Ledger, stages: Sequence[str], received: int) -> dict[str, RecordCounts]:
    """Return the counts of every stage, in order: a stage receives the records that the one before accepted."""
    counts: dict[str, RecordCounts] = {}
    for stage in (READ_STAGE, *stages):
        outcomes = await ledger.count_outcomes(stage)
        rejected = {str(reason): count for (kind, reason), count in outcomes.items() if kind == "rejected"}
        quarantined = {str(reason): count for (kind, reason), count in outcomes.items() if kind == "quarantined"}
        set_aside = sum(rejected.values()) + sum(quarantined.values())
        # The reading stage writes no rows for the records that it accepts.
        accepted = received - set_aside if stage == READ_STAGE else outcomes.get(("accepted", None), 0)
        counts[stage] = RecordCounts(received, accepted, rejected, quarantined)
        received = accepted
    return counts


def sum_run_funnel(stage_counts: Mapping[str, RecordCounts]) -> RecordCounts:
    """Return the counts of the whole run: received by the first stage, accepted by the last."""
    stages = list(stage_counts.values())
    set_aside: dict[str, dict[str, int]] = {"rejected": {}, "quarantined": {}}
    for name, counts in stage_counts.items():
        for kind, reasons in set_aside.items():
            reasons.update({f"{name}: {reason}": count for reason, count in getattr(counts, kind).items()})
    return RecordCounts(stages[0].received, stages[-1].accepted, **set_aside)


async def list_earlier_versions(ledger: Ledger) -> tuple[str, ...]:
    """Return the versions other than this one that have worked on the run of a ledger."""
    return tuple(version for version in await ledger.list_versions() if version != eclose.__version__)


async def write_run_results(
    ledger: Ledger,
    step: PipelineStep,
    jobs: Sequence[str],
    received: int,
    calls: Mapping[str, Any] | None = None,
    sources: Mapping[str, RecordCounts] | None = None,
) -> Manifest:
    """Write all files of a run, the manifest last: it marks the run as finished.

    Args:
        ledger: The ledger of the run.
        step: The step whose files are written.
        jobs: Names of the jobs, in order; the results are those of the last.
        received: Number of records taken from the input.
        calls: Numbers of calls, tokens and cost for the manifest.
        sources: Counts of the records of other files that were read for this run.

    Raises:
        UserError: An input was changed since the start of the run; nothing is written.
    """
    step.refuse_changed_inputs()
    counts = await count_run_funnel(ledger, jobs, received)
    funnel = {**(sources or {}), **counts}
    manifest = Manifest(step.name, step.settings, step.input_hashes, {}, sum_run_funnel(counts), funnel, calls or {})
    # Before any file is touched: a run that lost a record must not replace an earlier result.
    manifest.refuse_losses()
    with ExitStack() as stack:
        files = _LazyFiles(stack)
        # Created even without results, so that an empty result is told from a missing one.
        out = files.open(step.out)
        for name in (READ_STAGE, *jobs):
            async for outcome in ledger.read_outcomes(name):
                if outcome.kind != "accepted":
                    path = step.rejected_path if outcome.kind == "rejected" else step.quarantine_path
                    files.open(path).write(_explain(outcome))
                elif name == jobs[-1]:
                    out.write((outcome.body or b"null") + b"\n")
    for path in (step.rejected_path, step.quarantine_path):
        if path not in files.written:
            # Written by an earlier export of this run, before its quarantined records were retried.
            path.unlink(missing_ok=True)
    manifest = replace(
        manifest, outputs=hash_files(files.written), earlier_versions=await list_earlier_versions(ledger)
    )
    manifest.write(step.manifest_path)
    return manifest


class _LazyFiles:
    """Atomic files that are created with their first line."""

    def __init__(self, stack: ExitStack) -> None:
        self.written: dict[Path, AtomicFile] = {}
        self._stack = stack

    def open(self, path: Path) -> AtomicFile:
        if path not in self.written:
            self.written[path] = self._stack.enter_context(AtomicFile(path))
        return self.written[path]


def _explain(outcome: RecordOutcome) -> bytes:
    line: dict[str, Any] = {"id": outcome.record_id, "stage": outcome.stage, "reason": outcome.reason}
    if outcome.body is not None:
        value: Any = None
        with suppress(ValueError):
            value = json.loads(outcome.body)
        line |= value if outcome.kind == "quarantined" and isinstance(value, dict) else {"value": value}
    return canonical_json(line).encode("utf-8", "backslashreplace") + b"\n"
