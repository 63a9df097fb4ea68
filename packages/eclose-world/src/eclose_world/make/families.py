"""Exact families: one claim edited, or another target asked, with everything that follows.

An edit changes a fact of an entity and writes its passage again from the same seed, so only the value changes, wherever
it is repeated. All conditions of appendix B are checked on the words before a family is returned.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from eclose.values.family import EvidenceEdit, Family, ProofStep, QuestionEdit, View, ViewKind
from eclose.values.family_rules import check_family
from eclose.values.response import Trace
from eclose_world.language import relations as rel
from eclose_world.language.questions import (
    ComparisonQuestion,
    LookupQuestion,
    SameValueQuestion,
    Target,
    YearSpanQuestion,
    parse_question,
    verbalize_question,
)
from eclose_world.language.scene_facts import QuestionScene, WorldEntity
from eclose_world.language.values import ValueKind
from eclose_world.make.instances import WorldItem, make_world_item
from eclose_world.make.solve import Solution, solve_question, verbalize_answer, write_moves_as_steps
from eclose_world.oracle.evidence import EvidenceFact, parse_evidence_facts
from eclose_world.oracle.family_conditions import find_evidence_edit_defects, find_question_edit_defects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.values.instance import Passage
    from eclose_world.language.passages import PassageReading
    from eclose_world.language.phrases import RelationPhrase

MAX_EDITS = 2
"""Largest number of evidence edits of a family."""


@dataclass
class FamilyFunnel:
    """Counts of sources, of families, and of sources without a family by reason."""

    sources: int = 0
    families: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def make_world_families(
    profile: str, seed: int, funnel: FamilyFunnel | None = None, start: int = 0
) -> Iterator[Family]:
    """Yield families without end; sources that admit no edit are skipped and counted."""
    funnel = funnel if funnel is not None else FamilyFunnel()
    index = start
    while True:
        family = make_world_family(make_world_item(profile, seed, index))
        funnel.sources += 1
        if isinstance(family, Family):
            funnel.families += 1
            yield family
        else:
            funnel.dropped[family] += 1
        index += 1


def make_world_family(item: WorldItem) -> Family | str:
    """Return a family made from an item, or the reason why there is none."""
    gold = _write_view(ViewKind.GOLD, item, item.instance.question, item.instance.evidence, item.target, item.solution)
    # Checked first: without a question edit the evidence edits are not needed.
    question_edit = _question_edit(item, gold)
    if question_edit is None:
        return "no question edit"
    edits = []
    for edit in _evidence_edits(item, gold):
        edits.append(edit)
        if len(edits) == MAX_EDITS:
            break
    if not edits:
        return "no evidence edit"
    # The deterministic gates H (B.3 to B.6), as for the families of any constructor.
    family = Family(f"family-{item.instance.id}", item.instance, gold, tuple(edits), question_edit)
    failures = check_family(family)
    return f"gate {failures[0].gate.value}" if failures else family


def _write_view(
    kind: ViewKind, item: WorldItem, question: str, passages: tuple[Passage, ...], target: Target, solution: Solution
) -> View:
    """Write a view: the solution in the item's own words."""
    steps = write_moves_as_steps(solution.moves, f"{item.seed}/trace")
    step_of_move = {move: number for number, step in enumerate(steps) for move in step.moves}
    proof = []
    for number, step in enumerate(steps):
        moves = [solution.moves[index] for index in step.moves]
        passages_used = dict.fromkeys(str(index) for move in moves for index in move.passages)
        # Two moves may share a step, so a premise can lie in the step itself: only earlier steps count.
        premises = dict.fromkeys(
            step_of_move[index] for move in moves for index in move.premises if step_of_move[index] < number
        )
        proof.append(ProofStep(tuple(passages_used), tuple(premises)))
    return View(
        kind=kind,
        question=question,
        evidence=passages,
        trace=Trace.of(*(step.text for step in steps)),
        answer=verbalize_answer(target, solution.answer, Random(f"{item.seed}/answer")),
        support_ids=tuple(str(index) for index in sorted(solution.support)),
        proof=tuple(proof),
    )


# The evidence edit.


def _evidence_edits(item: WorldItem, gold: View) -> Iterator[EvidenceEdit]:
    """Yield edits of facts that the answer rests on, each in one passage and with a new answer."""
    rng = Random(f"{item.seed}/edit")
    (derivation,) = parse_evidence_facts(item.instance.evidence).find_answers(item.target)
    hops = list(dict.fromkeys(derivation.hops))
    # A random order, so that families do not all edit their first fact.
    rng.shuffle(hops)
    for hop in hops:
        # A fact stated in two passages would contradict itself after an edit of one.
        if len(hop.passages) != 1 or hop.relation is rel.ALIAS:
            continue
        for value in draw_replacement_values(item.instance.evidence, hop, rng):
            edit = _make_edit(item, gold, hop, value)
            if edit is not None and not any(find_evidence_edit_defects(gold, edit)):
                yield edit
                break


def draw_replacement_values(passages: tuple[Passage, ...], hop: EvidenceFact, rng: Random) -> list[str]:
    """Draw values that could replace a fact's and are as plausible as the old one."""
    if hop.relation.kind is ValueKind.NAME:
        return _new_names(passages, hop.relation, hop.value, rng)
    scene = QuestionScene(rng)
    # Eight draws: some equal the old value, some lead to no other answer.
    drawn = [scene.draw_value(hop.relation) for _ in range(8)]
    if hop.relation.kind is ValueKind.DATE:
        # Day and month stay: the year is what is edited.
        drawn = [f"{value[:4]}{hop.value[4:]}" for value in drawn]
    return [value for value in dict.fromkeys(drawn) if value != hop.value]


def _new_names(passages: tuple[Passage, ...], relation: rel.Relation, value: str, rng: Random) -> list[str]:
    """Draw names of the same type: up to six from the passages, which may lead on, and one unused, which does not."""
    readings = parse_evidence_facts(passages).readings
    stated = [name for reading in readings for name in _names(reading, relation)]
    others = [name for name in dict.fromkeys(stated) if name != value]
    rng.shuffle(others)
    # The scene only keeps the new name from overlapping with the stated ones.
    scene = QuestionScene(rng)
    scene.names |= {*stated, *(reading.name for reading in readings)}
    return [*others[:6], scene.draw_value(relation)]


def _names(reading: PassageReading, relation: rel.Relation) -> list[str]:
    subjects = [reading.name] if reading.kind == relation.object else []
    return subjects + [statement.value for statement in reading.statements if statement.relation is relation]


def _make_edit(item: WorldItem, gold: View, hop: EvidenceFact, value: str) -> EvidenceEdit | None:
    """Give the fact another value: new passage, new solution, new words from the first affected step on."""
    index = hop.passages[0]
    passage = item.write_passage(index, _change_entity(item.entities[index], hop, value))
    before = item.instance.evidence
    # Unchanged where the entity itself does not have the fact.
    if passage.text == before[index].text:
        return None
    passages = (*before[:index], passage, *before[index + 1 :])
    solution = solve_question(item.target, parse_evidence_facts(passages))
    # Equal numbers of moves keep the two traces aligned step by step.
    if solution is None or solution.answer == item.solution.answer or len(solution.moves) != len(item.solution.moves):
        return None
    view = _write_view(ViewKind.EVIDENCE_CF, item, gold.question, passages, item.target, solution)
    first = next(
        (n for n, pair in enumerate(zip(gold.trace.steps, view.trace.steps, strict=False)) if pair[0] != pair[1]), None
    )
    return None if first is None else EvidenceEdit(view, str(index), first)


def _change_entity(entity: WorldEntity, hop: EvidenceFact, value: str) -> WorldEntity:
    statements = [
        replace(s, value=value) if s.relation is hop.relation and s.value == hop.value and s.era is None else s
        for s in entity.statements
    ]
    return replace(entity, statements=statements)


# The question edit.


def _question_edit(item: WorldItem, gold: View) -> QuestionEdit | None:
    """Return another question to the same passages, one component away, with its own path and answer."""
    rng = Random(f"{item.seed}/question")
    targets = find_near_questions(item.target, item.instance.evidence)
    rng.shuffle(targets)
    # The question that is most easily taken for the asked one comes first.
    targets = [*(item.plot.near if item.plot else ()), *targets]
    passages = item.instance.evidence
    for target in targets:
        solution = solve_question(target, parse_evidence_facts(passages))
        # Another answer, from at least two passages.
        if solution is None or solution.answer == item.solution.answer or len(solution.support) < 2:
            continue
        question = verbalize_question(target, Random(f"{item.seed}/question words"))
        if parse_question(question) is None:
            continue
        view = _write_view(ViewKind.QUESTION_CF, item, question, passages, target, solution)
        if not any(find_question_edit_defects(gold, view)):
            return QuestionEdit(view)
    return None


def find_near_questions(target: Target, passages: tuple[Passage, ...]) -> list[Target]:
    """Return questions that differ in one component: the relation asked for, the thing asked about, the direction."""
    evidence = parse_evidence_facts(passages)
    rivals = [(reading.name, reading.kind) for reading in evidence.readings]
    relations = evidence.list_relations()
    if isinstance(target, ComparisonQuestion):
        # A choice has one neighbour: the opposite direction.
        return [replace(target, least=not target.least)]
    if isinstance(target, LookupQuestion):
        return _find_near_lookups(target.phrase, rivals, relations)
    kinds = (target.second.start_type, target.second.kind)
    names = (target.first.base, target.second.base)
    targets: list[Target] = [
        replace(target, second=replace(target.second, base=name))
        for name, kind in rivals
        if kind in kinds and name not in names
    ]
    if isinstance(target, SameValueQuestion):
        subject = target.relation.subject
        others = [other for other in rel.AGREEMENT_FORMS if other in relations and other.subject == subject]
        return targets + [replace(target, relation=other) for other in others]
    return targets + _find_near_spans(target, relations)


def _find_near_spans(target: YearSpanQuestion, relations: list[rel.Relation]) -> list[Target]:
    last = target.second.path[-1]
    others = [
        relation
        for relation in rel.COMPARISON_WORDS
        if relation in relations
        and relation.subject == last.subject
        and relation.kind in (ValueKind.DATE, ValueKind.YEAR)
    ]
    return [replace(target, second=replace(target.second, path=(*target.second.path[:-1], other))) for other in others]


def _find_near_lookups(
    phrase: RelationPhrase, rivals: list[tuple[str, str | None]], relations: list[rel.Relation]
) -> list[Target]:
    if not phrase.path:
        return []
    last = phrase.path[-1]
    targets: list[Target] = [
        LookupQuestion(replace(phrase, path=(*phrase.path[:-1], other)))
        for other in relations
        if other.subject == last.subject and other is not last and other is not rel.ALIAS and other.single
    ]
    if isinstance(phrase.base, str):
        targets += [
            LookupQuestion(replace(phrase, base=name))
            for name, kind in rivals
            if kind == phrase.start_type and name != phrase.base
        ]
    return targets
