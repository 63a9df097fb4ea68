"""Questions whose passages state two relations of close meaning: born and died, founded and chartered, parents.

Every entity that holds an asked value also states the value of the relation that is easily taken for it, so names and
types of values do not show which of the two a trace pursues.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from eclose_world.language import relations as rel
from eclose_world.language.phrases import RelationPhrase
from eclose_world.language.questions import ComparisonQuestion, LookupQuestion, SameValueQuestion, Target
from eclose_world.make.shapes import (
    PATH_START_TYPES,
    PERSON_ROLES,
    BenchmarkProfile,
    QuestionPlan,
    build_path_entities,
    share_value,
)
from eclose_world.oracle.evidence import value_sort_key

if TYPE_CHECKING:
    from eclose_world.language.relations import Relation
    from eclose_world.language.scene_facts import QuestionScene, WorldEntity

_ONWARD: dict[str, tuple[Relation, ...]] = {
    rel.FILM: (rel.DIRECTOR, rel.SCREENWRITER, rel.STUDIO),
    rel.BOOK: (rel.AUTHOR, rel.PUBLISHER),
    rel.SONG: (rel.PERFORMER, rel.SONGWRITER),
    rel.COMPANY: (rel.FOUNDER, rel.HEADQUARTERS, rel.REGISTERED),
    rel.PERSON: (rel.SPOUSE, rel.BIRTH_PLACE, rel.DEATH_PLACE, rel.EDUCATED, rel.TAUGHT),
    rel.UNIVERSITY: (rel.SEATED,),
}
_PARENTS = (rel.FATHER, rel.MOTHER)
# Parents are asked for by kinship questions alone.
_ENDS = tuple(relation for relation in rel.NEAR_RELATIONS if relation not in _PARENTS)
_COMPARED = tuple(relation for relation in _ENDS if relation in rel.COMPARISON_WORDS)
_LIFE_DATES = (rel.BIRTH_DATE, rel.DEATH_DATE)
# A relation and its near one, for both of which the language has a question whether two things agree.
_AGREEING = tuple(r for r in _ENDS if {r, rel.NEAR_RELATIONS[r]} <= rel.AGREEMENT_FORMS.keys())
_KINSHIPS = tuple(rel.COMPOUND_PHRASES.values())


@cache
def _list_paths(start: str, hops: int) -> tuple[tuple[Relation, ...], ...]:
    if hops == 1:
        return tuple((relation,) for relation in _ENDS if relation.subject == start)
    return tuple(
        (relation, *rest)
        for relation in _ONWARD.get(start, ())
        for rest in _list_paths(relation.object or "", hops - 1)
    )


def _state_near_value(scene: QuestionScene, entity: WorldEntity, relation: Relation) -> None:
    near = rel.NEAR_RELATIONS[relation]
    if entity.value(near) is None:
        entity.state(near, scene.draw_value(near))


def _finish_plan(target: Target, gold: list[WorldEntity]) -> QuestionPlan:
    return QuestionPlan(target, tuple(gold), list_near_targets(target))


def list_near_targets(target: Target) -> tuple[Target, ...]:
    """Return the questions that are easily taken for this one, the closest first."""
    if isinstance(target, ComparisonQuestion):
        near = rel.NEAR_RELATIONS.get(target.attribute)
        others: list[Target] = [replace(target, attribute=near)] if near in rel.COMPARISON_WORDS else []
        return (*others, replace(target, least=not target.least))
    if isinstance(target, SameValueQuestion):
        near = rel.NEAR_RELATIONS.get(target.relation)
        return (replace(target, relation=near),) if near in rel.AGREEMENT_FORMS else ()
    if not isinstance(target, LookupQuestion):
        return ()
    path = target.phrase.path
    paths = [
        (*path[:index], rel.NEAR_RELATIONS[path[index]], *path[index + 1 :])
        for index in range(len(path) - 1, -1, -1)
        if path[index] in rel.NEAR_RELATIONS
    ]
    if path[-2:] in _KINSHIPS:
        # The person's own parents, for a grandparent on the other side, a parent-in-law or a grandchild.
        paths += [(*path[:-2], parent) for parent in _PARENTS if parent is not path[-2]]
    return tuple(LookupQuestion(replace(target.phrase, path=other)) for other in paths)


def _plan_chain(scene: QuestionScene, hops: int, rivals: int = 1) -> QuestionPlan:
    """Plot a question for the end of a path; its last relation, or one before it, is easily taken for another."""
    paths = _list_paths(scene.rng.choice([kind for kind in PATH_START_TYPES if _list_paths(kind, hops)]), hops)
    path = scene.rng.choice(paths)
    chains = [build_path_entities(scene, scene.add_entity(path[0].subject), path) for _ in range(rivals + 1)]
    for chain in chains:
        _state_near_value(scene, chain[-1], path[-1])
    gold = chains[0]
    if hops > 2 and path[-2] in rel.NEAR_RELATIONS:
        # The near relation before the last leads to an entity with an end of its own: another sound chain.
        (branch,) = build_path_entities(scene, scene.add_entity(path[-1].subject), path[-1:])
        _state_near_value(scene, branch, path[-1])
        scene.link(gold[-2], rel.NEAR_RELATIONS[path[-2]], branch)
    return _finish_plan(LookupQuestion(RelationPhrase(gold[0].name, path, gold[0].kind)), gold)


def _plan_comparison(scene: QuestionScene, rivals: int, *, bridged: bool = False) -> QuestionPlan:
    """Plot a choice between two whose near values are in the opposite order."""
    attribute = scene.rng.choice(_LIFE_DATES if bridged else _COMPARED)
    path = (scene.rng.choice(PERSON_ROLES),) if bridged else ()
    kind = path[0].subject if path else attribute.subject
    chains = [build_path_entities(scene, scene.add_entity(kind), (*path, attribute)) for _ in range(rivals + 2)]
    for chain in chains:
        _state_near_value(scene, chain[-1], attribute)
    first, second = chains[0], chains[1]
    _oppose_order(first[-1], second[-1], attribute)
    target = ComparisonQuestion((first[0].name, second[0].name), kind, path, attribute, least=scene.rng.random() < 0.5)
    return _finish_plan(target, [*first, *second])


def _oppose_order(first: WorldEntity, second: WorldEntity, relation: Relation) -> None:
    """Exchange the near values of two entities where they are in the order of the asked ones."""
    near = rel.NEAR_RELATIONS[relation]

    def is_less(compared: Relation) -> bool:
        return value_sort_key(first.value(compared) or "") < value_sort_key(second.value(compared) or "")

    if is_less(relation) == is_less(near):
        values = {id(first): second.value(near), id(second): first.value(near)}
        for entity in (first, second):
            entity.statements = [s for s in entity.statements if s.relation is not near]
            entity.state(near, values[id(entity)] or "")


def _plan_same_value(scene: QuestionScene, rivals: int) -> QuestionPlan:
    """Plot a question whether two share a value; of the near relation, the opposite holds."""
    relation = scene.rng.choice(_AGREEING)
    role = scene.rng.choice(PERSON_ROLES) if relation.subject == rel.PERSON else None
    path = (role, relation) if role else (relation,)
    # Chains of two entities leave room for half as many.
    count = 2 + (rivals if role is None else max(1, rivals // 2 - 1))
    chains = [build_path_entities(scene, scene.add_entity(path[0].subject), path) for _ in range(count)]
    for chain in chains:
        _state_near_value(scene, chain[-1], relation)
    first, second = chains[0], chains[1]
    shared = relation if scene.rng.random() < 0.5 else rel.NEAR_RELATIONS[relation]
    share_value(first[-1], second[-1], shared)
    first_phrase, second_phrase = (RelationPhrase(chain[0].name, path[:-1], chain[0].kind) for chain in (first, second))
    return _finish_plan(SameValueQuestion(first_phrase, second_phrase, relation), [*first, *second])


def _plan_kinship(scene: QuestionScene, *, bridged: bool = False) -> QuestionPlan:
    """Plot a question for a grandparent, a parent-in-law or a grandchild of a person who also has parents."""
    kinship = scene.rng.choice(_KINSHIPS)
    role = scene.rng.choice(PERSON_ROLES) if bridged else None
    path = (role, *kinship) if role else kinship
    chains = [build_path_entities(scene, scene.add_entity(path[0].subject), path) for _ in range(2)]
    for chain in chains:
        if kinship[-1] is rel.CHILD:
            scene.parents.add(chain[-1].name)
        else:
            _state_near_value(scene, chain[-1], kinship[-1])
    person = chains[0][-2]
    for parent in _PARENTS:
        if person.value(parent) is None:
            relative = scene.add_entity(rel.PERSON, scene.draw_name(rel.PERSON, parent))
            scene.link(person, parent, relative)
            # With parents of its own, the other side of the family leads to a grandparent too.
            for relation in _PARENTS:
                relative.state(relation, scene.draw_value(relation))
            if kinship[0] not in _PARENTS:
                break
    return _finish_plan(LookupQuestion(RelationPhrase(chains[0][0].name, path, chains[0][0].kind)), chains[0])


CONFUSABLE_BENCHMARK_PROFILES = {
    "confusable-short": BenchmarkProfile("confusable-short", 6, 14, 0.2, (
        ("bridge", 0.4, lambda s: _plan_chain(s, 2, rivals=2)),
        ("comparison", 0.15, lambda s: _plan_comparison(s, rivals=4)),
        ("bridge_comparison", 0.15, lambda s: _plan_comparison(s, rivals=1, bridged=True)),
        ("yes_no", 0.1, lambda s: _plan_same_value(s, rivals=4)),
        ("kinship", 0.2, _plan_kinship),
    ), detail=0.25),
    "confusable-long": BenchmarkProfile("confusable-long", 10, 60, 0.4, (
        ("3hop", 0.35, lambda s: _plan_chain(s, 3)),
        ("4hop", 0.15, lambda s: _plan_chain(s, 4)),
        ("comparison", 0.1, lambda s: _plan_comparison(s, rivals=2)),
        ("bridge_comparison", 0.15, lambda s: _plan_comparison(s, rivals=1, bridged=True)),
        ("yes_no", 0.1, lambda s: _plan_same_value(s, rivals=4)),
        ("kinship", 0.15, lambda s: _plan_kinship(s, bridged=True)),
    )),
}  # fmt: skip
"""Benchmarks to tell detectors apart: a failure shows in the meaning of a relation, not in names or lengths."""
