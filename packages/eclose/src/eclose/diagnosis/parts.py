"""Rows of judged runs in Parquet parts: the labels of a response, and the texts of its records."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.diagnosis.label_table import (
    LABEL_CODES,
    JudgmentColumns,
    JudgmentPart,
    LabelTable,
    ResponseColumns,
    StepPart,
    hash_source,
)
from eclose.diagnosis.labelled_run import LabelledRun, QuestionHashes
from eclose.errors import SettingError, UserError
from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import decode_core_value, encode_json_line
from eclose.files.parquet import import_pyarrow
from eclose.files.parts import BODIES_FOLDER, LABELS_FOLDER, PARTS_SCHEMA, PartsFolder, PartsManifest, get_remote_url
from eclose.files.verify import ProvenanceCheck
from eclose.readers.judged_run import JudgedCase, JudgedCaseSet
from eclose.values.instance import Instance
from eclose.values.judgment import NO_CLAIM_REASON, Criterion, Judgment, LocalFailure, missing_reason_kind
from eclose.values.response import Response, is_prose_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eclose.calls.cluster.workers import RaySettings, RecordShard, ShardStopSignal
    from eclose.diagnosis.compare import QuestionKey
    from eclose.stats.arrays import Indices

PART_ROWS = 50_000
"""Responses of a part by default."""
_LABELS = ("locally_sound", "aligned", "closed", "complete", "correct")


def write_parts(out: Path | str, run: LabelledRun, part_rows: int) -> PartsManifest:
    """Write a run in parts, and then the manifest with their names and the caveats of the run; return it.

    Args:
        out: Folder, or address in object storage.
        run: The run.
        part_rows: Responses of a part.
    """
    folder = PartsFolder(out)
    labels_schema, bodies_schema = _schemas()
    parts: list[tuple[str, int]] = []
    for start in range(0, len(run.labels), part_rows):
        # Five digits keep the names in order for 100,000 parts.
        name = f"part-{len(parts):05}"
        cases = list(run.source.read_cases(run.labels.positions[start : start + part_rows]))
        folder.write_part(LABELS_FOLDER, name, [_describe_labels(case) for case in cases], labels_schema)
        folder.write_part(BODIES_FOLDER, name, [_encode_case(case) for case in cases], bodies_schema)
        parts.append((name, len(cases)))
    # The manifest comes last: a split that was cut off leaves no run behind.
    caveats = run.caveats
    rejected = {file: dict(reasons) for file, reasons in caveats.rejected.items()}
    manifest = PartsManifest(
        schema=PARTS_SCHEMA,
        parts=tuple(parts),
        left_out=caveats.left_out,
        rejected=rejected,
        stale=caveats.stale,
        checked=caveats.checked,
        selected=caveats.selected,
    )
    folder.write_manifest(manifest)
    return manifest


_BODIES = ("instance", "response", "judgment")


def _encode_case(case: JudgedCase) -> dict[str, str]:
    records = (getattr(case, name) for name in _BODIES)
    texts = {name: encode_json_line(record).decode() for name, record in zip(_BODIES, records, strict=True)}
    return {"response_id": case.response.id, **texts}


def refuse_used_folder(out: Path | str, part_rows: int) -> None:
    """Raise where a folder already holds a run in parts, or where a part would be empty."""
    if part_rows < 1:
        raise SettingError("a part needs at least one row.")
    if PartsFolder(out).exists():
        raise UserError(f"{out}: holds a run in parts already. Name another folder, or remove this one.")


def read_run_in_parts(run: Path | str, *, allow_stale: bool = False, ray: RaySettings | None = None) -> LabelledRun:
    """Read the labels of a run in parts, in this process or by Ray workers.

    Args:
        run: Folder or address of the run; on Ray every worker must reach it under this name.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        ray: Workers that read the parts; None reads them in this process.

    Raises:
        UserError: There is no such run, or its judgments are stale and ``allow_stale`` is false.
    """
    folder = PartsFolder(run)
    manifest = folder.read_manifest()
    ProvenanceCheck(manifest.checked, manifest.stale).refuse_stale(
        Path(folder.name), "Judge these responses, split the run again", allow_stale=allow_stale
    )
    names = [name for name, _ in manifest.parts]
    if ray is None:
        tables = [read_part(folder, number, name) for number, name in enumerate(names)]
    else:
        from eclose.calls.cluster.workers import run_shards_on_ray  # noqa: PLC0415 - rarely needed

        # Workers run in other folders than this process.
        address = get_remote_url(folder.name) or str(Path(folder.name).absolute())
        tables = list(chain.from_iterable(run_shards_on_ray(partial(read_parts_of_shard, address, names), None, ray)))
    caveats = JudgedCaseSet(
        (),
        manifest.left_out,
        manifest.rejected,
        manifest.stale,
        checked=manifest.checked,
        selected=manifest.selected,
    )
    labels = LabelTable.concatenate(tables) if tables else LabelTable.of(())
    return LabelledRun(labels, _Parts(folder, names), caveats)


async def read_parts_of_shard(
    run: str, names: Sequence[str], shard: RecordShard, stop: ShardStopSignal
) -> list[LabelTable]:
    """Read the parts of a shard in a worker; shards are ranges of parts, so their order is that of the run."""
    stopped: list[bool] = []
    stop.listen(lambda: stopped.append(True))
    folder, tables = PartsFolder(run), []
    first, end = (len(names) * index // shard.of for index in (shard.index, shard.index + 1))
    for number in range(first, end):
        # A request to stop is received here, between two parts.
        await asyncio.sleep(0)
        if stopped:
            break
        tables.append(read_part(folder, number, names[number]))
    return tables


class _Parts:
    """The parts of a run; positions are the number of the part and the row in it."""

    def __init__(self, folder: PartsFolder, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names

    def read_cases(self, positions: Indices) -> Iterator[JudgedCase]:
        for row in self._read_rows(BODIES_FOLDER, positions):
            yield JudgedCase(
                decode_core_value(Instance, parse_json_object(row["instance"].encode())),
                decode_core_value(Response, parse_json_object(row["response"].encode())),
                decode_core_value(Judgment, parse_json_object(row["judgment"].encode())),
            )

    def read_ids(self, positions: Indices) -> Iterator[str]:
        return (row["response_id"] for row in self._read_rows(LABELS_FOLDER, positions))

    def hash_questions(self, positions: Indices) -> Iterator[QuestionHashes]:
        for row in self._read_rows(LABELS_FOLDER, positions):
            yield QuestionHashes(row["question_hash"], row["passages_hash"])

    def _read_rows(self, folder: str, positions: Indices) -> Iterator[dict[str, Any]]:
        """Yield some rows in the order of their positions, reading one part at a time where they are in order."""
        for part, places in groupby(positions[:, :2].tolist(), key=itemgetter(0)):
            rows = [row for _, row in places]
            distinct = sorted(set(rows))
            entries = dict(zip(distinct, self._folder.read_rows_at(folder, self._names[part], distinct), strict=True))
            yield from (entries[row] for row in rows)


def read_part(folder: PartsFolder, number: int, name: str) -> LabelTable:
    """Return the labels of a part; its texts are not read."""
    responses, judgments = ResponseColumns(), JudgmentColumns()
    keys: dict[QuestionKey, int] = {}
    for row, entry in enumerate(folder.read_rows(LABELS_FOLDER, name)):
        key = (entry["benchmark"], entry["instance_id"])
        responses.append(
            id_=entry["response_id"],
            question=keys.setdefault(key, len(keys)),
            model=entry["model"],
            source=entry["source_hash"],
            matched=LABEL_CODES[entry["matched"]],
            matched_with_aliases=LABEL_CODES[entry["matched_with_aliases"]],
            without_steps=entry["without_trace"],
            prose_trace=entry["prose_trace"],
            position=row,
        )
        judgments.add(_read_judgment(entry), row)
    rows = np.arange(len(responses))
    return LabelTable.join(responses, judgments, rows, rows, list(keys), [number] * len(keys))


def _read_judgment(entry: Mapping[str, Any]) -> JudgmentPart:
    # The first step has the label of all. The others have the failure codes, and leave the label as it is.
    failures = (StepPart(None, False, LocalFailure(code)) for code in entry["step_failures"])
    return JudgmentPart(
        entry["response_id"],
        entry["judge"],
        (StepPart(True, entry["locally_sound"]), *failures),
        **{name: entry[name] for name in (*_LABELS[1:], "evidence_sufficient")},
        unjudged={Criterion(each["criterion"]): each["reason"] for each in entry["unjudged"]},
        votes={each["label"]: tuple(each["votes"]) for each in entry["votes"]},
    )


def _schemas() -> tuple[Any, Any]:
    """Return the columns of labels and of bodies, version 2."""
    arrow, _ = import_pyarrow("writing a run in parts")
    # Stated, not inferred: a part in which a label is never given would have a column of another type.
    text, flag = arrow.string(), arrow.bool_()
    # Ids and labels alone: a count reads these files and no text.
    texts = [(name, text) for name in ("response_id", "instance_id", "benchmark", "model", "judge")]
    flags = [(name, flag) for name in (*_LABELS, "evidence_sufficient", "matched", "matched_with_aliases")]
    unjudged = arrow.list_(arrow.struct([("criterion", text), ("reason", text)]))
    votes = arrow.list_(arrow.struct([("label", text), ("votes", arrow.list_(flag))]))
    columns = [
        *texts,
        *flags,
        ("step_failures", arrow.list_(text)),
        ("unjudged", unjudged),
        ("votes", votes),
        ("without_trace", flag),
        ("prose_trace", flag),
        ("question_hash", arrow.uint64()),
        ("passages_hash", arrow.uint64()),
        ("source_hash", arrow.uint64()),
    ]
    bodies = [(name, text) for name in ("response_id", *_BODIES)]
    return arrow.schema(columns), arrow.schema(bodies)


def _describe_labels(case: JudgedCase) -> dict[str, Any]:
    """Return the row of labels of a case."""
    judgment, response, instance = case.judgment, case.response, case.instance
    unjudged = [
        {"criterion": str(criterion), "reason": missing_reason_kind(reason)}
        for criterion, reason in judgment.unjudged.items()
    ]
    no_claim = judgment.unjudged.get(Criterion.LOCAL_SOUNDNESS)
    hashes = QuestionHashes.of(instance)
    return {
        "response_id": response.id,
        "instance_id": instance.id,
        "benchmark": instance.benchmark,
        "model": response.source.model if response.source else None,
        "judge": judgment.judge,
        **{name: getattr(judgment.verdict, name) for name in _LABELS},
        "evidence_sufficient": judgment.evidence_sufficient,
        "matched": case.matched,
        "matched_with_aliases": case.matched_with_aliases,
        "step_failures": [str(step.failure) for step in judgment.steps if step.failure is not None],
        "unjudged": unjudged,
        "votes": [{"label": str(name), "votes": list(votes)} for name, votes in judgment.votes.items()],
        "without_trace": not response.trace.steps
        or (no_claim is not None and missing_reason_kind(no_claim) == NO_CLAIM_REASON),
        "prose_trace": is_prose_trace(response.reading),
        "question_hash": hashes.text,
        "passages_hash": hashes.passages,
        "source_hash": hash_source(response.source),
    }
