"""Instances of the world, one by one from a seed: an unlimited benchmark with exact labels.

Item k of a seed does not depend on order or process. Every item is checked on its words before it is returned: the
question reads back, every passage reads back, and exactly one answer follows.
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
"""Scenes tried for one item. Some are unusable: two answers, a tie, a name that reads two ways."""

_LENGTH_SPREAD = 0.22
"""Spread of passage lengths between questions: standard deviation of the log length."""

_PADDING = (rel.PERSON, rel.FILM, rel.CITY, rel.COMPANY, rel.BOOK, rel.SONG, rel.UNIVERSITY, rel.COUNTRY, rel.AWARD)


@dataclass(frozen=True)
class WorldItem:
    """A question with its target, solution and entities."""

    instance: Instance
    target: Target
    solution: Solution
    plot: Plot | None
    """None for a question from outside."""
    entities: tuple[Entity, ...]
    """In the order of the passages."""
    seed: str
    words: tuple[int, ...]
    """Requested length of each passage, in words."""

    def write_passage(self, index: int, entity: Entity) -> Passage:
        """Write a passage in this item's words, for an entity whose facts may have changed."""
        return write_passage(entity, index, seed=f"{self.seed}/{index}", words=self.words[index])

    @property
    def response(self) -> Response:
        """The reliable response."""
        trace = write_trace(self.solution.moves, f"{self.seed}/trace")
        answer = write_submitted_answer(self.target, self.solution.answer, Random(f"{self.seed}/submitted"))
        text = format_completion(trace, answer)
        return Response.from_completion(f"{self.instance.id}/gold", self.instance.id, text, Source("world"))


def find_profile(name: str) -> WorldProfile:
    """Return a profile by name; raise ``SettingError`` for an unknown one."""
    profiles = PROFILES | SHORT_PROFILES
    if name not in profiles:
        raise SettingError(f"unknown profile {name!r} (--profile). Choose from: {', '.join(profiles)}.")
    return profiles[name]


def make_items(profile: str, seed: int, start: int = 0) -> Iterator[WorldItem]:
    """Yield items without end."""
    index = start
    while True:
        yield make_item(profile, seed, index)
        index += 1


def make_item(profile: str, seed: int, index: int) -> WorldItem:
    """Return one item."""
    settings = find_profile(profile)
    # The attempt is part of the seed, so a retry draws another scene.
    for attempt in range(ATTEMPTS):
        item = _try_scene(settings, hash_rank("world", profile, seed, index, attempt), f"{profile}-{seed}-{index}")
        if item is not None:
            return item
    raise AssertionError(f"no usable scene in {ATTEMPTS} attempts for {profile} {seed} {index}")


def _try_scene(profile: WorldProfile, seed: str, name: str) -> WorldItem | None:
    rng = Random(seed)
    kinds, weights, makers = zip(*profile.shapes, strict=True)
    (chosen,) = rng.choices(range(len(kinds)), weights)
    scene = Scene(rng, profile.detail)
    plot = makers[chosen](scene)
    # Draws happen in this order: scene, padding, lengths, question. Changing it changes every item.
    entities = _select_entities(scene, plot, profile.passages)
    # Some questions come with long passages, some with short ones.
    scale = math.exp(rng.gauss(0, _LENGTH_SPREAD))
    # At least 12 words: an opening sentence alone takes about ten.
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
    # Multi-hop means at least two passages (appendix B.2).
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


def _select_entities(scene: Scene, plot: Plot, size: int) -> list[Entity]:
    """Return the entities that get a passage: those of the plot first, then others, in random order."""
    for entity in list(scene.entities):
        scene.add_common_facts(entity, skip=_asked_relations(plot.target))
    while len(scene.entities) < size:
        scene.add_common_facts(scene.add_entity(scene.rng.choice(_PADDING)))
    gold = [entity for entity in scene.entities if any(entity is member for member in plot.gold)]
    others = [entity for entity in scene.entities if not any(entity is member for member in gold)]
    # Entities of the plot are never cut; padding is.
    selected = [*gold, *others][:size]
    scene.rng.shuffle(selected)
    return selected


def _asked_relations(target: Target) -> tuple[rel.Relation, ...]:
    """Return relations that no extra fact may touch, since the question could get a second answer."""
    return target.phrase.path if isinstance(target, LookupQuestion) else ()


def _reads_back(question: str, target: Target) -> bool:
    read = read_question(question)
    if isinstance(read, LookupQuestion) and isinstance(target, LookupQuestion):
        # The stated type of the base may be lost in writing, so it is not compared.
        return (read.phrase.base, read.phrase.path) == (target.phrase.base, target.phrase.path)
    return read is not None and type(read) is type(target)


def _aliases(target: Target, value: str, written: str, entities: Sequence[Entity]) -> tuple[str, ...]:
    """Return other accepted answers: a date the other way round, a person's other name."""
    aliases: dict[str, None] = {}
    if isinstance(target, LookupQuestion) and target.phrase.path:
        kind = target.phrase.path[-1].kind
        if kind is not ValueKind.NAME:
            aliases |= dict.fromkeys(write_value(kind, value, Random(draw)) for draw in range(8))
    for entity in entities:
        if entity.alias is not None and value in (entity.name, entity.alias):
            aliases |= {entity.name: None, entity.alias: None}
    aliases.pop(written, None)
    return tuple(aliases)


def rename_item(item: WorldItem, name: str) -> WorldItem:
    """Return the item under another id."""
    return replace(item, instance=replace(item.instance, id=name))
