"""Claims: the content of a step apart from its wording, and the referents of its pronouns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from eclose_world.language.phrases import PRONOUNS, RelationPhrase
from eclose_world.language.relations import Relation


@dataclass(frozen=True, slots=True)
class FactClaim:
    """The phrase leads to the value. One relation is a fact of a passage, several are an inference."""

    phrase: RelationPhrase
    value: str


@dataclass(frozen=True, slots=True)
class ComparisonClaim:
    """The first of two values is smaller, or larger, than the second."""

    first: RelationPhrase
    second: RelationPhrase
    """Both phrases end in the compared attribute."""
    less: bool


@dataclass(frozen=True, slots=True)
class ValueOrderClaim:
    """The first of two bare values is smaller, or larger, than the second."""

    first: str
    second: str
    less: bool


@dataclass(frozen=True, slots=True)
class SuperlativeClaim:
    """One option has the smallest or largest value of those considered."""

    option: str
    kind: str
    path: tuple[Relation, ...]
    attribute: Relation
    least: bool


@dataclass(frozen=True, slots=True)
class SameValueClaim:
    """Two phrases lead to the same value, or to different ones."""

    first: RelationPhrase
    second: RelationPhrase
    relation: Relation
    same: bool


@dataclass(frozen=True, slots=True)
class SubtractionClaim:
    """The difference of two years."""

    larger: str
    smaller: str
    result: str


@dataclass(frozen=True, slots=True)
class YearsApartClaim:
    """The number of calendar years between two values."""

    first: RelationPhrase
    second: RelationPhrase
    years: str


@dataclass(frozen=True, slots=True)
class MissingFactClaim:
    """The passages do not state the value of the phrase."""

    phrase: RelationPhrase


@dataclass(frozen=True, slots=True)
class NegatedFactClaim:
    """A fact does not hold."""

    fact: FactClaim


@dataclass(frozen=True, slots=True)
class DescriptionClaim:
    """What a named thing is, as the opening of an article says it: a drama film, a screenwriter, a coastal city."""

    name: str
    kind: str
    words: frozenset[str]
    """Genre, industry or occupation, as far as stated."""


class ClaimlessStep(StrEnum):
    """A step without a claim: it plans, restates or moves on."""

    PLAN = "plan"
    RESTATEMENT = "restatement"
    TRANSITION = "transition"


Claim: TypeAlias = (
    FactClaim
    | ComparisonClaim
    | ValueOrderClaim
    | SuperlativeClaim
    | SameValueClaim
    | SubtractionClaim
    | YearsApartClaim
    | MissingFactClaim
    | NegatedFactClaim
    | DescriptionClaim
    | ClaimlessStep
)


@dataclass
class PronounReferents:
    """The person and the thing mentioned last, to which the pronouns of the next step refer."""

    person: str | None = None
    thing: str | None = None
    earlier_thing: str | None = None
    """The thing mentioned before the last one."""

    def resolve(self, phrase: RelationPhrase, value: str | None = None) -> RelationPhrase | None:
        """Return the phrase with its pronoun replaced, None where nothing was mentioned that it could refer to.

        Args:
            phrase: Phrase whose base may be a pronoun.
            value: Value that the claim gives to the phrase. "X lies in Y. It lies in Y.": the pronoun means X.
        """
        # Pronouns stand only at the base of a phrase.
        if phrase.base not in PRONOUNS:
            return phrase
        thing = self.thing if self.thing != value else self.earlier_thing
        referent = thing if phrase.base == "it" else self.person
        return replace(phrase, base=referent) if referent else None

    def record(self, claim: Claim) -> None:
        """Record the names that a claim mentions."""
        if isinstance(claim, DescriptionClaim):
            self._mention(claim.name, claim.kind)
        if not isinstance(claim, FactClaim):
            return
        if isinstance(claim.phrase.base, str):
            self._mention(claim.phrase.base, claim.phrase.start_type)
        if claim.phrase.path:
            self._mention(claim.value, claim.phrase.path[-1].object)
        else:
            # A phrase without a path is a person who did two things.
            self._mention(claim.value, "person")

    def _mention(self, name: str, kind: str | None) -> None:
        if kind == "person":
            self.person = name
        # Dates and numbers have no kind and cannot be referred to.
        elif kind is not None and name != self.thing:
            self.thing, self.earlier_thing = name, self.thing
