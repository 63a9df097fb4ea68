"""Instances of the world, one by one from a seed: an unlimited benchmark whose truth is known.

Item k of a seed is the same whoever makes it, in whatever order. Every item is checked from its words before it is
given away: the question reads back, every passage reads back, and exactly one answer follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.core.identity import hash_rank
from eclose.core.instance import Instance, Passage
from eclose.core.response import Response, Source
from eclose.errors import SettingError
from eclose.protocol.response_prompt import format_completion
from eclose.world.language import relations as rel
from eclose.world.language.facts import Entity, Scene
from eclose.world.language.passages import write_passage
from eclose.world.language.questions import LookupQuestion, Target, read_question, write_question
from eclose.world.language.values import ValueKind, write_value
from eclose.world.make.shapes import PROFILES, SHORT_PROFILES, Plot, WorldProfile
from eclose.world.make.solve import Solution, solve, write_answer, write_submitted_answer, write_trace
from eclose.world.oracle.evidence import EvidenceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ATTEMPTS = 50
"""Scenes tried for one item. Some cannot be used: two answers, a tie, a name that reads two ways."""

_BETWEEN = 0.22
"""How far the length of passages scatters between questions, as a factor."""

_PADDING = (rel.PERSON, rel.FILM, rel.CITY, rel.COMPANY, rel.BOOK, rel.SONG, rel.UNIVERSITY, rel.COUNTRY, rel.AWARD)


@dataclass(frozen=True)
class WorldItem:
    """A question with everything that is known about it."""

    instance: Instance
    target: Target
    solution: Solution
    plot: Plot | None
    """None for a question that came from outside."""
    entities: tuple[Entity, ...]
    """In the order of the passages."""
    seed: str
    words: tuple[int, ...]
    """How long each passage was to be."""

    def passage(self, index: int, entity: Entity) -> Passage:
        """A passage as this item words it, of an entity whose facts may have been changed."""
        return write_passage(entity, index, seed=f"{self.seed}/{index}", words=self.words[index])

    @property
    def response(self) -> Response:
        """The reliable response."""
        trace = write_trace(self.solution.moves, f"{self.seed}/trace")
        answer = write_submitted_answer(self.target, self.solution.answer, Random(f"{self.seed}/submitted"))
        text = format_completion(trace, answer)
        return Response.from_completion(f"{self.instance.id}/gold", self.instance.id, text, Source("world"))


def find_profile(name: str) -> WorldProfile:
    """A profile by its name."""
    known = PROFILES | SHORT_PROFILES
    if name not in known:
        raise SettingError(f"there is no profile {name!r}. Choose from: {', '.join(known)}.")
    return known[name]


def make_items(profile: str, seed: int, start: int = 0) -> Iterator[WorldItem]:
    """Items without end."""
    index = start
    while True:
        yield make_item(profile, seed, index)
        index += 1


def make_item(profile: str, seed: int, index: int) -> WorldItem:
    """One item."""
    settings = find_profile(profile)
    for attempt in range(ATTEMPTS):
        item = _try(settings, hash_rank("world", profile, seed, index, attempt), f"{profile}-{seed}-{index}")
        if item is not None:
            return item
    raise AssertionError(f"no usable scene in {ATTEMPTS} attempts for {profile} {seed} {index}")


def _try(profile: WorldProfile, seed: str, name: str) -> WorldItem | None:
    rng = Random(seed)
    kinds, weights, makers = zip(*profile.shapes, strict=True)
    (chosen,) = rng.choices(range(len(kinds)), weights)
    scene = Scene(rng, profile.detail)
    plot = makers[chosen](scene)
    entities = _cast(scene, plot, profile.passages)
    # Some questions come with long passages, some with short ones.
    scale = math.exp(rng.gauss(0, _BETWEEN))
    words = tuple(max(12, round(scale * profile.words * math.exp(rng.gauss(0, profile.spread)))) for _ in entities)
    passages = tuple(
        write_passage(entity, index, seed=f"{seed}/{index}", words=words[index])
        for index, entity in enumerate(entities)
    )
    evidence = EvidenceFacts(passages)
    question = write_question(plot.target, rng)
    solution = solve(plot.target, evidence)
    if evidence.unread or solution is None or not _reads_back(question, plot.target):
        return None
    if len(solution.support) < 2:
        return None
    answer = write_answer(plot.target, solution.answer, Random(f"{seed}/answer"))
    instance = Instance(
        id=f"world-{name}",
        question=question,
        evidence=passages,
        reference_answer=answer,
        aliases=_aliases(plot.target, solution.answer, answer, entities),
        benchmark=f"world-{profile.name}",
        support_ids=tuple(str(index) for index in sorted(solution.support)),
        kind=kinds[chosen],
        hops=sum(1 for move in solution.moves if move.passages),
    )
    return WorldItem(instance, plot.target, solution, plot, tuple(entities), seed, words)


def _cast(scene: Scene, plot: Plot, size: int) -> list[Entity]:
    """Everyone who gets a passage: the plot's people first, then extras, in random order."""
    for entity in list(scene.entities):
        scene.furnish(entity, skip=_asked(plot.target))
    while len(scene.entities) < size:
        scene.furnish(scene.entity(scene.rng.choice(_PADDING)))
    gold = [entity for entity in scene.entities if any(entity is one for one in plot.gold)]
    rest = [entity for entity in scene.entities if not any(entity is one for one in gold)]
    cast = [*gold, *rest][:size]
    scene.rng.shuffle(cast)
    return cast


def _asked(target: Target) -> tuple[rel.Relation, ...]:
    """Relations no extra fact may touch, or the question could get a second answer."""
    return target.phrase.path if isinstance(target, LookupQuestion) else ()


def _reads_back(question: str, target: Target) -> bool:
    read = read_question(question)
    if isinstance(read, LookupQuestion) and isinstance(target, LookupQuestion):
        return (read.phrase.base, read.phrase.path) == (target.phrase.base, target.phrase.path)
    return read is not None and type(read) is type(target)


def _aliases(target: Target, value: str, written: str, entities: Sequence[Entity]) -> tuple[str, ...]:
    """Other accepted answers: a date the other way round, a person's other name."""
    others: dict[str, None] = {}
    if isinstance(target, LookupQuestion) and target.phrase.path:
        kind = target.phrase.path[-1].kind
        if kind is not ValueKind.NAME:
            others |= dict.fromkeys(write_value(kind, value, Random(draw)) for draw in range(8))
    for entity in entities:
        if entity.alias is not None and value in (entity.name, entity.alias):
            others |= {entity.name: None, entity.alias: None}
    others.pop(written, None)
    return tuple(others)


def rename_item(item: WorldItem, name: str) -> WorldItem:
    """The item under another id."""
    return replace(item, instance=replace(item.instance, id=name))
