"""Instances of the world, one by one from a seed: an unlimited benchmark with exact labels.

Item k of a seed does not depend on order or process. Every item is checked on its words before it is returned: the
question reads back, every passage reads back, and exactly one answer follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from eclose.errors import SettingError
from eclose.prompts.response_prompt import format_completion
from eclose.values.identity import hash_sort_key
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource
from eclose_world.language import relations as rel
from eclose_world.language.passages import write_entity_passage
from eclose_world.language.questions import LookupQuestion, Target, parse_question, verbalize_question
from eclose_world.language.scene_facts import QuestionScene, WorldEntity
from eclose_world.language.values import ValueKind, draw_surface_form
from eclose_world.make.confusable_shapes import CONFUSABLE_BENCHMARK_PROFILES
from eclose_world.make.shapes import BENCHMARK_PROFILES, SHORT_BENCHMARK_PROFILES, BenchmarkProfile, QuestionPlan
from eclose_world.make.solve import (
    Solution,
    solve_question,
    vary_answer_wording,
    verbalize_answer,
    write_solution_trace,
)
from eclose_world.oracle.evidence import EvidenceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_ITEM_ATTEMPTS = 50
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
    plot: QuestionPlan | None
    """None for a question from outside."""
    entities: tuple[WorldEntity, ...]
    """In the order of the passages."""
    seed: str
    words: tuple[int, ...]
    """Requested length of each passage, in words."""

    def write_passage(self, index: int, entity: WorldEntity) -> Passage:
        """Write a passage in this item's words, for an entity whose facts may have changed."""
        return write_entity_passage(entity, index, seed=f"{self.seed}/{index}", words=self.words[index])

    @property
    def response(self) -> Response:
        """The reliable response."""
        trace = write_solution_trace(self.solution.moves, f"{self.seed}/trace")
        answer = vary_answer_wording(self.target, self.solution.answer, Random(f"{self.seed}/submitted"))
        text = format_completion(trace, answer)
        return Response.from_completion(f"{self.instance.id}/gold", self.instance.id, text, ResponseSource("world"))


def find_benchmark_profile(name: str) -> BenchmarkProfile:
    """Return a profile by name; raise ``SettingError`` for an unknown one."""
    profiles = BENCHMARK_PROFILES | SHORT_BENCHMARK_PROFILES | CONFUSABLE_BENCHMARK_PROFILES
    if name not in profiles:
        raise SettingError(f"unknown profile {name!r} (--profile). Choose from: {', '.join(profiles)}.")
    return profiles[name]


def make_world_items(profile: str, seed: int, start: int = 0) -> Iterator[WorldItem]:
    """Yield items without end."""
    index = start
    while True:
        yield make_world_item(profile, seed, index)
        index += 1


def make_world_item(profile: str, seed: int, index: int) -> WorldItem:
    """Return one item."""
    settings = find_benchmark_profile(profile)
    # The attempt is part of the seed, so a retry draws another scene.
    for attempt in range(MAX_ITEM_ATTEMPTS):
        item = _try_scene(settings, hash_sort_key("world", profile, seed, index, attempt), f"{profile}-{seed}-{index}")
        if item is not None:
            return item
    raise AssertionError(f"no usable scene in {MAX_ITEM_ATTEMPTS} attempts for {profile} {seed} {index}")


def _try_scene(profile: BenchmarkProfile, seed: str, name: str) -> WorldItem | None:
    rng = Random(seed)
    kinds, weights, makers = zip(*profile.shapes, strict=True)
    (chosen,) = rng.choices(range(len(kinds)), weights)
    scene = QuestionScene(rng, profile.detail)
    plot = makers[chosen](scene)
    # Draws happen in this order: scene, padding, lengths, question. Changing it changes every item.
    entities = _select_entities(scene, plot, profile.passages)
    # Some questions come with long passages, some with short ones.
    scale = math.exp(rng.gauss(0, _LENGTH_SPREAD))
    # At least 12 words: an opening sentence alone takes about ten.
    words = tuple(max(12, round(scale * profile.words * math.exp(rng.gauss(0, profile.spread)))) for _ in entities)
    passages = tuple(
        write_entity_passage(entity, index, seed=f"{seed}/{index}", words=words[index])
        for index, entity in enumerate(entities)
    )
    evidence = EvidenceFacts(passages)
    question = verbalize_question(plot.target, rng)
    solution = solve_question(plot.target, evidence)
    if evidence.unread or solution is None or not _reads_back(question, plot.target):
        return None
    # Multi-hop means at least two passages (appendix B.2).
    if len(solution.support) < 2:
        return None
    answer = verbalize_answer(plot.target, solution.answer, Random(f"{seed}/answer"))
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
    return WorldItem(
        instance=instance,
        target=plot.target,
        solution=solution,
        plot=plot,
        entities=tuple(entities),
        seed=seed,
        words=words,
    )


def _select_entities(scene: QuestionScene, plot: QuestionPlan, size: int) -> list[WorldEntity]:
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
    read = parse_question(question)
    if isinstance(read, LookupQuestion) and isinstance(target, LookupQuestion):
        # The stated type of the base may be lost in writing, so it is not compared.
        return (read.phrase.base, read.phrase.path) == (target.phrase.base, target.phrase.path)
    return read is not None and type(read) is type(target)


def _aliases(target: Target, value: str, written: str, entities: Sequence[WorldEntity]) -> tuple[str, ...]:
    """Return other accepted answers: a date the other way round, a person's other name."""
    aliases: dict[str, None] = {}
    if isinstance(target, LookupQuestion) and target.phrase.path:
        kind = target.phrase.path[-1].kind
        if kind is not ValueKind.NAME:
            aliases |= dict.fromkeys(draw_surface_form(kind, value, Random(draw)) for draw in range(8))
    for entity in entities:
        if entity.alias is not None and value in (entity.name, entity.alias):
            aliases |= {entity.name: None, entity.alias: None}
    aliases.pop(written, None)
    return tuple(aliases)
