"""The exact judge over a file of responses: verdicts, and judgments with the reasons for missing labels."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.core.judgment import Judgment
from eclose.core.response import Response
from eclose.core.verdict import SettledVerdict
from eclose.errors import RecordError
from eclose.store.records.json_reader import require_regular_file
from eclose.store.records.jsonl import ReadRecord, read_records, scan_records
from eclose.store.runs.step import PipelineStep, PipelineStepResult, run_pipeline_steps
from eclose.world.oracle.judge import judge_by_oracle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eclose.core.instance import Instance

    InstanceReader = Callable[[Path], Iterator[Instance]]


class OracleFileResult(NamedTuple):
    """The files of ``judge_file_by_oracle`` and the reasons for labels that are missing."""

    steps: list[PipelineStepResult]
    reasons: Counter[tuple[str, str]] | None
    """Responses by criterion and reason; None where the verdicts were written before, which keep no reasons."""


def judge_file_by_oracle(
    responses: Path,
    read_instances: InstanceReader,
    *,
    instances: Path | None = None,
    verdicts: Path | None = None,
    judgments: Path | None = None,
    **options: Any,
) -> OracleFileResult:
    """Write the exact verdicts on a file of responses, and where a path is given the judgments.

    ``read_instances`` reads the questions from ``instances``, which is ``instances.jsonl`` beside the responses by
    default. ``verdicts`` is ``verdicts.jsonl`` beside them by default. ``options`` are those of ``run_pipeline_steps``:
    ``force`` and ``wrap``.
    """
    require_regular_file(responses)
    instances = instances or responses.with_name("instances.jsonl")
    inputs = (responses, instances)
    steps = [PipelineStep("world judge", {}, inputs, verdicts or responses.with_name("verdicts.jsonl"))]
    if judgments is not None:
        steps.append(PipelineStep("world judgments", {}, inputs, judgments))
    reasons: Counter[tuple[str, str]] = Counter()
    results = run_pipeline_steps(steps, _judge_responses(responses, instances, read_instances, reasons), **options)
    if all(result.again for result in results):
        if judgments is None:
            return OracleFileResult(results, None)
        for judgment in read_records(judgments, Judgment):
            reasons.update(_missing_labels(judgment))
    return OracleFileResult(results, reasons)


def _judge_responses(
    responses: Path, instances: Path, read_instances: InstanceReader, reasons: Counter[tuple[str, str]]
) -> Iterator[tuple[ReadRecord[Any], ReadRecord[Any]]]:
    """Yield verdict and judgment of each response in the order of the file, and count the reasons."""
    find = _instance_finder(instances, read_instances)
    for record in scan_records(responses, Response):
        response = record.value
        if response is None:
            yield record, record
            continue
        instance = find(response.instance_id)
        if instance is None:
            problem = f"there is no instance {response.instance_id!r} in {instances}. Give its file with --instances."
            raise RecordError(problem, path=responses, record=record.where)
        judgment = judge_by_oracle(instance, response)
        reasons.update(_missing_labels(judgment))
        row = SettledVerdict(response.id, instance.id, judgment.verdict, instance.benchmark, response.source)
        yield ReadRecord(record.where, value=row), ReadRecord(record.where, value=judgment)


def _missing_labels(judgment: Judgment) -> Iterator[tuple[str, str]]:
    """Return criterion and reason of each missing label, without the step number: steps are counted together."""
    return ((criterion.value, reason.split(" step ")[0]) for criterion, reason in judgment.unjudged.items())


def _instance_finder(path: Path, read_instances: InstanceReader) -> Callable[[str], Instance | None]:
    """Return a function that finds instances by id. Requests in the order of the file keep one instance in memory."""
    upcoming = read_instances(path)
    current: Instance | None = None
    by_id: dict[str, Instance] = {}

    def find(instance_id: str) -> Instance | None:
        nonlocal current
        if current is not None and current.id == instance_id:
            return current
        for current in upcoming:
            if current.id == instance_id:
                return current
        # The responses are in another order than the instances: from here on all instances are kept.
        if not by_id:
            by_id.update((instance.id, instance) for instance in read_instances(path))
        return by_id.get(instance_id)

    return find
