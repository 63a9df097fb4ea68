"""What a step asserts, free of its words, and what its pronouns refer to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from eclose.world.language.phrases import PRONOUNS, Phrase
from eclose.world.language.relations import Relation


@dataclass(frozen=True, slots=True)
class FactClaim:
    """The phrase leads to the value. One relation is a fact of a passage, several are an inference."""

    phrase: Phrase
    value: str


@dataclass(frozen=True, slots=True)
class ComparisonClaim:
    """One of two values is smaller, or larger."""

    left: Phrase
    right: Phrase
    """Both end in the attribute that is compared."""
    less: bool


@dataclass(frozen=True, slots=True)
class OrderClaim:
    """The same of two bare values."""

    left: str
    right: str
    less: bool


@dataclass(frozen=True, slots=True)
class ChoiceClaim:
    """One thing has the smallest or largest value of those considered."""

    option: str
    kind: str
    path: tuple[Relation, ...]
    attribute: Relation
    least: bool


@dataclass(frozen=True, slots=True)
class AgreementClaim:
    """Two phrases lead to the same value, or to different ones."""

    left: Phrase
    right: Phrase
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
    """So many calendar years lie between two values."""

    left: Phrase
    right: Phrase
    years: str


@dataclass(frozen=True, slots=True)
class MissingFactClaim:
    """The passages do not say what the phrase leads to."""

    phrase: Phrase


@dataclass(frozen=True, slots=True)
class DenialClaim:
    """A fact does not hold."""

    fact: FactClaim


class IdleStep(StrEnum):
    """A step that asserts nothing: it plans, restates or moves on."""

    PLAN = "plan"
    RESTATEMENT = "restatement"
    TRANSITION = "transition"


Claim: TypeAlias = (
    FactClaim
    | ComparisonClaim
    | OrderClaim
    | ChoiceClaim
    | AgreementClaim
    | SubtractionClaim
    | YearsApartClaim
    | MissingFactClaim
    | DenialClaim
    | IdleStep
)


@dataclass
class Discourse:
    """What has been mentioned last, for the pronouns of the next step."""

    person: str | None = None
    thing: str | None = None

    def resolve(self, phrase: Phrase) -> Phrase | None:
        """The phrase with its pronoun replaced; None when there is nothing it could stand for."""
        if phrase.base not in PRONOUNS:
            return phrase
        found = self.thing if phrase.base == "it" else self.person
        return replace(phrase, base=found) if found else None

    def note(self, claim: Claim) -> None:
        """Remember what a claim mentions."""
        if not isinstance(claim, FactClaim):
            return
        if isinstance(claim.phrase.base, str):
            self._mention(claim.phrase.base, claim.phrase.start_type)
        if claim.phrase.path:
            self._mention(claim.value, claim.phrase.path[-1].object)
        else:
            self._mention(claim.value, "person")

    def _mention(self, name: str, kind: str | None) -> None:
        if kind == "person":
            self.person = name
        elif kind is not None:
            self.thing = name
