"""Files of the world: questions with responses, counterfactual families, and sources, each with a manifest."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from eclose.core.family import Family
from eclose.core.verdict import SettledVerdict
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.step import PipelineStep, PipelineStepResult, run_pipeline_steps
from eclose.world.faulty.bad_sources import PlantedSourceDefect, make_world_sources
from eclose.world.faulty.broken_responses import break_response
from eclose.world.faulty.matched_responses import break_matched_response
from eclose.world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose.world.make.families import make_world_family
from eclose.world.make.instances import make_world_items
from eclose.world.roles.request_handlers import ModelFailureRates, break_response_at_rates

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


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
