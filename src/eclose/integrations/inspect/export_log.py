"""A run's folder -> logs that Inspect opens: one for each model whose responses it holds.

A question that was answered several times by one model has as many epochs. Samples carry what they were made from, so
that nothing is lost on the way back.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import eclose
from eclose.benchmarks.load import NO_RESPONSE
from eclose.cases import check_run, read_run_files
from eclose.core.identity import content_hash
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment
from eclose.core.response import Response, Source
from eclose.diagnosis.diagnose import Case
from eclose.errors import UserError
from eclose.integrations.inspect.cases import INSTANCE, KEYS, RESPONSE, completion_of, plain, score_of
from eclose.integrations.inspect.import_log import SCORE
from eclose.integrations.inspect.model import PROVIDER, chat_messages, require_inspect
from eclose.protocol.prompts import Message
from eclose.protocol.response_prompt import serialize_evidence
from eclose.store.records.counts import Counts
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, read_records
from eclose.store.runs.folder import INSTANCES, JUDGMENTS, RESPONSES
from eclose.store.runs.manifest import Manifest, hash_files
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from pathlib import Path

    from inspect_ai.log import EvalLog, EvalSample

T = TypeVar("T")

PACKAGE = "eclose"
NO_QUESTION = "no such question"
UNKNOWN = "unknown"
"""The model of responses that do not say whose they are."""


class Exported(NamedTuple):
    """The logs that were written, and where every record of the run went."""

    logs: tuple[Path, ...]
    instances: Counts
    responses: Counts
    judgments: Counts
    stale: tuple[str, ...] = ()
    """Files that are not those that were judged, a sentence each."""


@dataclass(frozen=True)
class _Run:
    """Everything in a run's folder, matched."""

    instances: Mapping[str, Instance]
    by_source: Mapping[Source, list[Response]]
    judgments: Mapping[str, Judgment]
    counts: tuple[Counts, Counts, Counts]
    stale: tuple[str, ...] = ()


def export_run(run: Path, out: Path, *, force: bool = False, allow_stale: bool = False) -> Exported:
    """Write one log for each model of a run into a folder, and a manifest beside each.

    Judgments of other responses are refused unless ``allow_stale``: then every log says so in its metadata.
    """
    require_inspect()
    from inspect_ai.log import write_eval_log  # noqa: PLC0415 - optional

    found, inputs = _read(run, allow_stale=allow_stale), tuple(run / name for name in (INSTANCES, RESPONSES, JUDGMENTS))
    paths = {source: out / f"{_file_name(source)}.eval" for source in found.by_source}
    if len(set(paths.values())) < len(paths):
        raise UserError(f"{run}: two of its models would share a log's name.")
    if not force and (there := [path for path in paths.values() if path.exists()]):
        raise UserError(f"{there[0]}: exists. Write to another folder, or pass --force to replace it.")
    out.mkdir(parents=True, exist_ok=True)
    for source, path in paths.items():
        write_eval_log(_log(run, source, found), path)
        written = len(found.by_source[source])
        told = {"model": source.model, "method": source.method, "seed": source.seed}
        present = [one for one in inputs if one.is_file()]
        Manifest("data to-inspect", told, hash_files(present), hash_files([path]), Counts(written, written)).write(
            sibling_path(path, "manifest.json")
        )
    return Exported(tuple(paths.values()), *found.counts, found.stale)


def _read(run: Path, *, allow_stale: bool) -> _Run:
    """Read a run and match its records by id; those that belong to nothing are counted and left out."""
    files = read_run_files(run, first_response=True)
    instances, unused = files.instances, files.rejected.get(INSTANCES, {})
    judged = (run / JUDGMENTS).is_file()
    stale = check_run(run, allow_stale=allow_stale).stale if judged else ()
    responses, of_responses = _matched(
        ((one.id, one.instance_id, one) for one in read_records(run / RESPONSES, Response)), instances, NO_QUESTION
    )
    said = read_records(run / JUDGMENTS, Judgment) if judged else ()
    judgments, of_judgments = _matched(
        ((one.response_id, one.response_id, one) for one in said), responses, NO_RESPONSE
    )
    by_source: dict[Source, list[Response]] = defaultdict(list)
    for response in responses.values():
        by_source[response.source or Source(UNKNOWN)].append(response)
    if not by_source:
        raise UserError(f"{run}: there is no response to a question of this run.")
    answered = {response.instance_id for response in responses.values()}
    silent = len(instances) - len(answered)
    rejected = {**unused, **({NO_RESPONSE: silent} if silent else {})}
    of_instances = Counts(len(answered) + sum(rejected.values()), len(answered), rejected)
    return _Run(instances, by_source, judgments, (of_instances, of_responses, of_judgments), stale)


def _matched(
    records: Iterable[tuple[str, str, T]], known: Container[str], homeless: str
) -> tuple[dict[str, T], Counts]:
    """Records by their id, those that belong to something known; and where all of them went."""
    found: dict[str, T] = {}
    rejected: Counter[str] = Counter()
    for id_, belongs_to, record in records:
        if belongs_to not in known:
            rejected[homeless] += 1
        elif id_ in found:
            rejected[DUPLICATE if found[id_] == record else ID_REUSED] += 1
        else:
            found[id_] = record
    return found, Counts(len(found) + rejected.total(), len(found), dict(rejected))


def _file_name(source: Source) -> str:
    """The model, its method and its seed, as a name that every file system takes."""
    parts = [source.model, source.method, None if source.seed is None else f"seed{source.seed}"]
    return re.sub(r"[^A-Za-z0-9._+@-]+", "_", "_".join(part for part in parts if part)).lstrip(".") or UNKNOWN


def _log(run: Path, source: Source, found: _Run) -> EvalLog:
    """All responses of one model."""
    from inspect_ai.log import EvalLog, recompute_metrics  # noqa: PLC0415 - optional

    # Inspect finds the metrics by their names once this is imported.
    from eclose.integrations.inspect import registry  # noqa: F401, PLC0415 - optional

    epochs: Counter[str] = Counter()
    samples = []
    for response in found.by_source[source]:
        epochs[response.instance_id] += 1
        instance, judgment = found.instances[response.instance_id], found.judgments.get(response.id)
        samples.append(_sample(instance, response, judgment, epochs[response.instance_id]))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    log = EvalLog.model_validate(
        {
            "status": "success",
            "eval": _spec(run, source, epochs, now, found.stale),
            "stats": {"started_at": now, "completed_at": now},
            "samples": samples,
        }
    )
    recompute_metrics(log)
    return log


def _spec(run: Path, source: Source, epochs: Counter[str], now: str, stale: Sequence[str]) -> dict[str, Any]:
    per_label = {key: [{"name": f"{PACKAGE}/judged"}] for key in KEYS}
    return {
        "created": now,
        "task": PACKAGE,
        # Inspect takes logs with one task id for attempts at one task.
        "task_id": content_hash([run.resolve().name, plain(source)])[7:29],
        "run_id": content_hash([run.resolve().name, now])[7:29],
        "dataset": {"name": run.resolve().name, "samples": len(epochs), "sample_ids": list(epochs)},
        # A name that Inspect can resolve when the log is scored again: its provider answers nothing (provider.py).
        "model": f"{PROVIDER}/{source.model}",
        "config": {"epochs": max(epochs.values())},
        "scorers": [{"name": SCORE, "metrics": [{"name": f"{PACKAGE}/gap"}, per_label]}],
        "packages": {PACKAGE: eclose.__version__},
        "metadata": {"source": plain(source), **({"stale": list(stale)} if stale else {})},
    }


def _sample(instance: Instance, response: Response, judgment: Judgment | None, epoch: int) -> EvalSample:
    from inspect_ai.log import EvalSample  # noqa: PLC0415 - optional
    from inspect_ai.model import ModelOutput  # noqa: PLC0415 - optional

    model = UNKNOWN if response.source is None else response.source.model
    output = ModelOutput.from_content(
        model, completion_of(response), stop_reason="max_tokens" if response.cut_off else "stop"
    )
    shown = Message(role="user", content=f"{instance.question}\n\n{serialize_evidence(instance.evidence)}")
    return EvalSample(
        id=instance.id,
        epoch=epoch,
        input=instance.question,
        target=list(instance.accepted_answers),
        messages=[*chat_messages([shown]), output.message],
        output=output,
        scores=None if judgment is None else {SCORE: score_of(Case(instance, response, judgment))},
        metadata={INSTANCE: plain(instance), RESPONSE: plain(response)},
    )
