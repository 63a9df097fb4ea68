"""Targets of questions, written and read: a value, a choice between two, agreement, or a span of years."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from eclose_world.language import phrases
from eclose_world.language import relations as rel
from eclose_world.language.values import NAME, ValueKind

if TYPE_CHECKING:
    from random import Random

YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class LookupQuestion:
    """Asks for the value that a phrase leads to."""

    phrase: phrases.RelationPhrase


@dataclass(frozen=True, slots=True)
class ComparisonQuestion:
    """Asks which of two has the smaller or larger value, directly or through a person behind it."""

    options: tuple[str, str]
    kind: str
    path: tuple[rel.Relation, ...]
    attribute: rel.Relation
    least: bool

    def phrases(self) -> tuple[phrases.RelationPhrase, phrases.RelationPhrase]:
        """Return the two compared values."""
        first, second = (phrases.RelationPhrase(name, (*self.path, self.attribute), self.kind) for name in self.options)
        return first, second


@dataclass(frozen=True, slots=True)
class SameValueQuestion:
    """Asks whether two phrases lead to the same value."""

    first: phrases.RelationPhrase
    second: phrases.RelationPhrase
    relation: rel.Relation

    def phrases(self) -> tuple[phrases.RelationPhrase, phrases.RelationPhrase]:
        """Return the two compared values."""
        return self.first.then(self.relation), self.second.then(self.relation)


@dataclass(frozen=True, slots=True)
class YearSpanQuestion:
    """Asks how many calendar years lie between two values."""

    first: phrases.RelationPhrase
    second: phrases.RelationPhrase

    def phrases(self) -> tuple[phrases.RelationPhrase, phrases.RelationPhrase]:
        """Return the two values."""
        return self.first, self.second


Target: TypeAlias = LookupQuestion | ComparisonQuestion | SameValueQuestion | YearSpanQuestion

_SPANS = ("How many years lie between {x} and {y}?", "How many calendar years separate {x} from {y}?")
_LIVED = "How many calendar years did {x} live?"
_WHO = ("Who is {x}?", "What is {x}?")
_WHICH = ("Who {deeds}?", "Which person {deeds}?")
_CHOICE = "(?P<a>{name}) or (?P<b>{name})\\?".replace("{name}", NAME)


def verbalize_question(target: Target, rng: Random) -> str:
    """Return the question in words."""
    if isinstance(target, LookupQuestion):
        return _write_lookup(target.phrase, rng)
    if isinstance(target, ComparisonQuestion):
        return _write_choice(target, rng)
    if isinstance(target, SameValueQuestion):
        question, _, _ = rng.choice(rel.AGREEMENT_FORMS[target.relation])
        return question.replace("{x}", phrases.verbalize_phrase(target.first, rng)).replace(
            "{y}", phrases.verbalize_phrase(target.second, rng)
        )
    if _is_life(target) and rng.random() < 0.6:
        return _LIVED.replace("{x}", phrases.verbalize_phrase(replace(target.first, path=target.first.path[:-1]), rng))
    question = rng.choice(_SPANS)
    return question.replace("{x}", phrases.verbalize_phrase(target.first, rng)).replace(
        "{y}", phrases.verbalize_phrase(target.second, rng)
    )


def _is_life(target: YearSpanQuestion) -> bool:
    start, end = target.first, target.second
    # Birth and death of one person: "How many calendar years did X live?"
    same = start.base == end.base and start.path[:-1] == end.path[:-1]
    return same and (start.path[-1], end.path[-1]) == (rel.BIRTH_DATE, rel.DEATH_DATE)


def _write_lookup(phrase: phrases.RelationPhrase, rng: Random) -> str:
    if not phrase.path:
        assert isinstance(phrase.base, phrases.PersonOfTwoDeeds)
        return rng.choice(_WHICH).replace("{deeds}", phrases.verbalize_deeds(phrase.base.deeds))
    # "Who is the maternal grandmother of X?" in 70 % of the cases that allow it.
    if phrase.path[-2:] in rel.COMPOUND_PHRASES.values() and rng.random() < 0.7:
        return _WHO[0].replace("{x}", phrases.verbalize_phrase(phrase, rng))
    inner = phrases.verbalize_phrase(replace(phrase, path=phrase.path[:-1]), rng)
    return rng.choice(phrase.path[-1].asks).replace("{x}", inner)


def list_superlative_wordings(attribute: rel.Relation, *, least: bool) -> tuple[str, ...]:
    """Return the words for having the smallest or the largest value."""
    return rel.COMPARISON_WORDS[attribute].least if least else rel.COMPARISON_WORDS[attribute].most


def _write_choice(target: ComparisonQuestion, rng: Random) -> str:
    ending = f", {target.options[0]} or {target.options[1]}?"
    phrase = rng.choice(list_superlative_wordings(target.attribute, least=target.least))
    if not target.path:
        head = "Who" if target.kind == "person" else f"Which {rel.TYPE_WORDS[target.kind][0]}"
        return f"{head} {phrase}{ending}"
    noun, word = rel.ROLE_NOUNS[target.path[0]], rng.choice(rel.TYPE_WORDS[target.kind])
    return rng.choice((f"Which {word} has the {noun} who {phrase}{ending}", f"Which {word}'s {noun} {phrase}{ending}"))


@lru_cache(maxsize=4_096)
def parse_question(text: str) -> Target | None:
    """Return the target of a question, None where the grammar does not cover it."""
    text = text.strip()
    # The more specific forms come first: a lookup phrase can contain almost any words.
    return _read_choice(text) or _read_agreement(text) or _read_span(text) or _read_lookup(text)


@cache
def _choice_patterns() -> tuple[tuple[re.Pattern[str], str, tuple[rel.Relation, ...], rel.Relation, bool], ...]:
    patterns: list[tuple[re.Pattern[str], str, tuple[rel.Relation, ...], rel.Relation, bool]] = []
    for attribute in rel.COMPARISON_WORDS:
        for least in (True, False):
            superlatives = "|".join(list_superlative_wordings(attribute, least=least))
            kinds = "|".join(rel.TYPE_WORDS[attribute.subject])
            head = "Who" if attribute.subject == "person" else f"Which (?:{kinds})"
            patterns.append(
                (re.compile(f"{head} (?:{superlatives}), {_CHOICE}"), attribute.subject, (), attribute, least)
            )
            if attribute.subject != "person":
                continue
            for role, noun in rel.ROLE_NOUNS.items():
                words = "|".join(rel.TYPE_WORDS[role.subject])
                bridge = f"Which (?:{words})(?: has the {noun} who|'s {noun}) (?:{superlatives}), {_CHOICE}"
                patterns.append((re.compile(bridge), role.subject, (role,), attribute, least))
    return tuple(patterns)


def _read_choice(text: str) -> ComparisonQuestion | None:
    # A cheap test that spares most questions the patterns below.
    if not text.startswith("W") or " or " not in text:
        return None
    for pattern, kind, path, attribute, least in _choice_patterns():
        if matched := pattern.fullmatch(text):
            return ComparisonQuestion((matched["a"], matched["b"]), kind, path, attribute, least)
    return None


def _read_agreement(text: str) -> SameValueQuestion | None:
    for relation, forms in rel.AGREEMENT_FORMS.items():
        for question, _, _ in forms:
            if pair := parse_phrase_pair(question, text):
                return SameValueQuestion(*pair, relation)
    return None


def parse_phrase_pair(template: str, text: str) -> tuple[phrases.RelationPhrase, phrases.RelationPhrase] | None:
    """Return two phrases read from a template with ``{x}`` and ``{y}``."""
    for slots in phrases.match_template(template, text):
        first, second = phrases.parse_phrase(slots["x"]), phrases.parse_phrase(slots["y"])
        if first and second:
            return first, second
    return None


def _read_span(text: str) -> YearSpanQuestion | None:
    for slots in phrases.match_template(_LIVED, text):
        if person := phrases.parse_phrase(slots["x"]):
            return YearSpanQuestion(person.then(rel.BIRTH_DATE), person.then(rel.DEATH_DATE))
    for template in _SPANS:
        if pair := parse_dated_pair(template, text):
            return YearSpanQuestion(*pair)
    return None


def parse_dated_pair(template: str, text: str) -> tuple[phrases.RelationPhrase, phrases.RelationPhrase] | None:
    """Return two phrases that lead to dates or years, None for any others."""
    pair = parse_phrase_pair(template, text)
    dated = pair and all(phrase.path and phrase.path[-1].kind in (ValueKind.DATE, ValueKind.YEAR) for phrase in pair)
    return pair if dated else None


def _read_lookup(text: str) -> LookupQuestion | None:
    for relation in rel.RELATIONS:
        for template in relation.asks:
            for slots in phrases.match_template(template, text):
                phrase = phrases.parse_phrase(slots["x"])
                if phrase and phrases.phrase_accepts_relation(phrase, relation):
                    return LookupQuestion(phrase.then(relation))
    for template in _WHICH:
        for slots in phrases.match_template(template, text):
            if deeds := phrases.parse_deeds(slots["deeds"]):
                return LookupQuestion(phrases.RelationPhrase(phrases.PersonOfTwoDeeds(deeds)))
    # "Who is the mother of X?" with the whole phrase in one slot.
    for template in _WHO:
        for slots in phrases.match_template(template, text):
            phrase = phrases.parse_phrase(slots["x"])
            if phrase and (phrase.path or isinstance(phrase.base, phrases.PersonOfTwoDeeds)):
                return LookupQuestion(phrase)
    return None
