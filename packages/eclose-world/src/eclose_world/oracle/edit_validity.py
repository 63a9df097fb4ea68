"""Effects of an edit, from the words: whether one claim alone changed, and whether the rest stays consistent.

A label is None where the grammar cannot read a passage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eclose_world.language import questions
from eclose_world.language.names import is_female_name, is_person_name
from eclose_world.language.passages import PassageReading, parse_passage_facts
from eclose_world.language.phrases import replace_an_by_a
from eclose_world.language.relations import ALIAS, BIRTH_DATE, DEATH_DATE, FATHER, MOTHER, SPOUSE
from eclose_world.language.values import MONTHS, ValueKind, parse_answer_value, parse_value
from eclose_world.oracle.answer_equality import is_abstention, is_same_answer
from eclose_world.oracle.evidence import EvidenceFacts, parse_evidence_facts

if TYPE_CHECKING:
    from eclose.values.instance import Passage
    from eclose.values.three_valued import Label
    from eclose_world.language.scene_facts import FactStatement

_RELATIVES = (FATHER, MOTHER, SPOUSE)
# Occurs in no text of the world, so a cut cannot be mistaken for words.
_CUT = "\0"


def list_surface_forms(kind: ValueKind, value: str) -> tuple[str, ...]:
    """Return every way to write a value, in an order that does not depend on the value."""
    if kind is ValueKind.DATE:
        year, month, day = value.split("-")
        name = MONTHS[int(month) - 1]
        return f"{int(day)} {name} {year}", f"{name} {int(day)}, {year}"
    if kind is ValueKind.NUMBER:
        return f"{int(value):,}", value
    if kind is ValueKind.MINUTES:
        hours, minutes = divmod(int(value), 60)
        words = f"{hours} hour{'s' * (hours > 1)}" + (f" and {minutes} minutes" if minutes else "")
        return words, f"{value} minutes"
    return (value,)


def is_localized_edit(before: Passage, after: Passage) -> Label:
    """Return whether exactly one claim has another value, wherever it is repeated, and no other word changed."""
    old, new = _read(before), _read(after)
    # An unread sentence may hide a second change.
    if old.unread or new.unread:
        return None
    change = _find_changed_statement(old, new)
    if change is None or (old.kind, old.occupation) != (new.kind, new.occupation):
        return False
    forms = [form for statement in change for form in list_surface_forms(statement.relation.kind, statement.value)]
    return _cut_forms(before.text, forms) == _cut_forms(after.text, forms)


def _find_changed_statement(old: PassageReading, new: PassageReading) -> tuple[FactStatement, FactStatement] | None:
    """Return the one statement with another value, before and after; None unless it is exactly one."""
    removed = [statement for statement in old.statements if statement not in new.statements]
    added = [statement for statement in new.statements if statement not in old.statements]
    if len(removed) != 1 or len(added) != 1:
        return None
    before, after = removed[0], added[0]
    same = (before.subject, before.relation, before.era) == (after.subject, after.relation, after.era)
    return (before, after) if same else None


def _cut_forms(text: str, forms: list[str]) -> str:
    """Return the text with all forms of the values cut out, and articles as before a consonant."""
    # Longest form first: "2 hours and 5 minutes" is cut as a whole, not up to "2 hours".
    pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return replace_an_by_a(re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", _CUT, text))


def _read(passage: Passage) -> PassageReading:
    return parse_passage_facts(passage.title, passage.text)


def is_coherent_edit(passages: tuple[Passage, ...], edited: tuple[Passage, ...], index: int) -> Label:
    """Return whether the changed claims are consistent: no second value, impossible relative or death before birth."""
    old, new = _read(passages[index]), _read(edited[index])
    before, after = parse_evidence_facts(passages), parse_evidence_facts(edited)
    if old.unread or new.unread:
        return None
    changed = [statement for statement in new.statements if statement not in old.statements]
    return all(
        _keeps_value_count(statement, new.name, before, after)
        and _is_consistent(statement, statement.subject or new.name, after)
        for statement in changed
    )


def _keeps_value_count(statement: FactStatement, name: str, before: EvidenceFacts, after: EvidenceFacts) -> bool:
    """Return whether the passages give no more values for the claim than before."""
    if not statement.relation.single:
        return True
    subject = statement.subject or name
    values = [{hop.value for hop in evidence.find_facts(subject, statement.relation)} for evidence in (before, after)]
    return len(values[1]) <= max(1, len(values[0]))


def _is_consistent(statement: FactStatement, subject: str, evidence: EvidenceFacts) -> bool:
    if statement.relation in _RELATIVES:
        return _is_possible_relative(statement, subject, evidence)
    if statement.relation is ALIAS:
        return statement.value != subject
    if statement.relation in (BIRTH_DATE, DEATH_DATE):
        births, deaths = _values(subject, BIRTH_DATE, evidence), _values(subject, DEATH_DATE, evidence)
        # Among namesakes a date cannot be assigned to a person.
        return len(births) != 1 or len(deaths) != 1 or births < deaths
    return True


def _is_possible_relative(statement: FactStatement, subject: str, evidence: EvidenceFacts) -> bool:
    """Return whether a relative is possible.

    Excluded are oneself, a relative in two relations, a child as a parent, a woman as father and a man as mother.
    """
    if evidence.same_entity(statement.value, subject):
        return False
    if statement.relation is not SPOUSE and is_female_name(statement.value) != (statement.relation is MOTHER):
        return False
    other_relatives = {
        value
        for relation in _RELATIVES
        if relation is not statement.relation
        for value in _values(subject, relation, evidence)
    }
    their_parents = {value for relation in (FATHER, MOTHER) for value in _values(statement.value, relation, evidence)}
    return statement.value not in other_relatives and subject not in their_parents


def _values(name: str, relation: object, evidence: EvidenceFacts) -> list[str]:
    return [hop.value for hop in evidence.find_facts(name, relation)]  # type: ignore[arg-type]


def is_same_answer_kind(target: questions.Target, first: str, second: str) -> bool:
    """Return whether two answers are of one kind and could both be given to the question."""
    return all(_fits(target, answer) for answer in (first, second)) and _is_name(first) == _is_name(second)


def _is_name(answer: str) -> bool:
    return is_person_name(parse_answer_value(answer))


def _fits(target: questions.Target, answer: str) -> bool:
    if is_abstention(answer):
        return False
    if isinstance(target, questions.ComparisonQuestion):
        return any(is_same_answer(answer, option) for option in target.options)
    if isinstance(target, questions.SameValueQuestion):
        return any(is_same_answer(answer, option) for option in (questions.YES, questions.NO))
    plain = parse_answer_value(answer)
    if isinstance(target, questions.YearSpanQuestion):
        return parse_value(ValueKind.NUMBER, plain) is not None
    return _is_value(target, plain)


def _is_value(target: questions.LookupQuestion, plain: str) -> bool:
    """Return whether an answer in canonical form is of the asked kind."""
    path = target.phrase.path
    kind = path[-1].kind if path else ValueKind.NAME
    if kind is ValueKind.NAME:
        return parse_value(kind, plain) is not None and not plain[:1].isdigit()
    # Canonical dates are ISO 8601.
    if kind is ValueKind.DATE:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", plain) is not None
    return plain.isdigit()
