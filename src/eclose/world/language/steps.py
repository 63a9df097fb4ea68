"""Steps of a trace as claims, written and read.

A claim says what a step asserts, free of its words. Writing chooses words at random, reading accepts every choice
writing could have made: openers, citations, hedges, pronouns, two claims in one step. What it cannot read is None,
never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from random import Random

from eclose.world.language.claims import (
    AgreementClaim,
    ChoiceClaim,
    Claim,
    ComparisonClaim,
    DenialClaim,
    Discourse,
    FactClaim,
    IdleStep,
    MissingFactClaim,
    OrderClaim,
    SubtractionClaim,
    YearsApartClaim,
)
from eclose.world.language.names import is_woman
from eclose.world.language.phrases import (
    CommonDoer,
    FactTriple,
    Phrase,
    capitalise,
    list_case_variants,
    match_form,
    read_object,
    read_phrase,
    read_triples,
    restore_plain_articles,
    write_phrase,
    write_triple,
)
from eclose.world.language.questions import list_superlatives, read_dated_pair, read_phrase_pair
from eclose.world.language.relations import AGREEMENT_FORMS, COMPARISON_WORDS, ROLE_NOUNS, TYPE_WORDS, Relation
from eclose.world.language.values import PATTERNS, ValueKind, read_answer_value, read_value, write_value

_OPENERS = (
    *("", "", ""),
    "According to passage {n}, ",
    "Passage {n} says that ",
    "The passages say that ",
    "We know that ",
    "It is stated that ",
    "Next, ",
    "It appears that ",
    "Also, ",
)
_CONCLUDERS = ("So ", "So ", "Therefore, ", "It follows that ", "This means that ", "Hence ", "Thus, ", "")
_OPENING = re.compile(
    r"^(?:According to passage \d+, |Passage \d+ says that |The passages say that |We know that |It is stated that |"
    r"Next, |It appears that |Also, |So |Therefore, |It follows that |This means that |Hence |Thus, )"
)
_CITATION = re.compile(r"(?: \[\d+\])+$")
_UNCOVERED = ("the passages do not state {x}", "none of the passages gives {x}", "there is no information about {x}")
_DENIED = "it is not the case that {x}"
_APART = ("the number of years between {x} and {y} is ", "the years that separate {x} from {y} are ")
_IDLE = {
    IdleStep.PLAN: (
        "first, find {x}",
        "we need to identify {x}",
        "let us look for {x}",
        "the next thing to find is {x}",
    ),
    IdleStep.RESTATEMENT: ("the question is about {x}", "the question asks for {x}"),
    IdleStep.TRANSITION: (
        "let us read the passages",
        "here is the reasoning",
        "now to the second part",
        "step by step",
    ),
}
_LESS = {ValueKind.DATE: "earlier than", ValueKind.YEAR: "earlier than"}
_MORE = {ValueKind.DATE: "later than", ValueKind.YEAR: "later than"}


@dataclass
class StepWriter:
    """Writes the steps of one trace."""

    rng: Random
    discourse: Discourse = field(default_factory=Discourse)
    steps: int = 0

    def step(self, claim: Claim, passage: int | None = None, *, conclusion: bool = False) -> str:
        """One step; a passage index may be cited."""
        text = self._core(claim)
        self.discourse.note(claim)
        if isinstance(claim, IdleStep):
            return f"{capitalise(text)}."
        opener = self.rng.choice(_CONCLUDERS if conclusion else _OPENERS)
        if self.steps == 0 and opener in ("Next, ", "Also, "):
            opener = ""
        self.steps += 1
        if "{n}" in opener:
            opener = opener.replace("{n}", str(passage)) if passage is not None else ""
        elif passage is not None and self.rng.random() < 0.6:
            text += f" [{passage}]"
        return capitalise(f"{opener}{text}") + "."

    def joined(self, steps: tuple[str, ...]) -> str:
        """Several steps on one line."""
        return "; ".join(step.removesuffix(".") for step in steps) + "."

    def idle(self, kind: IdleStep, phrase: Phrase) -> str:
        """A step that asserts nothing, about a phrase."""
        return capitalise(self.rng.choice(_IDLE[kind]).replace("{x}", write_phrase(phrase, self.rng))) + "."

    def _core(self, claim: Claim) -> str:
        if isinstance(claim, FactClaim):
            return self._fact(claim)
        if isinstance(claim, DenialClaim):
            return _DENIED.replace("{x}", self._fact(claim.fact))
        if isinstance(claim, MissingFactClaim):
            return self.rng.choice(_UNCOVERED).replace("{x}", write_phrase(claim.phrase, self.rng))
        if isinstance(claim, IdleStep):
            return self.rng.choice(_IDLE[IdleStep.TRANSITION])
        return (
            self._relation_of_two(claim)
            if isinstance(claim, ComparisonClaim | AgreementClaim | YearsApartClaim)
            else self._computed(claim)
        )

    def _relation_of_two(self, claim: ComparisonClaim | AgreementClaim | YearsApartClaim) -> str:
        rng = self.rng
        if isinstance(claim, ComparisonClaim):
            order = COMPARISON_WORDS[claim.left.path[-1]]
            words = rng.choice(order.less if claim.less else order.more)
            left, right = (write_phrase(replace(p, path=p.path[:-1]), rng) for p in (claim.left, claim.right))
            return f"{left} {words} {right}"
        if isinstance(claim, AgreementClaim):
            _, same, different = rng.choice(AGREEMENT_FORMS[claim.relation])
            return self._pair(same if claim.same else different, claim.left, claim.right)
        return self._pair(rng.choice(_APART), claim.left, claim.right) + claim.years

    def _computed(self, claim: OrderClaim | ChoiceClaim | SubtractionClaim) -> str:
        rng = self.rng
        if isinstance(claim, ChoiceClaim):
            return self._chosen(claim)
        if isinstance(claim, SubtractionClaim):
            ways = ("{a} - {b} = {r}", "{a} minus {b} is {r}")
            return rng.choice(ways).format(a=claim.larger, b=claim.smaller, r=claim.result)
        kind = _kind(claim.left)
        words = _LESS.get(kind, "less than") if claim.less else _MORE.get(kind, "more than")
        return f"{write_value(kind, claim.left, rng)} is {words} {write_value(kind, claim.right, rng)}"

    def _pair(self, template: str, left: Phrase, right: Phrase) -> str:
        return template.replace("{x}", write_phrase(left, self.rng)).replace("{y}", write_phrase(right, self.rng))

    def _fact(self, fact: FactClaim) -> str:
        phrase, rng = fact.phrase, self.rng
        last = phrase.path[-1] if phrase.path else None
        kind = last.kind if last else ValueKind.NAME
        if last is None or (len(phrase.path) > 1 and rng.random() < 0.6) or rng.random() < 0.2:
            value = write_value(kind, fact.value, rng)
            words = write_phrase(phrase, rng)
            inverted = kind is ValueKind.NAME and rng.random() < 0.3
            return f"{value} is {words}" if inverted else f"{words} is {value}"
        inner = replace(phrase, path=phrase.path[:-1])
        return write_triple(FactTriple(inner, last, fact.value), rng, subject=self._pronoun(inner))

    def _pronoun(self, subject: Phrase) -> str | None:
        if subject.path or self.rng.random() > 0.3:
            return None
        if subject.base == self.discourse.person and isinstance(subject.base, str):
            return "she" if is_woman(subject.base) else "he"
        return "it" if subject.base == self.discourse.thing else None

    def _chosen(self, claim: ChoiceClaim) -> str:
        words = self.rng.choice(list_superlatives(claim.attribute, least=claim.least))
        if not claim.path:
            return f"{claim.option} {words}"
        noun, kind = ROLE_NOUNS[claim.path[0]], self.rng.choice(TYPE_WORDS[claim.kind])
        return self.rng.choice(
            (f"{claim.option} is the {kind} whose {noun} {words}", f"{claim.option} has the {noun} who {words}")
        )


def _kind(value: str) -> ValueKind:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return ValueKind.DATE
    return ValueKind.YEAR if re.fullmatch(r"1[5-9]\d\d|20\d\d", value) else ValueKind.NUMBER


def read_step(text: str, discourse: Discourse) -> tuple[Claim, ...] | None:
    """The claims of a step, pronouns resolved; None when any part of it cannot be read."""
    claims: list[Claim] = []
    for part in restore_plain_articles(text.strip().removesuffix(".")).split("; "):
        claim = _read_part(part, discourse)
        if claim is None:
            return None
        claims.append(claim)
        discourse.note(claim)
    return tuple(claims)


def _read_part(part: str, discourse: Discourse) -> Claim | None:
    core = _CITATION.sub("", part.strip())
    for text in list_case_variants(core):
        if idle := _read_idle(text):
            return idle
    core = _CITATION.sub("", _OPENING.sub("", core))
    for text in list_case_variants(core):
        claim = _read_core(text)
        if claim is not None:
            return _resolved(claim, discourse)
    return None


@lru_cache(maxsize=4_096)
def _read_idle(text: str) -> IdleStep | None:
    for kind, templates in _IDLE.items():
        for template in templates:
            if template == text:
                return kind
            if "{x}" in template and any(read_phrase(slots["x"]) for slots in match_form(template, text)):
                return kind
    return None


@lru_cache(maxsize=8_192)
def _read_core(text: str) -> Claim | None:
    for slots in match_form(_DENIED, text):
        fact = _read_fact(slots["x"])
        return DenialClaim(fact) if fact else None
    for template in _UNCOVERED:
        for slots in match_form(template, text):
            if phrase := read_phrase(slots["x"]):
                return MissingFactClaim(phrase)
    return (
        _read_arithmetic(text)
        or _read_apart(text)
        or _read_agreed(text)
        or _read_chosen(text)
        or _read_compared(text)
        or _read_fact(text)
    )


_NUMBER = "|".join(PATTERNS[kind] for kind in (ValueKind.DATE, ValueKind.MINUTES, ValueKind.NUMBER))
_ORDERED = re.compile(rf"(?P<a>{_NUMBER}) is (?P<way>earlier|later|less|more) than (?P<b>{_NUMBER})")
_MINUS = re.compile(r"(?P<a>\d+) (?:-|minus) (?P<b>\d+) (?:=|is) (?P<r>\d+)")


def _read_arithmetic(text: str) -> Claim | None:
    if found := _MINUS.fullmatch(text):
        return SubtractionClaim(found["a"], found["b"], found["r"])
    if found := _ORDERED.fullmatch(text):
        return OrderClaim(
            read_answer_value(found["a"]), read_answer_value(found["b"]), less=found["way"] in {"earlier", "less"}
        )
    return None


def _read_apart(text: str) -> YearsApartClaim | None:
    for template in _APART:
        found = re.fullmatch(r"(.* )(\d+)", text)
        if found and (pair := read_dated_pair(template, found[1])):
            return YearsApartClaim(*pair, found[2])
    return None


def _read_agreed(text: str) -> AgreementClaim | None:
    for relation, forms in AGREEMENT_FORMS.items():
        for _, same, different in forms:
            for template, agrees in ((same, True), (different, False)):
                if pair := read_phrase_pair(template, text):
                    return AgreementClaim(*pair, relation, agrees)
    return None


@cache
def _chosen_patterns() -> tuple[tuple[re.Pattern[str], str, tuple[Relation, ...], Relation, bool], ...]:
    found: list[tuple[re.Pattern[str], str, tuple[Relation, ...], Relation, bool]] = []
    for attribute in COMPARISON_WORDS:
        for least in (True, False):
            ways = "|".join(list_superlatives(attribute, least=least))
            found.append((re.compile(f"(?P<o>.+) (?:{ways})"), attribute.subject, (), attribute, least))
            if attribute.subject != "person":
                continue
            for role, noun in ROLE_NOUNS.items():
                kinds = "|".join(TYPE_WORDS[role.subject])
                bridge = f"(?P<o>.+) (?:is the (?:{kinds}) whose {noun}|has the {noun} who) (?:{ways})"
                found.append((re.compile(bridge), role.subject, (role,), attribute, least))
    return tuple(found)


def _read_chosen(text: str) -> ChoiceClaim | None:
    for pattern, kind, path, attribute, least in _chosen_patterns():
        if (found := pattern.fullmatch(text)) and (option := read_value(ValueKind.NAME, found["o"])):
            return ChoiceClaim(option, kind, path, attribute, least)
    return None


def _read_compared(text: str) -> ComparisonClaim | None:
    for attribute, order in COMPARISON_WORDS.items():
        for words, less in ((order.less, True), (order.more, False)):
            for way in words:
                if f" {way} " in text and (pair := read_phrase_pair("{x} " + way + " {y}", text)):
                    left, right = pair
                    return ComparisonClaim(left.then(attribute), right.then(attribute), less)
    return None


def _read_fact(text: str) -> FactClaim | None:
    for said in read_triples(text):
        return FactClaim(said.subject.then(said.relation), said.value)
    for cut in re.finditer(" is ", text):
        head, tail = text[: cut.start()], text[cut.end() :]
        for phrase, value in ((read_phrase(head), tail), (read_phrase(tail), head)):
            if phrase is None or not (phrase.path or isinstance(phrase.base, CommonDoer)):
                continue
            read = read_object(phrase.path[-1], value) if phrase.path else read_value(ValueKind.NAME, value)
            if read is not None:
                return FactClaim(phrase, read)
    return None


def _resolved(claim: Claim, discourse: Discourse) -> Claim | None:
    """The claim with every pronoun replaced by what it stands for; None when one stands for nothing."""
    if isinstance(claim, FactClaim):
        phrase = discourse.resolve(claim.phrase)
        value = discourse.resolve(Phrase(claim.value))
        if phrase is None or value is None or not isinstance(value.base, str):
            return None
        return FactClaim(phrase, value.base)
    if isinstance(claim, DenialClaim):
        fact = _resolved(claim.fact, discourse)
        return DenialClaim(fact) if isinstance(fact, FactClaim) else None
    if isinstance(claim, MissingFactClaim):
        phrase = discourse.resolve(claim.phrase)
        return MissingFactClaim(phrase) if phrase else None
    if isinstance(claim, ComparisonClaim | AgreementClaim | YearsApartClaim):
        left, right = discourse.resolve(claim.left), discourse.resolve(claim.right)
        return replace(claim, left=left, right=right) if left and right else None
    return claim
