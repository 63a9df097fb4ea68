"""Exact families: one claim edited, or another target asked, with everything that follows from it.

An edit changes a fact of an entity and writes its passage again from the same seed, so that nothing but the value
moves, wherever it is repeated. All conditions of appendix B are checked from the words before a family is given away.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.core.family import EvidenceEdit, Family, ProofStep, QuestionEdit, View, ViewKind
from eclose.core.gates import check_family
from eclose.core.response import Trace
from eclose.world.language import relations as rel
from eclose.world.language.facts import Entity, Scene
from eclose.world.language.questions import (
    AgreementQuestion,
    ChoiceQuestion,
    LookupQuestion,
    Target,
    YearSpanQuestion,
    read_question,
    write_question,
)
from eclose.world.language.values import ValueKind
from eclose.world.make.instances import WorldItem, make_item
from eclose.world.make.solve import Solution, solve, write_answer, write_steps
from eclose.world.oracle.evidence import EvidenceFact, read_evidence
from eclose.world.oracle.family_conditions import find_evidence_edit_defects, find_question_edit_defects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.core.instance import Passage
    from eclose.world.language.passages import PassageReading
    from eclose.world.language.phrases import Phrase

MAX_EDITS = 2
"""Evidence edits kept per source."""


@dataclass
class FamilyFunnel:
    """How many sources became families, and why the others did not."""

    sources: int = 0
    families: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def make_families(profile: str, seed: int, funnel: FamilyFunnel | None = None, start: int = 0) -> Iterator[Family]:
    """Families without end. A source that admits no edit is passed over, and counted."""
    funnel = funnel if funnel is not None else FamilyFunnel()
    index = start
    while True:
        made = make_family(make_item(profile, seed, index))
        funnel.sources += 1
        if isinstance(made, Family):
            funnel.families += 1
            yield made
        else:
            funnel.dropped[made] += 1
        index += 1


def make_family(item: WorldItem) -> Family | str:
    """A family from an item, or the reason why there is none."""
    gold = _view(ViewKind.GOLD, item, item.instance.question, item.instance.evidence, item.target, item.solution)
    asked = _question_edit(item, gold)
    if asked is None:
        return "no question edit"
    edits = []
    for edit in _evidence_edits(item, gold):
        edits.append(edit)
        if len(edits) == MAX_EDITS:
            break
    if not edits:
        return "no evidence edit"
    family = Family(f"family-{item.instance.id}", item.instance, gold, tuple(edits), asked)
    failures = check_family(family)
    return f"gate {failures[0].gate.value}" if failures else family


def _view(
    kind: ViewKind, item: WorldItem, question: str, passages: tuple[Passage, ...], target: Target, solution: Solution
) -> View:
    """A view: the solution in the item's own words."""
    steps = write_steps(solution.moves, f"{item.seed}/trace")
    place = {move: number for number, step in enumerate(steps) for move in step.moves}
    proof = []
    for number, step in enumerate(steps):
        moves = [solution.moves[index] for index in step.moves]
        passages_used = dict.fromkeys(str(index) for move in moves for index in move.passages)
        premises = dict.fromkeys(place[index] for move in moves for index in move.premises if place[index] < number)
        proof.append(ProofStep(tuple(passages_used), tuple(premises)))
    return View(
        kind,
        question,
        passages,
        Trace.of(*(step.text for step in steps)),
        write_answer(target, solution.answer, Random(f"{item.seed}/answer")),
        tuple(str(index) for index in sorted(solution.support)),
        tuple(proof),
    )


# The evidence edit.


def _evidence_edits(item: WorldItem, gold: View) -> Iterator[EvidenceEdit]:
    """Edits of facts the answer rests on, each in one passage, each with a new answer of its own."""
    rng = Random(f"{item.seed}/edit")
    (way,) = read_evidence(item.instance.evidence).answers(item.target)
    hops = list(dict.fromkeys(way.hops))
    rng.shuffle(hops)
    for hop in hops:
        if len(hop.passages) != 1 or hop.relation is rel.ALIAS:
            continue
        for value in draw_new_values(item.instance.evidence, hop, rng):
            edit = _edit(item, gold, hop, value)
            if edit is not None and not any(find_evidence_edit_defects(gold, edit)):
                yield edit
                break


def draw_new_values(passages: tuple[Passage, ...], hop: EvidenceFact, rng: Random) -> list[str]:
    """Values that could stand in a fact's place and still lead somewhere, as plausible as the old one."""
    if hop.relation.kind is ValueKind.NAME:
        return _new_names(passages, hop.relation, hop.value, rng)
    scene = Scene(rng)
    drawn = [scene.literal(hop.relation) for _ in range(8)]
    if hop.relation.kind is ValueKind.DATE:
        # Day and month stay: the year is what is edited.
        drawn = [f"{value[:4]}{hop.value[4:]}" for value in drawn]
    return [value for value in dict.fromkeys(drawn) if value != hop.value]


def _new_names(passages: tuple[Passage, ...], relation: rel.Relation, value: str, rng: Random) -> list[str]:
    """Names of the same sort from the passages, which may lead on, and an unused one, which ends there."""
    readings = read_evidence(passages).readings
    known = [name for reading in readings for name in _names(reading, relation)]
    others = [name for name in dict.fromkeys(known) if name != value]
    rng.shuffle(others)
    scene = Scene(rng)
    scene.names |= {*known, *(reading.name for reading in readings)}
    return [*others[:6], scene.literal(relation)]


def _names(reading: PassageReading, relation: rel.Relation) -> list[str]:
    about = [reading.name] if reading.kind == relation.object else []
    return about + [statement.value for statement in reading.statements if statement.relation is relation]


def _edit(item: WorldItem, gold: View, hop: EvidenceFact, value: str) -> EvidenceEdit | None:
    """The fact with another value: new passage, new solution, new words from the first affected step on."""
    place = hop.passages[0]
    passage = item.passage(place, _changed(item.entities[place], hop, value))
    before = item.instance.evidence
    if passage.text == before[place].text:
        return None
    passages = (*before[:place], passage, *before[place + 1 :])
    solution = solve(item.target, read_evidence(passages))
    if solution is None or solution.answer == item.solution.answer or len(solution.moves) != len(item.solution.moves):
        return None
    view = _view(ViewKind.EVIDENCE_CF, item, gold.question, passages, item.target, solution)
    first = next(
        (n for n, pair in enumerate(zip(gold.trace.steps, view.trace.steps, strict=False)) if pair[0] != pair[1]), None
    )
    return None if first is None else EvidenceEdit(view, str(place), first)


def _changed(entity: Entity, hop: EvidenceFact, value: str) -> Entity:
    """The entity with one fact changed."""
    statements = [
        replace(s, value=value) if s.relation is hop.relation and s.value == hop.value and s.era is None else s
        for s in entity.statements
    ]
    return replace(entity, statements=statements)


# The question edit.


def _question_edit(item: WorldItem, gold: View) -> QuestionEdit | None:
    """Another target asked of the same passages, one component away, with a distinct path and answer."""
    rng = Random(f"{item.seed}/question")
    targets = find_near_targets(item.target, item.instance.evidence)
    rng.shuffle(targets)
    passages = item.instance.evidence
    for target in targets:
        solution = solve(target, read_evidence(passages))
        if solution is None or solution.answer == item.solution.answer or len(solution.support) < 2:
            continue
        question = write_question(target, Random(f"{item.seed}/question words"))
        if read_question(question) is None:
            continue
        view = _view(ViewKind.QUESTION_CF, item, question, passages, target, solution)
        if not any(find_question_edit_defects(gold, view)):
            return QuestionEdit(view)
    return None


def find_near_targets(target: Target, passages: tuple[Passage, ...]) -> list[Target]:
    """Questions that differ in one component: the relation asked for, the thing asked about, the direction."""
    readings = read_evidence(passages).readings
    rivals = [(reading.name, reading.kind) for reading in readings]
    if isinstance(target, ChoiceQuestion):
        return [replace(target, least=not target.least)]
    if isinstance(target, LookupQuestion):
        return _near_lookups(target.phrase, rivals)
    kinds = (target.right.start_type, target.right.kind)
    asked = (target.left.base, target.right.base)
    found: list[Target] = [
        replace(target, right=replace(target.right, base=name))
        for name, kind in rivals
        if kind in kinds and name not in asked
    ]
    if isinstance(target, AgreementQuestion):
        subject = target.relation.subject
        return found + [replace(target, relation=other) for other in rel.AGREEMENT_FORMS if other.subject == subject]
    return found + _near_spans(target)


def _near_spans(target: YearSpanQuestion) -> list[Target]:
    last = target.right.path[-1]
    others = [
        r for r in rel.COMPARISON_WORDS if r.subject == last.subject and r.kind in (ValueKind.DATE, ValueKind.YEAR)
    ]
    return [replace(target, right=replace(target.right, path=(*target.right.path[:-1], other))) for other in others]


def _near_lookups(phrase: Phrase, rivals: list[tuple[str, str | None]]) -> list[Target]:
    if not phrase.path:
        return []
    last = phrase.path[-1]
    found: list[Target] = [
        LookupQuestion(replace(phrase, path=(*phrase.path[:-1], other)))
        for other in rel.RELATIONS
        if other.subject == last.subject and other is not last and other is not rel.ALIAS and other.single
    ]
    if isinstance(phrase.base, str):
        found += [
            LookupQuestion(replace(phrase, base=name))
            for name, kind in rivals
            if kind == phrase.start_type and name != phrase.base
        ]
    return found
