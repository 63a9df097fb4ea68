"""What a question asks for, written and read: a value, a choice between two, agreement, or a span of years."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from eclose.world.language.phrases import (
    CommonDoer,
    Phrase,
    accepts_relation,
    match_form,
    read_deeds,
    read_phrase,
    write_deeds,
    write_phrase,
)
from eclose.world.language.relations import (
    AGREEMENT_FORMS,
    BIRTH_DATE,
    COMPARISON_WORDS,
    COMPOUND_PHRASES,
    DEATH_DATE,
    RELATIONS,
    ROLE_NOUNS,
    TYPE_WORDS,
    Relation,
)
from eclose.world.language.values import NAME, ValueKind

if TYPE_CHECKING:
    from random import Random

YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class LookupQuestion:
    """The value a phrase leads to."""

    phrase: Phrase


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """Which of two has the smaller or larger value, directly or through a person behind it."""

    options: tuple[str, str]
    kind: str
    path: tuple[Relation, ...]
    attribute: Relation
    least: bool

    def phrases(self) -> tuple[Phrase, Phrase]:
        """The two values that are compared."""
        first, second = (Phrase(name, (*self.path, self.attribute), self.kind) for name in self.options)
        return first, second


@dataclass(frozen=True, slots=True)
class AgreementQuestion:
    """Whether two phrases lead to the same value."""

    left: Phrase
    right: Phrase
    relation: Relation

    def phrases(self) -> tuple[Phrase, Phrase]:
        """The two values that are compared."""
        return self.left.then(self.relation), self.right.then(self.relation)


@dataclass(frozen=True, slots=True)
class YearSpanQuestion:
    """How many calendar years lie between two values."""

    left: Phrase
    right: Phrase

    def phrases(self) -> tuple[Phrase, Phrase]:
        """The two values."""
        return self.left, self.right


Target: TypeAlias = LookupQuestion | ChoiceQuestion | AgreementQuestion | YearSpanQuestion

_SPANS = ("How many years lie between {x} and {y}?", "How many calendar years separate {x} from {y}?")
_LIVED = "How many calendar years did {x} live?"
_WHO = ("Who is {x}?", "What is {x}?")
_WHICH = ("Who {deeds}?", "Which person {deeds}?")
_CHOICE = "(?P<a>{name}) or (?P<b>{name})\\?".replace("{name}", NAME)


def write_question(target: Target, rng: Random) -> str:
    """The question in words."""
    if isinstance(target, LookupQuestion):
        return _write_lookup(target.phrase, rng)
    if isinstance(target, ChoiceQuestion):
        return _write_choice(target, rng)
    if isinstance(target, AgreementQuestion):
        question, _, _ = rng.choice(AGREEMENT_FORMS[target.relation])
        return question.replace("{x}", write_phrase(target.left, rng)).replace("{y}", write_phrase(target.right, rng))
    if _is_life(target) and rng.random() < 0.6:
        return _LIVED.replace("{x}", write_phrase(replace(target.left, path=target.left.path[:-1]), rng))
    question = rng.choice(_SPANS)
    return question.replace("{x}", write_phrase(target.left, rng)).replace("{y}", write_phrase(target.right, rng))


def _is_life(target: YearSpanQuestion) -> bool:
    left, right = target.left, target.right
    same = left.base == right.base and left.path[:-1] == right.path[:-1]
    return same and (left.path[-1], right.path[-1]) == (BIRTH_DATE, DEATH_DATE)


def _write_lookup(phrase: Phrase, rng: Random) -> str:
    if not phrase.path:
        assert isinstance(phrase.base, CommonDoer)
        return rng.choice(_WHICH).replace("{deeds}", write_deeds(phrase.base.deeds))
    if phrase.path[-2:] in COMPOUND_PHRASES.values() and rng.random() < 0.7:
        return _WHO[0].replace("{x}", write_phrase(phrase, rng))
    inner = write_phrase(replace(phrase, path=phrase.path[:-1]), rng)
    return rng.choice(phrase.path[-1].asks).replace("{x}", inner)


def list_superlatives(attribute: Relation, *, least: bool) -> tuple[str, ...]:
    """The words for having the smallest or the largest value."""
    return COMPARISON_WORDS[attribute].least if least else COMPARISON_WORDS[attribute].most


def _write_choice(target: ChoiceQuestion, rng: Random) -> str:
    ending = f", {target.options[0]} or {target.options[1]}?"
    phrase = rng.choice(list_superlatives(target.attribute, least=target.least))
    if not target.path:
        head = "Who" if target.kind == "person" else f"Which {TYPE_WORDS[target.kind][0]}"
        return f"{head} {phrase}{ending}"
    noun, word = ROLE_NOUNS[target.path[0]], rng.choice(TYPE_WORDS[target.kind])
    return rng.choice((f"Which {word} has the {noun} who {phrase}{ending}", f"Which {word}'s {noun} {phrase}{ending}"))


@lru_cache(maxsize=4_096)
def read_question(text: str) -> Target | None:
    """What a question asks for; None when the grammar does not know it."""
    text = text.strip()
    return _read_choice(text) or _read_agreement(text) or _read_span(text) or _read_lookup(text)


@cache
def _choice_patterns() -> tuple[tuple[re.Pattern[str], str, tuple[Relation, ...], Relation, bool], ...]:
    found: list[tuple[re.Pattern[str], str, tuple[Relation, ...], Relation, bool]] = []
    for attribute in COMPARISON_WORDS:
        for least in (True, False):
            ways = "|".join(list_superlatives(attribute, least=least))
            kinds = "|".join(TYPE_WORDS[attribute.subject])
            head = "Who" if attribute.subject == "person" else f"Which (?:{kinds})"
            found.append((re.compile(f"{head} (?:{ways}), {_CHOICE}"), attribute.subject, (), attribute, least))
            if attribute.subject != "person":
                continue
            for role, noun in ROLE_NOUNS.items():
                words = "|".join(TYPE_WORDS[role.subject])
                bridge = f"Which (?:{words})(?: has the {noun} who|'s {noun}) (?:{ways}), {_CHOICE}"
                found.append((re.compile(bridge), role.subject, (role,), attribute, least))
    return tuple(found)


def _read_choice(text: str) -> ChoiceQuestion | None:
    if not text.startswith("W") or " or " not in text:
        return None
    for pattern, kind, path, attribute, least in _choice_patterns():
        if found := pattern.fullmatch(text):
            return ChoiceQuestion((found["a"], found["b"]), kind, path, attribute, least)
    return None


def _read_agreement(text: str) -> AgreementQuestion | None:
    for relation, forms in AGREEMENT_FORMS.items():
        for question, _, _ in forms:
            if pair := read_phrase_pair(question, text):
                return AgreementQuestion(*pair, relation)
    return None


def read_phrase_pair(template: str, text: str) -> tuple[Phrase, Phrase] | None:
    """Two phrases out of a template with ``{x}`` and ``{y}``."""
    for slots in match_form(template, text):
        left, right = read_phrase(slots["x"]), read_phrase(slots["y"])
        if left and right:
            return left, right
    return None


def _read_span(text: str) -> YearSpanQuestion | None:
    for slots in match_form(_LIVED, text):
        if whose := read_phrase(slots["x"]):
            return YearSpanQuestion(whose.then(BIRTH_DATE), whose.then(DEATH_DATE))
    for template in _SPANS:
        if pair := read_dated_pair(template, text):
            return YearSpanQuestion(*pair)
    return None


def read_dated_pair(template: str, text: str) -> tuple[Phrase, Phrase] | None:
    """Two phrases that lead to dates or years; nothing lies between anything else."""
    pair = read_phrase_pair(template, text)
    dated = pair and all(phrase.path and phrase.path[-1].kind in (ValueKind.DATE, ValueKind.YEAR) for phrase in pair)
    return pair if dated else None


def _read_lookup(text: str) -> LookupQuestion | None:
    for relation in RELATIONS:
        for template in relation.asks:
            for slots in match_form(template, text):
                phrase = read_phrase(slots["x"])
                if phrase and accepts_relation(phrase, relation):
                    return LookupQuestion(phrase.then(relation))
    for template in _WHICH:
        for slots in match_form(template, text):
            if deeds := read_deeds(slots["deeds"]):
                return LookupQuestion(Phrase(CommonDoer(deeds)))
    for template in _WHO:
        for slots in match_form(template, text):
            phrase = read_phrase(slots["x"])
            if phrase and (phrase.path or isinstance(phrase.base, CommonDoer)):
                return LookupQuestion(phrase)
    return None
