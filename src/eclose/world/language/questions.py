"""What a question asks for, written and read: a value, a choice between two, agreement, or a span of years."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from eclose.world.language.phrases import (
    Phrase,
    Which,
    fits,
    match_form,
    read_deeds,
    read_phrase,
    which_forms,
    write_phrase,
)
from eclose.world.language.relations import (
    BIRTH_DATE,
    DEATH_DATE,
    MACROS,
    ORDERS,
    RELATIONS,
    ROLE_NOUNS,
    SAME,
    TYPE_WORDS,
    Relation,
)
from eclose.world.language.values import NAME, ValueKind

if TYPE_CHECKING:
    from random import Random

YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Lookup:
    """The value a phrase leads to."""

    phrase: Phrase


@dataclass(frozen=True, slots=True)
class Choose:
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
class Agree:
    """Whether two phrases lead to the same value."""

    left: Phrase
    right: Phrase
    relation: Relation

    def phrases(self) -> tuple[Phrase, Phrase]:
        """The two values that are compared."""
        return self.left.then(self.relation), self.right.then(self.relation)


@dataclass(frozen=True, slots=True)
class Span:
    """How many calendar years lie between two values."""

    left: Phrase
    right: Phrase

    def phrases(self) -> tuple[Phrase, Phrase]:
        """The two values."""
        return self.left, self.right


Target: TypeAlias = Lookup | Choose | Agree | Span

_SPANS = ("How many years lie between {x} and {y}?", "How many calendar years separate {x} from {y}?")
_LIVED = "How many calendar years did {x} live?"
_WHO = ("Who is {x}?", "What is {x}?")
_WHICH = ("Who {deeds}?", "Which person {deeds}?")
_CHOICE = "(?P<a>{name}) or (?P<b>{name})\\?".replace("{name}", NAME)


def write_question(target: Target, rng: Random) -> str:
    """The question in words."""
    if isinstance(target, Lookup):
        return _write_lookup(target.phrase, rng)
    if isinstance(target, Choose):
        return _write_choice(target, rng)
    if isinstance(target, Agree):
        question, _, _ = rng.choice(SAME[target.relation])
        return question.replace("{x}", write_phrase(target.left, rng)).replace("{y}", write_phrase(target.right, rng))
    if _is_life(target) and rng.random() < 0.6:
        return _LIVED.replace("{x}", write_phrase(replace(target.left, path=target.left.path[:-1]), rng))
    question = rng.choice(_SPANS)
    return question.replace("{x}", write_phrase(target.left, rng)).replace("{y}", write_phrase(target.right, rng))


def _is_life(target: Span) -> bool:
    left, right = target.left, target.right
    same = left.base == right.base and left.path[:-1] == right.path[:-1]
    return same and (left.path[-1], right.path[-1]) == (BIRTH_DATE, DEATH_DATE)


def _write_lookup(phrase: Phrase, rng: Random) -> str:
    if not phrase.path:
        assert isinstance(phrase.base, Which)
        return rng.choice(_WHICH).replace("{deeds}", which_forms(phrase.base.deeds))
    if phrase.path[-2:] in MACROS.values() and rng.random() < 0.7:
        return _WHO[0].replace("{x}", write_phrase(phrase, rng))
    inner = write_phrase(replace(phrase, path=phrase.path[:-1]), rng)
    return rng.choice(phrase.path[-1].asks).replace("{x}", inner)


def superlatives(attribute: Relation, *, least: bool) -> tuple[str, ...]:
    """The words for having the smallest or the largest value."""
    return ORDERS[attribute].least if least else ORDERS[attribute].most


def _write_choice(target: Choose, rng: Random) -> str:
    ending = f", {target.options[0]} or {target.options[1]}?"
    phrase = rng.choice(superlatives(target.attribute, least=target.least))
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
    for attribute in ORDERS:
        for least in (True, False):
            ways = "|".join(superlatives(attribute, least=least))
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


def _read_choice(text: str) -> Choose | None:
    if not text.startswith("W") or " or " not in text:
        return None
    for pattern, kind, path, attribute, least in _choice_patterns():
        if found := pattern.fullmatch(text):
            return Choose((found["a"], found["b"]), kind, path, attribute, least)
    return None


def _read_agreement(text: str) -> Agree | None:
    for relation, forms in SAME.items():
        for question, _, _ in forms:
            if pair := read_pair(question, text):
                return Agree(*pair, relation)
    return None


def read_pair(template: str, text: str) -> tuple[Phrase, Phrase] | None:
    """Two phrases out of a template with ``{x}`` and ``{y}``."""
    for slots in match_form(template, text):
        left, right = read_phrase(slots["x"]), read_phrase(slots["y"])
        if left and right:
            return left, right
    return None


def _read_span(text: str) -> Span | None:
    for slots in match_form(_LIVED, text):
        if whose := read_phrase(slots["x"]):
            return Span(whose.then(BIRTH_DATE), whose.then(DEATH_DATE))
    for template in _SPANS:
        if pair := read_years(template, text):
            return Span(*pair)
    return None


def read_years(template: str, text: str) -> tuple[Phrase, Phrase] | None:
    """Two phrases that lead to dates or years; nothing lies between anything else."""
    pair = read_pair(template, text)
    dated = pair and all(phrase.path and phrase.path[-1].kind in (ValueKind.DATE, ValueKind.YEAR) for phrase in pair)
    return pair if dated else None


def _read_lookup(text: str) -> Lookup | None:
    for relation in RELATIONS:
        for template in relation.asks:
            for slots in match_form(template, text):
                phrase = read_phrase(slots["x"])
                if phrase and fits(phrase, relation):
                    return Lookup(phrase.then(relation))
    for template in _WHICH:
        for slots in match_form(template, text):
            if deeds := read_deeds(slots["deeds"]):
                return Lookup(Phrase(Which(deeds)))
    for template in _WHO:
        for slots in match_form(template, text):
            phrase = read_phrase(slots["x"])
            if phrase and (phrase.path or isinstance(phrase.base, Which)):
                return Lookup(phrase)
    return None
