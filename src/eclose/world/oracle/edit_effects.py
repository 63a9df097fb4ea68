"""What an edit did to a passage, from its words: whether one claim changed and nothing else, and whether all fits.

Names are read as the world's grammar reads them. What it cannot read is neither clean nor unclean: None.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eclose.world.language.names import is_person, is_woman
from eclose.world.language.passages import PassageReading, read_passage
from eclose.world.language.phrases import restore_plain_articles
from eclose.world.language.questions import (
    NO,
    YES,
    AgreementQuestion,
    ChoiceQuestion,
    LookupQuestion,
    Target,
    YearSpanQuestion,
)
from eclose.world.language.relations import ALIAS, BIRTH_DATE, DEATH_DATE, FATHER, MOTHER, SPOUSE
from eclose.world.language.values import MONTHS, ValueKind, read_answer_value, read_value
from eclose.world.oracle.answer_equality import is_abstention, is_same_answer
from eclose.world.oracle.evidence import EvidenceFacts, read_evidence

if TYPE_CHECKING:
    from eclose.core.instance import Passage
    from eclose.core.three_valued import Label
    from eclose.world.language.facts import Statement

_KIN = (FATHER, MOTHER, SPOUSE)
_CHANGED = "\0"


def list_surface_forms(kind: ValueKind, value: str) -> tuple[str, ...]:
    """Every way a text may write a value, in an order that does not depend on the value."""
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


def is_localized(before: Passage, after: Passage) -> Label:
    """Whether exactly one claim has another value, wherever it is repeated, and no other word moved."""
    old, new = _reading(before), _reading(after)
    if old.unread or new.unread:
        return None
    pair = find_changed_statement(old, new)
    if pair is None or (old.kind, old.occupation) != (new.kind, new.occupation):
        return False
    forms = [form for one in pair for form in list_surface_forms(one.relation.kind, one.value)]
    return _without(before.text, forms) == _without(after.text, forms)


def find_changed_statement(old: PassageReading, new: PassageReading) -> tuple[Statement, Statement] | None:
    """The one statement that has another value, as it was and as it is; None where it is not one."""
    gone = [one for one in old.statements if one not in new.statements]
    come = [one for one in new.statements if one not in old.statements]
    if len(gone) != 1 or len(come) != 1:
        return None
    one, other = gone[0], come[0]
    same = (one.subject, one.relation, one.era) == (other.subject, other.relation, other.era)
    return (one, other) if same else None


def _without(text: str, forms: list[str]) -> str:
    """The text with all forms of the values cut out, and articles as they are before a consonant."""
    ways = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return restore_plain_articles(re.sub(rf"(?<!\w)(?:{ways})(?!\w)", _CHANGED, text))


def _reading(passage: Passage) -> PassageReading:
    return read_passage(passage.title, passage.text)


def is_coherent(passages: tuple[Passage, ...], edited: tuple[Passage, ...], place: int) -> Label:
    """Whether nothing contradicts the changed claims: no second value, nobody their own kin, no death before birth."""
    old, new = _reading(passages[place]), _reading(edited[place])
    before, after = read_evidence(passages), read_evidence(edited)
    if old.unread or new.unread:
        return None
    changed = [one for one in new.statements if one not in old.statements]
    return all(
        _told_once(one, new.name, before, after) and _goes_together(one, one.subject or new.name, after)
        for one in changed
    )


def _told_once(one: Statement, name: str, before: EvidenceFacts, after: EvidenceFacts) -> bool:
    """Whether the passages give no more values for the claim than they did."""
    if not one.relation.single:
        return True
    whose = one.subject or name
    values = [{hop.value for hop in evidence.facts(whose, one.relation)} for evidence in (before, after)]
    return len(values[1]) <= max(1, len(values[0]))


def _goes_together(one: Statement, whose: str, evidence: EvidenceFacts) -> bool:
    if one.relation in _KIN:
        return _possible_kin(one, whose, evidence)
    if one.relation is ALIAS:
        return one.value != whose
    if one.relation in (BIRTH_DATE, DEATH_DATE):
        births, deaths = _values(whose, BIRTH_DATE, evidence), _values(whose, DEATH_DATE, evidence)
        # Of namesakes nobody knows which date is whose.
        return len(births) != 1 or len(deaths) != 1 or births < deaths
    return True


def _possible_kin(one: Statement, whose: str, evidence: EvidenceFacts) -> bool:
    """Nobody is their own kin, nor kin in two ways, nor their child's child; fathers are men, mothers women."""
    if evidence.same(one.value, whose):
        return False
    if one.relation is not SPOUSE and is_woman(one.value) != (one.relation is MOTHER):
        return False
    others = {value for kin in _KIN if kin is not one.relation for value in _values(whose, kin, evidence)}
    theirs = {value for kin in (FATHER, MOTHER) for value in _values(one.value, kin, evidence)}
    return one.value not in others and whose not in theirs


def _values(name: str, relation: object, evidence: EvidenceFacts) -> list[str]:
    return [hop.value for hop in evidence.facts(name, relation)]  # type: ignore[arg-type]


def is_same_kind(target: Target, one: str, other: str) -> bool:
    """Whether two answers are of one kind and could both be given to the question."""
    return all(_fits(target, answer) for answer in (one, other)) and _is_name(one) == _is_name(other)


def _is_name(answer: str) -> bool:
    return is_person(read_answer_value(answer))


def _fits(target: Target, answer: str) -> bool:
    if is_abstention(answer):
        return False
    if isinstance(target, ChoiceQuestion):
        return any(is_same_answer(answer, option) for option in target.options)
    if isinstance(target, AgreementQuestion):
        return any(is_same_answer(answer, option) for option in (YES, NO))
    plain = read_answer_value(answer)
    if isinstance(target, YearSpanQuestion):
        return read_value(ValueKind.NUMBER, plain) is not None
    return _is_value(target, plain)


def _is_value(target: LookupQuestion, plain: str) -> bool:
    """Whether an answer in canonical form is of the kind that is asked for."""
    path = target.phrase.path
    kind = path[-1].kind if path else ValueKind.NAME
    if kind is ValueKind.NAME:
        return read_value(kind, plain) is not None and not plain[:1].isdigit()
    if kind is ValueKind.DATE:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", plain) is not None
    return plain.isdigit()
