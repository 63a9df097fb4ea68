"""Export of a run's folder as logs of Inspect, one for each model.

Several responses of a model to one question become epochs. Samples hold their full records, so importing a log restores
the run without loss.
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
from eclose.core.identity import content_hash
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment
from eclose.core.response import Response, ResponseSource
from eclose.diagnosis.diagnose import JudgedCase
from eclose.errors import UserError
from eclose.integrations.inspect.convert_samples import (
    INSTANCE,
    RESPONSE,
    SCORE_KEYS,
    build_judged_score,
    get_response_completion,
    record_to_json_dict,
)
from eclose.integrations.inspect.import_log import LGG_SCORE
from eclose.integrations.inspect.model import UNCALLABLE_PROVIDER, build_inspect_messages, require_inspect
from eclose.judged_cases import check_judged_inputs, read_run_records
from eclose.protocol.prompts import PromptMessage
from eclose.protocol.response_prompt import serialize_evidence
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, read_records
from eclose.store.records.outcome_counts import RecordCounts
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.manifest import Manifest, hash_files
from eclose.store.runs.step import companion_file_path

if TYPE_CHECKING:
    from pathlib import Path

    from inspect_ai.log import EvalLog, EvalSample

T = TypeVar("T")

PACKAGE_NAME = "eclose"
NO_QUESTION = "no such question"
UNKNOWN_MODEL = "unknown"
"""Model name of responses without a source."""


class ExportedInspectLogs(NamedTuple):
    """The written logs, with counts of the run's records."""

    logs: tuple[Path, ...]
    instances: RecordCounts
    responses: RecordCounts
    judgments: RecordCounts
    stale: tuple[str, ...] = ()
    """One sentence for each file that changed since it was judged."""


@dataclass(frozen=True)
class _RunRecords:
    """The records of a run's folder, matched by id."""

    instances: Mapping[str, Instance]
    by_source: Mapping[ResponseSource, list[Response]]
    judgments: Mapping[str, Judgment]
    counts: tuple[RecordCounts, RecordCounts, RecordCounts]
    stale: tuple[str, ...] = ()


def export_run_to_inspect(
    run: Path, out: Path, *, force: bool = False, allow_stale: bool = False
) -> ExportedInspectLogs:
    """Write one log for each model of a run into a folder, and a manifest beside each.

    Raises:
        UserError: A log exists and ``force`` is false; or the judgments are stale and ``allow_stale`` is false. Allowed
            stale files are listed in the metadata of every log.
    """
    require_inspect()
    from inspect_ai.log import write_eval_log  # noqa: PLC0415 - optional

    records = _read_records(run, allow_stale=allow_stale)
    inputs = [path for name in (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE) if (path := run / name).is_file()]
    paths = {source: out / f"{_file_name(source)}.eval" for source in records.by_source}
    if len(set(paths.values())) < len(paths):
        raise UserError(f"{run}: two of its models would get the same log name. Rename one of them.")
    if not force and (existing := [path for path in paths.values() if path.exists()]):
        raise UserError(f"{existing[0]}: exists. Write to another folder, or pass --force to replace it.")
    out.mkdir(parents=True, exist_ok=True)
    for source, path in paths.items():
        write_eval_log(_build_log(run, source, records), path)
        settings = {"model": source.model, "method": source.method, "seed": source.seed}
        written = len(records.by_source[source])
        counts = RecordCounts(written, written)
        manifest = Manifest("data to-inspect", settings, hash_files(inputs), hash_files([path]), counts)
        manifest.write(companion_file_path(path, "manifest.json"))
    return ExportedInspectLogs(tuple(paths.values()), *records.counts, records.stale)


def _read_records(run: Path, *, allow_stale: bool) -> _RunRecords:
    """Read a run and match its records by id; unmatched ones are counted and left out."""
    files = read_run_records(run, first_response=True)
    instances, unused = files.instances, files.rejected.get(INSTANCES_FILE, {})
    judged = (run / JUDGMENTS_FILE).is_file()
    stale = check_judged_inputs(run, allow_stale=allow_stale).stale if judged else ()
    responses, response_counts = _match(
        ((response.id, response.instance_id, response) for response in read_records(run / RESPONSES_FILE, Response)),
        instances,
        NO_QUESTION,
    )
    rows = read_records(run / JUDGMENTS_FILE, Judgment) if judged else ()
    judgments, judgment_counts = _match(
        ((judgment.response_id, judgment.response_id, judgment) for judgment in rows), responses, NO_RESPONSE
    )
    by_source: dict[ResponseSource, list[Response]] = defaultdict(list)
    for response in responses.values():
        by_source[response.source or ResponseSource(UNKNOWN_MODEL)].append(response)
    if not by_source:
        raise UserError(f"{run}: holds no response to one of its questions.")
    answered = {response.instance_id for response in responses.values()}
    unanswered = len(instances) - len(answered)
    rejected = {**unused, **({NO_RESPONSE: unanswered} if unanswered else {})}
    instance_counts = RecordCounts(len(answered) + sum(rejected.values()), len(answered), rejected)
    return _RunRecords(instances, by_source, judgments, (instance_counts, response_counts, judgment_counts), stale)


def _match(
    records: Iterable[tuple[str, str, T]], parents: Container[str], orphan: str
) -> tuple[dict[str, T], RecordCounts]:
    """Return the records with a known parent by id, and counts of all; ``orphan`` names the others."""
    # Each record comes as its id, the id of its parent, and the record itself.
    by_id: dict[str, T] = {}
    rejected: Counter[str] = Counter()
    for id_, parent, record in records:
        if parent not in parents:
            rejected[orphan] += 1
        elif id_ in by_id:
            rejected[DUPLICATE if by_id[id_] == record else ID_REUSED] += 1
        else:
            by_id[id_] = record
    return by_id, RecordCounts(len(by_id) + rejected.total(), len(by_id), dict(rejected))


def _file_name(source: ResponseSource) -> str:
    """Return model, method and seed as a name that is valid on every file system."""
    parts = [source.model, source.method, None if source.seed is None else f"seed{source.seed}"]
    return re.sub(r"[^A-Za-z0-9._+@-]+", "_", "_".join(part for part in parts if part)).lstrip(".") or UNKNOWN_MODEL


def _build_log(run: Path, source: ResponseSource, records: _RunRecords) -> EvalLog:
    """Return a log with all responses of one model."""
    from inspect_ai.log import EvalLog, recompute_metrics  # noqa: PLC0415 - optional

    # ``recompute_metrics`` finds the metrics by name, which needs their registration.
    from eclose.integrations.inspect import registry  # noqa: F401, PLC0415 - optional

    epochs: Counter[str] = Counter()
    samples = []
    for response in records.by_source[source]:
        epochs[response.instance_id] += 1
        instance, judgment = records.instances[response.instance_id], records.judgments.get(response.id)
        samples.append(_build_sample(instance, response, judgment, epochs[response.instance_id]))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    log = EvalLog.model_validate(
        {
            "status": "success",
            "eval": _build_spec(run, source, epochs, now, records.stale),
            "stats": {"started_at": now, "completed_at": now},
            "samples": samples,
        }
    )
    # Inspect shows the metrics that are stored in a log and computes none when it opens one.
    recompute_metrics(log)
    return log


def _build_spec(
    run: Path, source: ResponseSource, epochs: Counter[str], now: str, stale: Sequence[str]
) -> dict[str, Any]:
    per_label = {key: [{"name": f"{PACKAGE_NAME}/judged"}] for key in SCORE_KEYS}
    return {
        "created": now,
        "task": PACKAGE_NAME,
        # Inspect treats logs with equal task ids as attempts at one task, so each model gets another id.
        "task_id": content_hash([run.resolve().name, record_to_json_dict(source)])[7:29],
        "run_id": content_hash([run.resolve().name, now])[7:29],
        "dataset": {"name": run.resolve().name, "samples": len(epochs), "sample_ids": list(epochs)},
        # Inspect resolves this name when it scores the log again; the provider refuses to generate (provider.py).
        "model": f"{UNCALLABLE_PROVIDER}/{source.model}",
        "config": {"epochs": max(epochs.values())},
        "scorers": [{"name": LGG_SCORE, "metrics": [{"name": f"{PACKAGE_NAME}/gap"}, per_label]}],
        "packages": {PACKAGE_NAME: eclose.__version__},
        "metadata": {"source": record_to_json_dict(source), **({"stale": list(stale)} if stale else {})},
    }


def _build_sample(instance: Instance, response: Response, judgment: Judgment | None, epoch: int) -> EvalSample:
    from inspect_ai.log import EvalSample  # noqa: PLC0415 - optional
    from inspect_ai.model import ModelOutput  # noqa: PLC0415 - optional

    model = UNKNOWN_MODEL if response.source is None else response.source.model
    output = ModelOutput.from_content(
        model, get_response_completion(response), stop_reason="max_tokens" if response.cut_off else "stop"
    )
    prompt = PromptMessage(role="user", content=f"{instance.question}\n\n{serialize_evidence(instance.evidence)}")
    return EvalSample(
        id=instance.id,
        epoch=epoch,
        input=instance.question,
        target=list(instance.accepted_answers),
        messages=[*build_inspect_messages([prompt]), output.message],
        output=output,
        scores=None if judgment is None else {LGG_SCORE: build_judged_score(JudgedCase(instance, response, judgment))},
        metadata={INSTANCE: record_to_json_dict(instance), RESPONSE: record_to_json_dict(response)},
    )
