"""The shapes of multi-hop questions, built as scenes: the facts a question needs, and facts that mislead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose_world.language import relations as rel
from eclose_world.language.phrases import PersonOfTwoDeeds, RelationPhrase
from eclose_world.language.questions import (
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
)
from eclose_world.language.scene_facts import QuestionScene, WorldEntity
from eclose_world.language.values import ValueKind

if TYPE_CHECKING:
    from eclose_world.language.relations import Relation


@dataclass(frozen=True, slots=True)
class QuestionPlan:
    """A question and the entities it is about."""

    target: Target
    gold: tuple[WorldEntity, ...]
    near: tuple[Target, ...] = ()
    """Questions that are easily taken for this one, where the plan provides for them."""


PATH_START_TYPES = (rel.FILM, rel.BOOK, rel.SONG, rel.COMPANY)
_ONWARD: dict[str, tuple[Relation, ...]] = {
    rel.FILM: (rel.DIRECTOR, rel.SCREENWRITER, rel.STUDIO),
    rel.BOOK: (rel.AUTHOR, rel.PUBLISHER),
    rel.SONG: (rel.PERFORMER, rel.SONGWRITER),
    rel.COMPANY: (rel.FOUNDER, rel.HEADQUARTERS),
    rel.PERSON: (rel.BIRTH_PLACE, rel.DEATH_PLACE, rel.SPOUSE, rel.EDUCATED, rel.PRIZE, rel.NATIONALITY),
    rel.CITY: (rel.LIES_IN,),
    rel.COUNTRY: (rel.CAPITAL,),
    rel.UNIVERSITY: (rel.SEATED,),
    rel.AWARD: (rel.PRESENTED,),
}
_FINAL: dict[str, tuple[Relation, ...]] = {
    rel.PERSON: (rel.BIRTH_DATE, rel.DEATH_DATE, rel.MOTHER, rel.FATHER),
    rel.CITY: (rel.POPULATION, rel.ON_RIVER),
    rel.UNIVERSITY: (rel.ESTABLISHED,),
    rel.COMPANY: (rel.FOUNDED, rel.EMPLOYEES),
}
_GRANDPARENTS = tuple(path for path in rel.COMPOUND_PHRASES.values() if rel.CHILD not in path)
# Two relations to a value with one spelling, so that the answer is the value as it stands. No relatives: among few
# people an edit would soon make a person their own mother.
_PLAIN = tuple(
    (first, last)
    for start in PATH_START_TYPES
    for first in _ONWARD[start]
    for last in (*_ONWARD[first.object or ""], *_FINAL.get(first.object or "", ()))
    if last.kind in (ValueKind.NAME, ValueKind.YEAR) and last.object != last.subject
)
_DIRECT = ((rel.FILM, rel.RELEASED), (rel.FILM, rel.RUNTIME), (rel.BOOK, rel.PUBLISHED), (rel.BOOK, rel.PAGES),
           (rel.PERSON, rel.BIRTH_DATE), (rel.PERSON, rel.DEATH_DATE), (rel.CITY, rel.POPULATION),
           (rel.COMPANY, rel.FOUNDED), (rel.COMPANY, rel.EMPLOYEES))  # fmt: skip
PERSON_ROLES = (rel.DIRECTOR, rel.AUTHOR, rel.PERFORMER, rel.FOUNDER, rel.SCREENWRITER)
_SHARED = ((rel.CITY, rel.LIES_IN), (rel.PERSON, rel.BIRTH_PLACE), (rel.PERSON, rel.NATIONALITY),
           (rel.PERSON, rel.EDUCATED), (rel.FILM, rel.DIRECTOR), (rel.COMPANY, rel.HEADQUARTERS))  # fmt: skip


def draw_relation_path(scene: QuestionScene, start: str, hops: int) -> tuple[Relation, ...]:
    """Draw a path of relations, each leading where the next one begins."""
    path: list[Relation] = []
    kind = start
    for remaining in range(hops, 0, -1):
        choices = [*_ONWARD[kind], *(_FINAL.get(kind, ()) if remaining == 1 else ())]
        # A country's capital lies in that country, so this step would lead back to the start.
        if path and path[-1] is rel.CAPITAL:
            choices = [relation for relation in choices if relation is not rel.LIES_IN]
        # From a capital the only way on was back to its country, so the whole path is drawn again.
        if not choices:
            return draw_relation_path(scene, start, hops)
        path.append(scene.rng.choice(choices))
        kind = path[-1].object or ""
    return tuple(path)


def build_path_entities(scene: QuestionScene, start: WorldEntity, path: tuple[Relation, ...]) -> list[WorldEntity]:
    """Give every entity on the path an article; return them. The last value needs none."""
    entities, current = [start], start
    for relation in path[:-1]:
        assert relation.object is not None
        following = scene.add_entity(relation.object, scene.draw_name(relation.object, relation))
        scene.link(current, relation, following)
        entities.append(following)
        current = following
    current.state(path[-1], scene.draw_value(path[-1]))
    return entities


def plan_chain_question(
    scene: QuestionScene, hops: int, paths: tuple[tuple[Relation, ...], ...] = (), *, misleading: bool = True
) -> QuestionPlan:
    """Plot a question for the end of a path that begins with a work."""
    kind = scene.rng.choice(PATH_START_TYPES)
    # The start is drawn even where paths are given: the stream must not depend on it.
    path = scene.rng.choice(paths) if paths else draw_relation_path(scene, kind, hops)
    start = scene.add_entity(path[0].subject)
    gold = build_path_entities(scene, start, path)
    # A second work with a chain of its own: the answer cannot be found by its type alone.
    rival = build_path_entities(scene, scene.add_entity(start.kind), path)
    if misleading:
        _mislead(scene, start, gold, path)
    phrase = RelationPhrase(
        start.name, path, start.kind if scene.rng.random() < 0.7 or start.title != start.name else None
    )
    scene.add_common_facts(rival[0], skip=path)
    return QuestionPlan(LookupQuestion(phrase), tuple(gold))


def _plan_kinship_question(scene: QuestionScene) -> QuestionPlan:
    """Plot a question for a grandparent or a parent-in-law."""
    return plan_chain_question(scene, 2, _GRANDPARENTS)


def _mislead(scene: QuestionScene, start: WorldEntity, gold: list[WorldEntity], path: tuple[Relation, ...]) -> None:
    """Add a work with the same title, a namesake, or a pseudonym under which the work names its author."""
    # Below 0.25 a shared title, below 0.45 a namesake, below 0.6 a pseudonym, else nothing.
    roll = scene.rng.random()
    if roll < 0.25 and start.kind in (rel.FILM, rel.BOOK, rel.SONG):
        other = scene.rng.choice([kind for kind in (rel.FILM, rel.BOOK, rel.SONG) if kind != start.kind])
        start.title = f"{start.name} ({rel.TYPE_WORDS[start.kind][0]})"
        scene.add_common_facts(scene.add_entity(other, start.name, note=rel.TYPE_WORDS[other][0]))
    elif roll < 0.6 and len(gold) > 1 and path[0].role:
        person = gold[1]
        if roll < 0.45:
            person.title = f"{person.name} ({path[0].role})"
            twin = scene.add_entity(rel.PERSON, person.name, note=None)
            # Titles stay distinct; the oracle tells namesakes apart by the occupation in the opening sentence.
            twin.title = f"{twin.name} ({twin.occupation})"
            twin.state(path[1], scene.draw_value(path[1]))
            scene.add_common_facts(twin, skip=path)
        else:
            alias = scene.draw_name(rel.PERSON)
            person.alias = alias
            person.state(rel.ALIAS, alias)
            start.statements = [
                type(s)(s.subject, s.relation, alias, s.era) if s.value == person.name else s for s in start.statements
            ]


def _plan_comparison_question(scene: QuestionScene, rivals: int = 1) -> QuestionPlan:
    """Plot a question which of two has the smaller or larger value."""
    kind, attribute = scene.rng.choice(_DIRECT)
    return _plot_choice(scene, kind, (), attribute, rivals)


def _plan_bridge_comparison(scene: QuestionScene, rivals: int = 1) -> QuestionPlan:
    """Plot a comparison of two works by the people behind them."""
    role = scene.rng.choice(PERSON_ROLES)
    attribute = scene.rng.choice((rel.BIRTH_DATE, rel.BIRTH_DATE, rel.DEATH_DATE))
    return _plot_choice(scene, role.subject, (role,), attribute, rivals)


def _plot_choice(
    scene: QuestionScene, kind: str, path: tuple[Relation, ...], attribute: Relation, rivals: int
) -> QuestionPlan:
    gold: list[WorldEntity] = []
    for _ in range(2):
        gold += build_path_entities(scene, scene.add_entity(kind), (*path, attribute))
    for _ in range(rivals):
        build_path_entities(scene, scene.add_entity(kind), (*path, attribute))
    # gold holds both chains one after the other, so the second starts in the middle.
    options = (gold[0].name, gold[len(gold) // 2].name)
    return QuestionPlan(ComparisonQuestion(options, kind, path, attribute, least=scene.rng.random() < 0.5), tuple(gold))


def plan_same_value_question(scene: QuestionScene, rivals: int = 0) -> QuestionPlan:
    """Plot a question whether two things, or the people behind them, share a value.

    With rivals, one of them would give the other answer in place of the second thing.
    """
    kind, relation = scene.rng.choice(_SHARED)
    bridged = kind == rel.PERSON and scene.rng.random() < 0.5
    role = scene.rng.choice(PERSON_ROLES) if bridged else None
    path = (role, relation) if role else (relation,)
    gold: list[WorldEntity] = []
    for _ in range(2):
        gold += build_path_entities(scene, scene.add_entity(path[0].subject), path)
    half = len(gold) // 2
    agree = scene.rng.random() < 0.5
    if agree:
        share_value(gold[half - 1], gold[-1], relation)
    others = [build_path_entities(scene, scene.add_entity(path[0].subject), path) for _ in range(rivals)]
    if others and not agree:
        share_value(gold[half - 1], others[0][-1], relation)
    first, second = (RelationPhrase(entity.name, path[:-1], entity.kind) for entity in (gold[0], gold[half]))
    return QuestionPlan(SameValueQuestion(first, second, relation), tuple(gold))


def share_value(source: WorldEntity, target: WorldEntity, relation: Relation) -> None:
    """Give the target the value that the source has."""
    shared = source.value(relation)
    assert shared is not None
    target.statements = [
        type(s)(s.subject, s.relation, shared, s.era) if s.relation is relation else s for s in target.statements
    ]


def plan_year_span_question(scene: QuestionScene, rivals: int = 0) -> QuestionPlan:
    """Plot a number of years: a life, or a person's age when a work came out."""
    if scene.rng.random() < 0.4:
        work, person = _add_life(scene)
        for _ in range(rivals):
            _add_life(scene)
        director = RelationPhrase(work.name, (rel.DIRECTOR,), rel.FILM)
        return QuestionPlan(
            YearSpanQuestion(director.then(rel.BIRTH_DATE), director.then(rel.DEATH_DATE)), (work, person)
        )
    role, when = scene.rng.choice(
        ((rel.DIRECTOR, rel.RELEASED), (rel.AUTHOR, rel.PUBLISHED), (rel.PERFORMER, rel.ISSUED))
    )
    work, person = _add_dated_work(scene, role, when)
    for _ in range(rivals):
        _add_dated_work(scene, role, when)
    base = RelationPhrase(work.name, (), role.subject)
    return QuestionPlan(YearSpanQuestion(base.then(role, rel.BIRTH_DATE), base.then(when)), (work, person))


def _add_life(scene: QuestionScene) -> tuple[WorldEntity, WorldEntity]:
    """Add a film and its director, with birth and death dates."""
    (person,) = build_path_entities(scene, scene.add_entity(rel.PERSON), (rel.BIRTH_DATE,))
    person.state(rel.DEATH_DATE, scene.draw_value(rel.DEATH_DATE))
    work = scene.add_entity(rel.FILM)
    scene.link(work, rel.DIRECTOR, person)
    return work, person


def _add_dated_work(scene: QuestionScene, role: Relation, when: Relation) -> tuple[WorldEntity, WorldEntity]:
    """Add a work with its year, and the person behind it with a birth date."""
    work, person = build_path_entities(scene, scene.add_entity(role.subject), (role, rel.BIRTH_DATE))
    work.state(when, scene.draw_value(when))
    return work, person


def _plan_intersection_question(scene: QuestionScene, onward: int = 0) -> QuestionPlan:
    """Plot a question for the person who did two things, or for a value ``onward`` relations beyond."""
    roles = scene.rng.choice(((rel.STAR, rel.STAR), (rel.DIRECTOR, rel.SCREENWRITER), (rel.AUTHOR, rel.AUTHOR),
                              (rel.STAR, rel.DIRECTOR), (rel.PERFORMER, rel.SONGWRITER), (rel.DIRECTOR, rel.AUTHOR)))  # fmt: skip
    person = scene.add_entity(rel.PERSON)
    works = []
    for role in roles:
        work = scene.add_entity(role.subject)
        scene.link(work, role, person)
        # A second actor: only the combination of both deeds identifies the person.
        if not role.single:
            work.state(role, scene.draw_name(rel.PERSON))
        works.append(work)
    # The order of the deeds is the order in the question.
    deeds = tuple((role, work.name) for role, work in zip(roles, works, strict=True))
    if not onward:
        return QuestionPlan(LookupQuestion(RelationPhrase(PersonOfTwoDeeds(deeds))), tuple(works))
    path = draw_relation_path(scene, rel.PERSON, onward)
    gold = build_path_entities(scene, person, path)
    return QuestionPlan(LookupQuestion(RelationPhrase(PersonOfTwoDeeds(deeds), path)), (*works, *gold))


@dataclass(frozen=True, slots=True)
class BenchmarkProfile:
    """The look of a benchmark: number and length of passages, and the mix of questions."""

    name: str
    passages: int
    words: int
    """Median length of a passage."""
    spread: float
    """Spread of passage lengths within a question: standard deviation of the log length."""
    shapes: tuple[tuple[str, float, Callable[[QuestionScene], QuestionPlan]], ...]
    detail: float = 1.0
    """Factor on the facts that articles state beside those the question needs."""


BENCHMARK_PROFILES = {
    "2wiki": BenchmarkProfile("2wiki", 10, 38, 0.5, (
        ("compositional", 0.3, lambda s: plan_chain_question(s, 2)),
        ("comparison", 0.2, _plan_comparison_question),
        ("comparison", 0.08, plan_same_value_question),
        ("bridge_comparison", 0.3, _plan_bridge_comparison),
        ("inference", 0.12, _plan_kinship_question),
    )),
    "musique": BenchmarkProfile("musique", 20, 75, 0.4, (
        ("2hop", 0.45, lambda s: plan_chain_question(s, 2)),
        ("3hop1", 0.24, lambda s: plan_chain_question(s, 3)),
        ("3hop2", 0.1, lambda s: _plan_intersection_question(s, 1)),
        ("4hop1", 0.13, lambda s: plan_chain_question(s, 4)),
        ("4hop3", 0.08, lambda s: _plan_intersection_question(s, 2)),
    )),
    "hotpot": BenchmarkProfile("hotpot", 10, 82, 0.4, (
        ("bridge", 0.62, lambda s: plan_chain_question(s, 2)),
        ("bridge", 0.16, _plan_intersection_question),
        ("comparison", 0.08, _plan_comparison_question),
        ("comparison", 0.1, plan_same_value_question),
        ("bridge", 0.04, plan_year_span_question),
    )),
}  # fmt: skip

# Modelled on no benchmark: contexts of at most about 150 words, from which a small model can learn on a small machine.
# Easy answers are copied from a passage, hard ones are derived or far away.
SHORT_BENCHMARK_PROFILES = {
    "short-easy": BenchmarkProfile("short-easy", 4, 16, 0.2, (
        ("bridge", 1.0, lambda s: plan_chain_question(s, 2, _PLAIN, misleading=False)),
    ), detail=0.5),
    "short-hard": BenchmarkProfile("short-hard", 7, 10, 0.2, (
        ("comparison", 0.2, lambda s: _plan_comparison_question(s, rivals=5)),
        ("bridge_comparison", 0.25, lambda s: _plan_bridge_comparison(s, rivals=2)),
        ("yes_no", 0.2, lambda s: plan_same_value_question(s, rivals=5)),
        ("span", 0.15, lambda s: plan_year_span_question(s, rivals=3)),
        ("3hop", 0.2, lambda s: plan_chain_question(s, 3)),
    ), detail=0.15),
}  # fmt: skip
