"""Phrases and sentence forms, written and read by the same table.

A ``RelationPhrase`` names a value by the path that leads to it: "the mother of the director of Paper Lighthouse".
Reading tries every form; names are built so that at most one fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from eclose_world.language.relations import COMPOUND_PHRASES, DEED_VERBS, RELATIONS, TYPE_WORDS, Relation
from eclose_world.language.values import NAME, ValueKind, draw_surface_form, parse_value, parse_value_of_any_kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

PRONOUNS = ("he", "she", "it")
_NAME = re.compile(NAME)
_TYPED = re.compile(
    rf"the (?P<word>{'|'.join(word for words in TYPE_WORDS.values() for word in words)}) (?P<name>{NAME})"
)
_TYPE_OF = {word: kind for kind, words in TYPE_WORDS.items() for word in words}


@dataclass(frozen=True, slots=True)
class PersonOfTwoDeeds:
    """The person who did two things: the start of a question with two branches."""

    deeds: tuple[tuple[Relation, str], ...]


@dataclass(frozen=True, slots=True)
class RelationPhrase:
    """A value named by a start and the relations that lead from it."""

    base: str | PersonOfTwoDeeds
    path: tuple[Relation, ...] = ()
    kind: str | None = None
    """The type stated with the base, as in "the film Paper Lighthouse"."""

    def then(self, *relations: Relation) -> RelationPhrase:
        """Return the phrase for the value that further relations lead to."""
        return replace(self, path=(*self.path, *relations))

    @property
    def start_type(self) -> str | None:
        """The type of the base: stated, or required by the first relation."""
        return self.path[0].subject if self.path else self.kind


@cache
def _parts(template: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the literals of a template and the slots between them."""
    parts = re.split(r"\{(\w+)\}", template)
    return tuple(parts[::2]), tuple(parts[1::2])


def match_template(template: str, text: str) -> Iterator[dict[str, str]]:
    """Yield every way to fill the slots of a template with non-empty parts of the text."""
    literals, slots = _parts(template)
    if not text.startswith(literals[0]) or not text.endswith(literals[-1]):
        return
    # A name may contain a literal such as "of", so all splits are tried.
    yield from _fill(text, len(literals[0]), literals[1:], slots)


def _fill(text: str, start: int, literals: tuple[str, ...], slots: tuple[str, ...]) -> Iterator[dict[str, str]]:
    if not slots:
        if start == len(text):
            yield {}
        return
    literal, later = literals[0], literals[1:]
    # The last slot takes all up to the last literal, which match_template has checked.
    if len(slots) == 1:
        end = len(text) - len(literal)
        if end > start:
            yield {slots[0]: text[start:end]}
        return
    end = text.find(literal, start + 1)
    while end != -1:
        for filled in _fill(text, end + len(literal), later, slots[1:]):
            yield {slots[0]: text[start:end], **filled}
        end = text.find(literal, end + 1)


# Compound phrases before plain ones: first match wins.
_PHRASES: tuple[tuple[str, tuple[Relation, ...]], ...] = (
    *COMPOUND_PHRASES.items(),
    *((template, (relation,)) for relation in RELATIONS for template in relation.phrases),
)


@lru_cache(maxsize=8_192)
def parse_phrase(text: str, *, typed: bool = True) -> RelationPhrase | None:
    """Return the phrase that a text stands for, None where it is none.

    Args:
        text: Words of the phrase.
        typed: Whether each relation must apply to the value before it: no "mother of the company".
    """
    # A phrase may begin a sentence; a name is tried as it stands at the end.
    lowered = text[0].lower() + text[1:] if text else text
    if lowered in PRONOUNS:
        return RelationPhrase(lowered)
    if lowered.startswith("the "):
        # Compound phrases come first: "the father-in-law of" is no phrase for a father.
        for template, path in _PHRASES:
            for slots in match_template(template, lowered):
                inner = parse_phrase(slots["x"], typed=typed)
                if inner and (not typed or phrase_accepts_relation(inner, path[0])):
                    return inner.then(*path)
        if (matched := _TYPED.fullmatch(lowered)) is not None:
            return RelationPhrase(matched["name"], kind=_TYPE_OF[matched["word"]])
        if doer := _read_common_doer(lowered):
            return RelationPhrase(doer)
    return RelationPhrase(text) if _NAME.fullmatch(text) else None


def phrase_accepts_relation(inner: RelationPhrase, relation: Relation) -> bool:
    """Return whether a relation applies to the value that the phrase leads to."""
    if inner.path:
        return inner.path[-1].object == relation.subject
    if isinstance(inner.base, PersonOfTwoDeeds):
        return relation.subject == "person"
    # A base without a stated type accepts every relation.
    return inner.kind in (None, relation.subject)


def verbalize_deeds(deeds: tuple[tuple[Relation, str], ...]) -> str:
    """Return the two deeds in words: "directed X and wrote Y"."""
    (first, a), (second, b) = deeds
    if first is second:
        return f"{DEED_VERBS[first]} both {a} and {b}"
    return f"{DEED_VERBS[first]} {a} and {DEED_VERBS[second]} {b}"


@cache
def _deed_patterns() -> tuple[tuple[re.Pattern[str], Relation, Relation], ...]:
    patterns = []
    for first, verb in DEED_VERBS.items():
        patterns.append((re.compile(rf"{verb} both (?P<a>{NAME}) and (?P<b>{NAME})"), first, first))
        patterns.extend(
            (re.compile(rf"{verb} (?P<a>{NAME}) and {other} (?P<b>{NAME})"), first, second)
            for second, other in DEED_VERBS.items()
            if second is not first
        )
    return tuple(patterns)


def parse_deeds(text: str) -> tuple[tuple[Relation, str], ...] | None:
    """Return two deeds read from their words."""
    for pattern, first, second in _deed_patterns():
        if matched := pattern.fullmatch(text):
            return (first, matched["a"]), (second, matched["b"])
    return None


def _read_common_doer(text: str) -> PersonOfTwoDeeds | None:
    if not text.startswith("the person who "):
        return None
    deeds = parse_deeds(text.removeprefix("the person who "))
    return PersonOfTwoDeeds(deeds) if deeds else None


def verbalize_phrase(phrase: RelationPhrase, rng: Random) -> str:
    """Return the phrase in words."""
    if not phrase.path:
        if isinstance(phrase.base, PersonOfTwoDeeds):
            return f"the person who {verbalize_deeds(phrase.base.deeds)}"
        if phrase.kind and phrase.kind in TYPE_WORDS and phrase.kind != "person":
            return f"the {rng.choice(TYPE_WORDS[phrase.kind])} {phrase.base}"
        return phrase.base
    if len(phrase.path) >= 2:
        compounds = [template for template, path in COMPOUND_PHRASES.items() if path == phrase.path[-2:]]
        # Compound phrases are preferred in 70 % of cases.
        if compounds and rng.random() < 0.7:
            return compounds[0].replace("{x}", verbalize_phrase(replace(phrase, path=phrase.path[:-2]), rng))
    inner = verbalize_phrase(replace(phrase, path=phrase.path[:-1]), rng)
    return rng.choice(phrase.path[-1].phrases).replace("{x}", inner)


@dataclass(frozen=True, slots=True)
class FactTriple:
    """A fact as a sentence states it: subject phrase, relation, value."""

    subject: RelationPhrase
    relation: Relation
    value: str


# Each form with its longest literal: a substring test rules most forms out before they are matched.
_FORMS = tuple(
    (max(_parts(template)[0], key=len), template, relation) for relation in RELATIONS for template in relation.forms
)


def parse_fact_triples(text: str) -> Iterator[FactTriple]:
    """Yield every reading of a sentence core as one relation between a phrase and a value."""
    for literal, template, relation in _FORMS:
        if literal not in text:
            continue
        for slots in match_template(template, text):
            value = parse_object_value(relation, slots["o"])
            # The cheaper test of the value comes first.
            subject = parse_phrase(slots["s"]) if value is not None else None
            if subject is not None and value is not None and phrase_accepts_relation(subject, relation):
                yield FactTriple(subject, relation, value)


def parse_mistyped_facts(text: str) -> Iterator[tuple[RelationPhrase, str]]:
    """Yield every reading of a sentence core as a phrase and its value, whatever the types of both.

    So "the mother of the company X is 1990" is read, which no passage can state.
    """
    for literal, template, relation in _FORMS:
        if literal in text:
            for slots in match_template(template, text):
                value, subject = parse_value_of_any_kind(slots["o"]), parse_phrase(slots["s"], typed=False)
                if value is not None and value.lower() not in PRONOUNS and subject is not None:
                    yield subject.then(relation), value
    for cut in re.finditer(" is ", text):
        head, tail = text[: cut.start()], text[cut.end() :]
        for words, other in ((head, tail), (tail, head)):
            phrase, value = parse_phrase(words, typed=False), parse_value_of_any_kind(other)
            if phrase is not None and phrase.path and value is not None and value.lower() not in PRONOUNS:
                yield phrase, value


def parse_object_value(relation: Relation, text: str) -> str | None:
    """Return the value in an object slot; a pronoun stays as it is until the discourse resolves it."""
    if relation.kind is ValueKind.NAME and text.lower() in PRONOUNS:
        return text.lower()
    return parse_value(relation.kind, text)


def verbalize_fact(triple: FactTriple, rng: Random, subject: str | None = None, form: str | None = None) -> str:
    """Return a sentence core for a fact, its first letter as the form has it."""
    template = form or rng.choice(triple.relation.forms)
    words = subject
    if words is None or (words in PRONOUNS and not template.startswith("{s}")):
        # Pronouns fit only in subject position: not "the mother of she".
        words = verbalize_phrase(triple.subject, rng)
    return template.replace("{s}", words).replace("{o}", draw_surface_form(triple.relation.kind, triple.value, rng))


_BEFORE_VOWEL = re.compile(r"\ba (?=[aeiou])")
_AN = re.compile(r"\ban (?=[aeiou])")


def capitalise_sentence(text: str) -> str:
    """Return the sentence of a core: capital first letter, "an" before a vowel."""
    text = _BEFORE_VOWEL.sub("an ", text)
    return text[:1].upper() + text[1:]


def replace_an_by_a(text: str) -> str:
    """Return the core with "a" for every "an", as templates write it."""
    return _AN.sub("a ", text)


def list_initial_letter_variants(text: str) -> tuple[str, ...]:
    """Return a sentence core as it stands, and with a small first letter."""
    lowered = text[:1].lower() + text[1:]
    return (text,) if lowered == text else (text, lowered)
