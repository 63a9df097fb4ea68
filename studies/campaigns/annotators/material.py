"""Material of a simulated study: questions of the world, responses, and the truth about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from eclose.values.instance import Instance
from eclose.values.response import Response, ResponseSource
from eclose_world.faulty.broken_responses import FailurePlan, break_response
from eclose_world.make.instances import WorldItem, make_world_items

from .error_model import Truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SYSTEMS = ("one", "two", "three")
PROFILES = {"2wiki": 278, "musique": 255, "hotpot": 333}
"""Questions of the paper after screening, by benchmark."""


@dataclass(frozen=True, slots=True)
class World:
    """Questions, responses, and the truth about the responses."""

    instances: Sequence[Instance]
    responses: Sequence[Response]
    truths: Sequence[Truth]


def make_world(
    questions: int, mix: Mapping[tuple[FailurePlan, ...], float], *, systems: Sequence[str] = SYSTEMS, seed: int = 42
) -> World:
    """Make a response of each system to each question, failing by the shares of ``mix``; the rest is reliable."""
    share = sum(PROFILES.values())
    counts = {name: round(questions * count / share) for name, count in PROFILES.items()}
    counts["hotpot"] += questions - sum(counts.values())
    instances, pairs = [], []
    for profile, count in counts.items():
        for item in islice(make_world_items(profile, seed), count):
            instances.append(item.instance)
            pairs += [_answered(item, system, mix) for system in systems]
    return World(instances, [response for response, _ in pairs], [truth for _, truth in pairs])


def _answered(item: WorldItem, system: str, mix: Mapping[tuple[FailurePlan, ...], float]) -> tuple[Response, Truth]:
    rng = Random(f"{item.seed}/{system}/mix")
    tried = (break_response(item, plan, f"annotate/{system}") for plan in _plans(mix, rng))
    broken = next(candidate for candidate in tried if candidate is not None)
    name = f"{item.instance.id}/{system}"
    response = Response.from_completion(
        name, item.instance.id, broken.response.completion or "", ResponseSource(system)
    )
    assert len(response.trace.texts) == len(broken.steps)
    question, steps = item.instance.question, tuple(response.trace.texts)
    return response, Truth(name, question, steps, response.answer, broken.steps, broken.verdict)


def _plans(mix: Mapping[tuple[FailurePlan, ...], float], rng: Random) -> Iterator[FailurePlan]:
    """Yield the plans to try in turn; not every question admits every failure."""
    roll = rng.random()
    for plans, share in mix.items():
        if roll < share:
            yield from rng.sample(plans, len(plans))
            break
        roll -= share
    yield FailurePlan()
