"""Rows of judged runs in Parquet parts: the labels of a response, and the texts of its records."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.core.instance import Instance
from eclose.core.judgment import Criterion, Judgment, LocalFailure
from eclose.core.response import Response
from eclose.core.verdict import Verdict
from eclose.diagnosis.counts import CountedResponse
from eclose.errors import SettingError, UserError
from eclose.judged_cases import EvidenceSufficiency, JudgedCase, JudgedCaseSet
from eclose.store.records.json_reader import parse_json_object
from eclose.store.records.jsonl import decode_core_value
from eclose.store.records.parquet import import_pyarrow
from eclose.store.runs.parts import (
    BODIES_FOLDER,
    LABELS_FOLDER,
    PARTS_SCHEMA,
    PartsFolder,
    PartsManifest,
    get_remote_url,
)
from eclose.store.runs.verify_files import ProvenanceCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eclose.calls.ray.workers import RaySettings, RecordShard, ShardStopSignal
    from eclose.diagnosis.response_counter import ResponseCounter, ResponsePosition

PART_ROWS = 50_000
"""Responses of a part by default."""
_LABELS = ("locally_sound", "aligned", "closed", "complete", "correct")
_EVIDENCE_LABELS = {
    EvidenceSufficiency.SUFFICIENT: True,
    EvidenceSufficiency.INSUFFICIENT: False,
    EvidenceSufficiency.UNJUDGED: None,
}


class ResponseRow(NamedTuple):
    """A response for a part: its facts, and the JSON of its question, itself and its judgment."""

    facts: CountedResponse
    instance: str
    response: str
    judgment: str


def write_parts(
    out: Path | str, rows: Iterable[ResponseRow], find_caveats: Callable[[], JudgedCaseSet], part_rows: int
) -> PartsManifest:
    """Write rows in parts, and then the manifest with their names and the caveats of the run; return it.

    Args:
        out: Folder, or address in object storage.
        rows: Responses in the order of the run.
        find_caveats: Called after the last row, since the caveats are complete only then.
        part_rows: Responses of a part.
    """
    folder = PartsFolder(out)
    labels_schema, bodies_schema = _schemas()
    parts: list[tuple[str, int]] = []
    for chunk in _chunks(rows, part_rows):
        # Five digits keep the names in order for 100,000 parts.
        name = f"part-{len(parts):05}"
        folder.write_part(LABELS_FOLDER, name, [_facts_to_row(row.facts) for row in chunk], labels_schema)
        bodies = [{"response_id": row.facts.response_id, **dict(zip(_BODIES, row[1:], strict=True))} for row in chunk]
        folder.write_part(BODIES_FOLDER, name, bodies, bodies_schema)
        parts.append((name, len(chunk)))
    # The manifest comes last: a split that was cut off leaves no run behind.
    run = find_caveats()
    rejected = {file: dict(reasons) for file, reasons in run.rejected.items()}
    manifest = PartsManifest(PARTS_SCHEMA, tuple(parts), run.left_out, rejected, run.stale, run.checked, run.selected)
    folder.write_manifest(manifest)
    return manifest


_BODIES = ("instance", "response", "judgment")


def refuse_used_folder(out: Path | str, part_rows: int) -> None:
    """Raise where a folder already holds a run in parts, or where a part would be empty."""
    if part_rows < 1:
        raise SettingError("a part needs at least one row.")
    if PartsFolder(out).exists():
        raise UserError(f"{out}: holds a run in parts already. Name another folder, or remove this one.")


def count_part(folder: PartsFolder, name: str) -> Iterator[CountedResponse]:
    """Yield the facts of a part; its texts are not read."""
    return (_row_to_facts(row) for row in folder.read_rows(LABELS_FOLDER, name))


def read_part_cases(folder: PartsFolder, name: str, positions: list[int]) -> list[JudgedCase]:
    """Return the whole cases at some positions of a part."""
    return [
        JudgedCase(
            decode_core_value(Instance, parse_json_object(row["instance"].encode())),
            decode_core_value(Response, parse_json_object(row["response"].encode())),
            decode_core_value(Judgment, parse_json_object(row["judgment"].encode())),
        )
        for row in folder.read_rows_at(BODIES_FOLDER, name, positions)
    ]


class RunInParts:
    """A run in parts that is counted in this process or by Ray workers.

    Args:
        run: Folder or address of the run; on Ray every worker must reach it under this name.
        allow_stale: Use judgments although questions or responses changed after they were judged.
        ray: Workers that count the parts; None counts them in this process.

    Raises:
        UserError: There is no such run, or its judgments are stale and ``allow_stale`` is false.
    """

    def __init__(self, run: Path | str, *, allow_stale: bool = False, ray: RaySettings | None = None) -> None:
        self._folder, self._ray = PartsFolder(run), ray
        self._manifest = manifest = self._folder.read_manifest()
        ProvenanceCheck(manifest.checked, manifest.stale).refuse_stale(
            Path(self._folder.name), "Judge these responses, split the run again", allow_stale=allow_stale
        )

    def count(self, new_counter: Callable[[], ResponseCounter]) -> ResponseCounter:
        """Count all responses; a position is the number of the part and the row in it."""
        names = [name for name, _ in self._manifest.parts]
        counter = new_counter()
        if self._ray is None:
            for number, name in enumerate(names):
                _count_part_into(counter, self._folder, number, name)
            return counter
        from eclose.calls.ray.workers import receive_shards_from_ray  # noqa: PLC0415 - rarely needed

        # Workers run in other folders than this process.
        run = get_remote_url(self._folder.name) or str(Path(self._folder.name).absolute())
        work = partial(count_parts_of_shard, run, names, new_counter)
        receive_shards_from_ray(work, None, self._ray, counter.include)
        return counter

    def read_cases(self, positions: Sequence[ResponsePosition]) -> JudgedCaseSet:
        """Return the cases at some positions, with the caveats of the run; no other texts are read."""
        manifest = self._manifest
        rows: dict[int, list[int]] = {}
        for part, row in positions:
            rows.setdefault(part, []).append(row)
        cases = [
            case
            for part, rows_of_part in sorted(rows.items())
            for case in read_part_cases(self._folder, manifest.parts[part][0], rows_of_part)
        ]
        return JudgedCaseSet(
            tuple(cases),
            manifest.left_out,
            manifest.rejected,
            manifest.stale,
            checked=manifest.checked,
            selected=manifest.selected,
        )


def _count_part_into(counter: ResponseCounter, folder: PartsFolder, number: int, name: str) -> None:
    for row, facts in enumerate(count_part(folder, name)):
        counter.add(facts, (number, row))


async def count_parts_of_shard(
    run: str,
    names: Sequence[str],
    new_counter: Callable[[], ResponseCounter],
    shard: RecordShard,
    stop: ShardStopSignal,
) -> ResponseCounter:
    """Count the parts of a shard in a worker; shards are ranges of parts, so their order is that of the run."""
    stopped: list[bool] = []
    stop.listen(lambda: stopped.append(True))
    folder, counter = PartsFolder(run), new_counter()
    first, end = (len(names) * index // shard.of for index in (shard.index, shard.index + 1))
    for number in range(first, end):
        # A request to stop is received here, between two parts.
        await asyncio.sleep(0)
        if stopped:
            break
        _count_part_into(counter, folder, number, names[number])
    return counter


def _chunks(rows: Iterable[ResponseRow], size: int) -> Iterator[list[ResponseRow]]:
    chunk: list[ResponseRow] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


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


def _facts_to_row(facts: CountedResponse) -> dict[str, Any]:
    return {
        "response_id": facts.response_id,
        "instance_id": facts.instance_id,
        "benchmark": facts.benchmark,
        "model": facts.model,
        "judge": facts.judge,
        **{name: getattr(facts.verdict, name) for name in _LABELS},
        "evidence_sufficient": _EVIDENCE_LABELS[facts.evidence],
        "matched": facts.matched,
        "matched_with_aliases": facts.matched_with_aliases,
        "step_failures": [str(code) for code in facts.step_failures],
        "unjudged": [{"criterion": str(criterion), "reason": reason} for criterion, reason in facts.unjudged],
        "votes": [{"label": str(name), "votes": list(votes)} for name, votes in facts.votes.items()],
        "without_trace": facts.without_trace,
        "prose_trace": facts.prose_trace,
        "question_hash": facts.question_hashes[0],
        "passages_hash": facts.question_hashes[1],
        "source_hash": facts.source_hash,
    }


def _row_to_facts(row: dict[str, Any]) -> CountedResponse:
    return CountedResponse(
        row["response_id"],
        row["instance_id"],
        row["benchmark"],
        row["model"],
        row["judge"],
        Verdict(*(row[name] for name in _LABELS)),
        EvidenceSufficiency.of(row["evidence_sufficient"]),
        row["matched"],
        row["matched_with_aliases"],
        tuple(map(LocalFailure, row["step_failures"])),
        tuple((Criterion(entry["criterion"]), entry["reason"]) for entry in row["unjudged"]),
        {entry["label"]: tuple(entry["votes"]) for entry in row["votes"]},
        row["without_trace"],
        row["prose_trace"],
        (row["question_hash"], row["passages_hash"]),
        row["source_hash"],
    )
