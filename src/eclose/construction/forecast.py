"""What building families will cost, before anything is sent.

How many sources get how far decides the bill, and nobody knows that beforehand. So a forecast rests on a pilot: a run
of the same models on a few hundred of the sources, scaled up dataset by dataset. Without one it supposes the yields of
the paper and replies of the usual length, and is a guess that says so.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eclose.calls.forecast import estimate_expected_tokens
from eclose.construction.funnel import processed_of
from eclose.construction.settings import Part
from eclose.construction.split import dataset_of
from eclose.errors import SettingError
from eclose.models.interface import Usage
from eclose.protocol.acceptance import WANTED
from eclose.protocol.construction import SCHEMAS, Role, Seed, asked, told
from eclose.protocol.material_json import shown_passages
from eclose.store.runs.folder import FAMILIES
from eclose.store.runs.manifest import read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from eclose.calls.prices import Price
    from eclose.construction.run import Plan
    from eclose.construction.settings import ConstructSettings
    from eclose.core.instance import Instance

# What share of the sources that come to a part pass it, by the paper's table of construction. Its column "Packed"
# (2,852 of the 3,757 in "Question") is what the last part leaves, so the gates before it are taken to refuse none.
YIELDS: Mapping[Part, float] = {
    Part.SCREEN: 7_276 / 23_000,
    Part.TARGET: 1.0,
    Part.EVIDENCE: 5_169 / 7_276,
    Part.QUESTION: 3_757 / 5_169,
    Part.PACK: 1.0,
    Part.REVERIFY: 2_852 / 3_757,
}
_ROLES: Mapping[Part, tuple[Role, ...]] = {
    Part.SCREEN: (Role.SCREEN_SEED,),
    Part.TARGET: (Role.CONSTRUCT_TARGET, Role.VERIFY_TARGET),
    Part.EVIDENCE: (Role.CONSTRUCT_EVIDENCE, Role.SCREEN_EVIDENCE, Role.VERIFY_EVIDENCE),
    Part.QUESTION: (Role.CONSTRUCT_QUESTION, Role.SCREEN_QUESTION, Role.VERIFY_QUESTION),
    Part.PACK: (),
    Part.REVERIFY: tuple(WANTED),
}
# Supposed: a reason of a sentence or two beside every judgement, four steps of some fifteen words.
_REPLY: Mapping[Role, int] = {
    Role.SCREEN_SEED: 90,
    Role.CONSTRUCT_TARGET: 260,
    Role.VERIFY_TARGET: 400,
    Role.CONSTRUCT_EVIDENCE: 500,
    Role.SCREEN_EVIDENCE: 100,
    Role.VERIFY_EVIDENCE: 450,
    Role.CONSTRUCT_QUESTION: 300,
    Role.SCREEN_QUESTION: 110,
    Role.VERIFY_QUESTION: 380,
}
_TRACES = 120
"""Tokens of the traces and answers that come on top of a source where they are shown."""
GUESS = "the paper's yields and replies of the usual length: a guess, until a pilot makes it a forecast"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will take, and how many families will come of it."""

    sources: int
    families: float
    calls: float
    prompt_tokens: float
    completion_tokens: float
    cost: float | None
    """Millionths; None without a price."""
    basis: str
    """What it rests on."""


def forecast(plan: Plan, prices: Mapping[str, Price | None], pilot: Path | None = None) -> Forecast:
    """Calls, tokens, cost and families. ``prices`` by the models' names."""
    with plan.sources() as sources:
        read = (record.value for record in sources)
        # Nobody is asked about a source without a reference.
        found = (source for source in read if source is not None and source.reference_answer is not None)
        return _supposed(plan, prices, found) if pilot is None else _scaled(plan, found, pilot)


def _scaled(plan: Plan, sources: Iterable[Instance], pilot: Path) -> Forecast:
    """A pilot's means for each source, dataset by dataset, at the prices it was run with."""
    if not sibling_path(pilot / FAMILIES, "manifest.json").is_file():
        raise SettingError(f"{pilot}: there is no finished run of eclose construct here.")
    manifest = read_manifest(sibling_path(pilot / FAMILIES, "manifest.json"))
    _refuse_other_work(plan, manifest.settings, pilot)
    funnel, usage = manifest.calls["funnel"], manifest.calls["usage"]
    counts = Counter(dataset_of(source.benchmark) for source in sources)
    if unknown := sorted(name for name in counts if not processed_of(funnel.get(name, {}))):
        raise SettingError(f"{pilot}: has no sources of {', '.join(unknown)}, so it says nothing of them.")
    last = list(next(iter(funnel.values())))[-1]
    share = {name: count / processed_of(funnel[name]) for name, count in counts.items()}

    def scaled(key: str) -> float:
        return sum(float(part * usage.get(name, {}).get(key, 0)) for name, part in share.items())

    return Forecast(
        counts.total(),
        sum(part * funnel[name][last] for name, part in share.items()),
        scaled("replies"),
        scaled("prompt_tokens"),
        scaled("completion_tokens"),
        scaled("cost") or None,
        f"{sum(processed_of(funnel[name]) for name in counts):,} sources of {pilot}",
    )


def _refuse_other_work(plan: Plan, settings: Mapping[str, object], pilot: Path) -> None:
    """A pilot of other models, or under other texts, is no pilot."""
    for name, value in plan.stage.settings.items():
        if name not in ("limit", "format") and settings.get(name) != value:
            raise SettingError(f"{pilot}: was built with other settings ({name}), so it says nothing of this run.")


def _supposed(plan: Plan, prices: Mapping[str, Price | None], sources: Iterable[Instance]) -> Forecast:
    """The yields of the paper and replies of the usual length."""
    count = material = 0
    for source in sources:
        count += 1
        assert source.reference_answer is not None
        seed = Seed(source.question, shown_passages(source.evidence), source.reference_answer, source.aliases)
        material += estimate_expected_tokens(asked(seed).messages[-1]["content"])
    asks = list(_asks(plan.settings))
    bills = [(ask, _bill(ask, count, material)) for ask in asks]
    costs = [_cost(prices.get(plan.models.of(ask.who).name), usage) for ask, usage in bills]
    return Forecast(
        count,
        count * prod(YIELDS[part] for part in plan.settings.parts),
        count * sum(ask.often for ask in asks),
        sum(usage.prompt_tokens for _, usage in bills),
        sum(usage.completion_tokens for _, usage in bills),
        None if None in costs else sum(cost for cost in costs if cost is not None),
        GUESS,
    )


@dataclass(frozen=True, slots=True)
class _Ask:
    """A role, who plays it, and how often a source comes to it."""

    role: Role
    who: str
    often: float


def _asks(settings: ConstructSettings) -> Iterator[_Ask]:
    """Everything that is asked of a source, if every part is built at the first attempt."""
    reach = 1.0
    for part in settings.parts:
        for role in _ROLES[part]:
            who = "constructor" if role.constructs else "reverifier" if part is Part.REVERIFY else "verifier"
            each = settings.edits if role in (Role.SCREEN_EVIDENCE, Role.VERIFY_EVIDENCE) else 1
            yield _Ask(role, who, reach * each)
        reach *= YIELDS[part]


def _bill(ask: _Ask, count: int, material: int) -> Usage:
    shown = 0 if ask.role in (Role.SCREEN_SEED, Role.CONSTRUCT_TARGET) else _TRACES
    fixed = estimate_expected_tokens(told(ask.role)) + estimate_expected_tokens(json.dumps(SCHEMAS[ask.role])) + shown
    return Usage(round(ask.often * (count * fixed + material)), round(ask.often * count * _REPLY[ask.role]))


def _cost(price: Price | None, usage: Usage) -> int | None:
    return None if price is None else price.cost(usage)
