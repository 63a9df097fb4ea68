"""Forecast of the cost of construction, before any request is sent.

The cost depends on how many sources pass each stage, which is unknown beforehand. A forecast therefore scales up a
pilot, dataset by dataset: a run of the same models on a few hundred of the sources. Without a pilot it assumes the
yields of the paper and replies of usual length, and calls itself a guess.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eclose.calls.forecast import estimate_text_tokens
from eclose.calls.model import TokenUsage
from eclose.errors import SettingError
from eclose.files.manifest import read_manifest
from eclose.files.run_folder import FAMILIES_FILE
from eclose.files.step import companion_file_path
from eclose.prompts.material_json import disclose_passages
from eclose.values.instance import dataset_of_benchmark
from eclose_train.construction.funnel import count_processed_sources
from eclose_train.construction.questions import (
    ACCEPTANCE_CONDITIONS,
    ROLE_REPLY_SCHEMAS,
    ConstructionRole,
    SourceScreenMaterial,
    build_construction_prompt,
    render_role_instructions,
)
from eclose_train.construction.settings import ConstructionStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from eclose.calls.prices import ModelPrice
    from eclose.values.instance import Instance
    from eclose_train.construction.run import ConstructionRun
    from eclose_train.construction.settings import ConstructSettings

# Share of the sources at a stage that pass it, from the paper's table of construction. Its column "Packed" (2,852 of
# the 3,757 in "Question") counts what the last stage leaves, so the gates before it are assumed to refuse none.
STAGE_YIELDS: Mapping[ConstructionStage, float] = {
    ConstructionStage.SCREEN: 7_276 / 23_000,
    ConstructionStage.TARGET: 1.0,
    ConstructionStage.EVIDENCE: 5_169 / 7_276,
    ConstructionStage.QUESTION: 3_757 / 5_169,
    ConstructionStage.PACK: 1.0,
    ConstructionStage.REVERIFY: 2_852 / 3_757,
}
_ROLES: Mapping[ConstructionStage, tuple[ConstructionRole, ...]] = {
    ConstructionStage.SCREEN: (ConstructionRole.SCREEN_SEED,),
    ConstructionStage.TARGET: (ConstructionRole.CONSTRUCT_TARGET, ConstructionRole.VERIFY_TARGET),
    ConstructionStage.EVIDENCE: (
        ConstructionRole.CONSTRUCT_EVIDENCE,
        ConstructionRole.SCREEN_EVIDENCE,
        ConstructionRole.VERIFY_EVIDENCE,
    ),
    ConstructionStage.QUESTION: (
        ConstructionRole.CONSTRUCT_QUESTION,
        ConstructionRole.SCREEN_QUESTION,
        ConstructionRole.VERIFY_QUESTION,
    ),
    ConstructionStage.PACK: (),
    ConstructionStage.REVERIFY: tuple(ACCEPTANCE_CONDITIONS),
}
# Assumed reply lengths in tokens: a reason of a sentence or two with every judgement, four steps of some fifteen words.
_REPLY_TOKENS: Mapping[ConstructionRole, int] = {
    ConstructionRole.SCREEN_SEED: 90,
    ConstructionRole.CONSTRUCT_TARGET: 260,
    ConstructionRole.VERIFY_TARGET: 400,
    ConstructionRole.CONSTRUCT_EVIDENCE: 500,
    ConstructionRole.SCREEN_EVIDENCE: 100,
    ConstructionRole.VERIFY_EVIDENCE: 450,
    ConstructionRole.CONSTRUCT_QUESTION: 300,
    ConstructionRole.SCREEN_QUESTION: 110,
    ConstructionRole.VERIFY_QUESTION: 380,
}
_TRACE_TOKENS = 120
"""Assumed tokens of the traces and answers in the prompt of a role that sees them."""
UNPILOTED_BASIS = "the paper's yields and replies of the usual length: a guess, until a pilot makes it a forecast"


@dataclass(frozen=True, slots=True)
class ConstructionForecast:
    """Expected calls, tokens, cost and families of a run."""

    sources: int
    families: float
    calls: float
    prompt_tokens: float
    completion_tokens: float
    cost: float | None
    """Cost in millionths of the currency; None without a price."""
    basis: str
    """Basis of the forecast, as printed."""


def forecast_construction(
    plan: ConstructionRun, prices: Mapping[str, ModelPrice | None], pilot: Path | None = None
) -> ConstructionForecast:
    """Forecast a run by the finished one in the folder ``pilot``; without one, guess by prices of models by name."""
    with plan.open_records() as sources:
        instances = (record.value for record in sources)
        # No model is asked about a source without a reference.
        eligible = (source for source in instances if source is not None and source.reference_answer is not None)
        return _guess(plan, prices, eligible) if pilot is None else _scale_pilot(plan, eligible, pilot)


def _scale_pilot(plan: ConstructionRun, sources: Iterable[Instance], pilot: Path) -> ConstructionForecast:
    """Scale the pilot's means per source, dataset by dataset, at the prices of the pilot."""
    if not companion_file_path(pilot / FAMILIES_FILE, "manifest.json").is_file():
        raise SettingError(f"{pilot}: holds no finished run of eclose construct.")
    manifest = read_manifest(companion_file_path(pilot / FAMILIES_FILE, "manifest.json"))
    for name, value in plan.stage.settings.items():
        if name not in ("limit", "format") and manifest.settings.get(name) != value:
            raise SettingError(f"{pilot}: was built with other settings ({name}), so it is no pilot of this run.")
    funnel, usage = manifest.calls["funnel"], manifest.calls["usage"]
    counts = Counter(dataset_of_benchmark(source.benchmark) for source in sources)
    # Datasets differ widely in yield (92 % of 2Wiki and 19 % of MuSiQue sources pass the seed screen in the paper), so
    # no dataset is forecast from another.
    if unknown := sorted(name for name in counts if not count_processed_sources(funnel.get(name, {}))):
        raise SettingError(
            f"{pilot}: has no sources of {', '.join(unknown)}, so their cost cannot be forecast from it."
        )
    last = list(next(iter(funnel.values())))[-1]  # the column of finished families
    factors = {name: count / count_processed_sources(funnel[name]) for name, count in counts.items()}

    def scale(key: str) -> float:
        return sum(float(factor * usage.get(name, {}).get(key, 0)) for name, factor in factors.items())

    return ConstructionForecast(
        sources=counts.total(),
        families=sum(factor * funnel[name][last] for name, factor in factors.items()),
        calls=scale("replies"),
        prompt_tokens=scale("prompt_tokens"),
        completion_tokens=scale("completion_tokens"),
        cost=scale("cost") or None,
        basis=f"{sum(count_processed_sources(funnel[name]) for name in counts):,} sources of {pilot}",
    )


def _guess(
    plan: ConstructionRun, prices: Mapping[str, ModelPrice | None], sources: Iterable[Instance]
) -> ConstructionForecast:
    """Assume the yields of the paper and replies of usual length."""
    count = material = 0
    for source in sources:
        count += 1
        assert source.reference_answer is not None
        seed = SourceScreenMaterial(
            source.question, disclose_passages(source.evidence), source.reference_answer, source.aliases
        )
        material += estimate_text_tokens(build_construction_prompt(seed).messages[-1]["content"])
    calls = list(_calls(plan.settings))
    usages = [_usage(role, rate, count, material) for role, _, rate in calls]
    models = [prices.get(plan.models.of(model).name) for _, model, _ in calls]
    costs = [None if price is None else price.cost(usage) for price, usage in zip(models, usages, strict=True)]
    return ConstructionForecast(
        sources=count,
        families=count * prod(STAGE_YIELDS[stage] for stage in plan.settings.stages),
        calls=count * sum(rate for _, _, rate in calls),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        basis=UNPILOTED_BASIS,
    )


def _calls(settings: ConstructSettings) -> Iterator[tuple[ConstructionRole, str, float]]:
    """Yield each role with its model and the expected calls per source, if parts are built at the first attempt."""
    reach = 1.0  # share of the sources that reach the stage
    for stage in settings.stages:
        checker = "reverifier" if stage is ConstructionStage.REVERIFY else "verifier"
        for role in _ROLES[stage]:
            # Every evidence edit is screened and verified by itself.
            per_edit = role in (ConstructionRole.SCREEN_EVIDENCE, ConstructionRole.VERIFY_EVIDENCE)
            model = "constructor" if role.constructs else checker
            yield role, model, reach * (settings.edits if per_edit else 1)
        reach *= STAGE_YIELDS[stage]


def _usage(role: ConstructionRole, rate: float, count: int, material: int) -> TokenUsage:
    without_trace = role in (ConstructionRole.SCREEN_SEED, ConstructionRole.CONSTRUCT_TARGET)
    instructions = estimate_text_tokens(render_role_instructions(role))
    schema = estimate_text_tokens(json.dumps(ROLE_REPLY_SCHEMAS[role]))
    fixed = instructions + schema + (0 if without_trace else _TRACE_TOKENS)
    # Instructions and schema are sent with every call; ``material`` is the sum over all sources, each sent once per
    # call.
    return TokenUsage(round(rate * (count * fixed + material)), round(rate * count * _REPLY_TOKENS[role]))
