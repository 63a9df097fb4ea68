"""What a finished run leaves behind, written out of its ledger: results in the order of their ids, what was set aside
and why, and the manifest.

Every file is the same whatever order the work was done in and however often it was interrupted.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from eclose.core.identity import canonical_json
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.counts import Counts
from eclose.store.runs.manifest import Manifest, hash_files
from eclose.store.runs.runner import READ_STAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eclose.store.ledger.ledger import Ledger, RecordOutcome
    from eclose.store.runs.step import RunStep


async def count_funnel(ledger: Ledger, stages: Sequence[str], received: int) -> dict[str, Counts]:
    """Where every record went in every stage: what one accepts the next receives."""
    counts: dict[str, Counts] = {}
    for stage in (READ_STAGE, *stages):
        tally = await ledger.count_outcomes(stage)
        rejected = {str(reason): count for (kind, reason), count in tally.items() if kind == "rejected"}
        quarantined = {str(reason): count for (kind, reason), count in tally.items() if kind == "quarantined"}
        lost = sum(rejected.values()) + sum(quarantined.values())
        # Reading accepts whatever it does not set aside, and there is no row for that.
        accepted = received - lost if stage == READ_STAGE else tally.get(("accepted", None), 0)
        counts[stage] = Counts(received, accepted, rejected, quarantined)
        received = accepted
    return counts


def sum_funnel(stage_counts: Mapping[str, Counts]) -> Counts:
    """The whole run: what went in at the first stage, and what came out of the last."""
    stages = list(stage_counts.values())
    gone: dict[str, dict[str, int]] = {"rejected": {}, "quarantined": {}}
    for name, counts in stage_counts.items():
        for kind, reasons in gone.items():
            reasons.update({f"{name}: {reason}": count for reason, count in getattr(counts, kind).items()})
    return Counts(stages[0].received, stages[-1].accepted, **gone)


async def export_run(
    ledger: Ledger,
    stage: RunStep,
    jobs: Sequence[str],
    received: int,
    calls: Mapping[str, Any] | None = None,
    sources: Mapping[str, Counts] | None = None,
) -> Manifest:
    """Write everything, the manifest last: where that stands, the run is finished.

    ``sources`` counts the records of files that were read beside the one whose records are exported. Raises, and writes
    nothing, where an input was changed since the start of the run.
    """
    stage.refuse_changed_inputs()
    counts = await count_funnel(ledger, jobs, received)
    told = {**(sources or {}), **counts}
    manifest = Manifest(stage.name, stage.settings, stage.input_hashes, {}, sum_funnel(counts), told, calls or {})
    manifest.refuse_losses()
    with ExitStack() as stack:
        files = _Files(stack)
        out = files.open(stage.out)
        for name in (READ_STAGE, *jobs):
            async for outcome in ledger.read_outcomes(name):
                if outcome.kind != "accepted":
                    files.open(stage.rejected_path if outcome.kind == "rejected" else stage.quarantine_path).write(
                        _explained(outcome)
                    )
                elif name == jobs[-1]:
                    out.write((outcome.body or b"null") + b"\n")
    for path in (stage.rejected_path, stage.quarantine_path):
        if path not in files.written:
            # Left by an earlier end of this run, before its quarantined records were tried again.
            path.unlink(missing_ok=True)
    manifest = manifest.with_outputs(hash_files(files.written))
    manifest.write(stage.manifest_path)
    return manifest


class _Files:
    """Files that are made when the first line comes."""

    def __init__(self, stack: ExitStack) -> None:
        self.written: dict[Path, AtomicFile] = {}
        self._stack = stack

    def open(self, path: Path) -> AtomicFile:
        if path not in self.written:
            self.written[path] = self._stack.enter_context(AtomicFile(path))
        return self.written[path]


def _explained(outcome: RecordOutcome) -> bytes:
    told: dict[str, Any] = {"id": outcome.record_id, "stage": outcome.stage, "reason": outcome.reason}
    if outcome.body is not None:
        value: Any = None
        with suppress(ValueError):
            value = json.loads(outcome.body)
        told |= value if outcome.kind == "quarantined" and isinstance(value, dict) else {"value": value}
    return canonical_json(told).encode("utf-8", "backslashreplace") + b"\n"
