"""Files of the world: questions with responses, families, sources, and labels of responses by the exact judge."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from eclose.errors import RecordError
from eclose.files.json_reader import require_regular_file
from eclose.files.jsonl import ReadRecord, read_records, scan_records
from eclose.files.step import PipelineStep, PipelineStepResult, run_pipeline_steps
from eclose.values.family import Family
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from eclose.values.verdict import SettledVerdict
from eclose_world.faulty.bad_sources import PlantedSourceDefect, make_world_sources
from eclose_world.faulty.broken_responses import break_response
from eclose_world.faulty.matched_responses import break_matched_response
from eclose_world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose_world.make.families import make_world_family
from eclose_world.make.instances import make_world_items
from eclose_world.oracle.judge import judge_by_oracle
from eclose_world.roles.request_handlers import ModelFailureRates, break_response_at_rates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from eclose.values.instance import Instance

    InstanceReader = Callable[[Path], Iterator[Instance]]


def write_world_questions(
    out: Path, questions: int, *, profile: str, seed: int, failures: Mapping[str, float], **options: Any
) -> list[PipelineStepResult]:
    """Write ``instances.jsonl``, ``responses.jsonl``, and ``planted.jsonl`` with the true labels of the responses.

    ``failures`` gives the rate of each way to fail. ``options`` are those of ``run_pipeline_steps``: force and wrap.
    """
    settings = {"profile": profile, "seed": seed, "questions": questions}
    broken = settings | {"failures": dict(failures)}
    steps = [
        PipelineStep("world instances", settings, (), out / "instances.jsonl"),
        PipelineStep("world responses", broken, (), out / "responses.jsonl"),
        PipelineStep("world planted", broken, (), out / "planted.jsonl"),
    ]
    return run_pipeline_steps(steps, _make_questions(profile, seed, questions, ModelFailureRates(failures)), **options)


def write_world_families(
    out: Path, families: int, *, profile: str, seed: int, **options: Any
) -> list[PipelineStepResult]:
    """Write ``families.jsonl``; items that admit no family are counted as rejected."""
    settings = {"profile": profile, "seed": seed, "families": families}
    step = PipelineStep("world families", settings, (), out / "families.jsonl")
    return run_pipeline_steps([step], _make_families(profile, seed, families), **options)


def write_world_sources(
    out: Path, sources: int, *, profile: str, seed: int, ineligible: float, **options: Any
) -> list[PipelineStepResult]:
    """Write ``sources.jsonl``, and ``sources.planted.jsonl`` with the defect of each; ``ineligible`` is their share."""
    settings = {"profile": profile, "seed": seed, "sources": sources, "ineligible": ineligible}
    steps = [
        PipelineStep("world sources", settings, (), out / "sources.jsonl"),
        PipelineStep("world planted sources", settings, (), out / "sources.planted.jsonl"),
    ]
    return run_pipeline_steps(steps, _make_sources(profile, seed, sources, ineligible), **options)


def _make_questions(
    profile: str, seed: int, count: int, failures: ModelFailureRates
) -> Iterator[list[ReadRecord[Any]]]:
    """Yield the instance of each item, a response that may fail, and the true labels of the response."""
    # There, length and conclusion words must not show a failure.
    break_item = break_matched_response if profile in CONFUSABLE_BENCHMARK_PROFILES else break_response
    for number, item in enumerate(islice(make_world_items(profile, seed), count), start=1):
        broken = break_response_at_rates(item, failures, break_item)
        response, instance = broken.response, item.instance
        planted = SettledVerdict(response.id, instance.id, broken.verdict, instance.benchmark, response.source)
        # Not every question admits every failure; the manifest counts the requests that could not be met.
        possible = not (broken.requested and broken.verdict.reliable)
        repairs = () if possible else (f"{broken.requested} asked for, not possible",)
        where = f"item {number}"
        yield [
            ReadRecord(where, value=instance),
            ReadRecord(where, value=response, repairs=repairs),
            ReadRecord(where, value=planted),
        ]


def _make_families(profile: str, seed: int, count: int) -> Iterator[list[ReadRecord[Any]]]:
    accepted = 0
    for number, item in enumerate(make_world_items(profile, seed), start=1):
        if accepted == count:
            return
        family = make_world_family(item)
        if isinstance(family, Family):
            accepted += 1
            yield [ReadRecord(f"item {number}", value=family)]
        else:
            yield [ReadRecord(f"item {number}", rejected=family)]


def _make_sources(profile: str, seed: int, count: int, ineligible: float) -> Iterator[list[ReadRecord[Any]]]:
    """Yield each source with its defect, which the source itself does not tell."""
    for number, (source, kind) in enumerate(make_world_sources(profile, seed, count, ineligible), start=1):
        where = f"source {number}"
        yield [ReadRecord(where, value=source), ReadRecord(where, value=PlantedSourceDefect(source.id, kind))]


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
