"""Steps of a trace as claims, written and read.

A claim is the content of a step apart from its wording. Writing chooses words at random; reading accepts every such
choice: openers, citations, hedges, pronouns, two claims in one step. A step that cannot be read gives None, never a
guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from random import Random
from typing import TYPE_CHECKING

from eclose_world.language import phrases
from eclose_world.language.claims import (
    Claim,
    ClaimlessStep,
    ComparisonClaim,
    DescriptionClaim,
    FactClaim,
    MissingFactClaim,
    NegatedFactClaim,
    PronounReferents,
    SameValueClaim,
    SubtractionClaim,
    SuperlativeClaim,
    ValueOrderClaim,
    YearsApartClaim,
)
from eclose_world.language.names import is_female_name
from eclose_world.language.paraphrases import OPENERS, rewrite_paraphrase
from eclose_world.language.passages import DATED_RELATIONS, parse_opening
from eclose_world.language.questions import list_superlative_wordings, parse_dated_pair, parse_phrase_pair
from eclose_world.language.relations import AGREEMENT_FORMS, COMPARISON_WORDS, ROLE_NOUNS, TYPE_WORDS, Relation
from eclose_world.language.values import PATTERNS, ValueKind, draw_surface_form, parse_answer_value, parse_value

if TYPE_CHECKING:
    from eclose.values.response import Trace

# Repeated entries are weights: steps without an opener are the most frequent.
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
CONCLUSION_OPENERS = ("So ", "Therefore, ", "It follows that ", "This means that ", "Hence ", "Thus, ")
_CONCLUDERS = ("So ", "So ", "Therefore, ", "It follows that ", "This means that ", "Hence ", "Thus, ", "")
# Every opener and conclusion word above must also be listed here, or steps do not read back.
_OPENING = re.compile(
    r"^(?:According to passage \d+, |Passage \d+ says that |The passages say that |We know that |It is stated that |"
    r"Next, |It appears that |Also, |So |Therefore, |It follows that |This means that |Hence |Thus, )"
)
_CITATION = re.compile(r"(?: \[\d+\])+$")
# Joined steps are separated by "; ", sentences by ". "; no name contains either.
_PART_END = re.compile(r"; |\. (?=[A-Z])")
_UNCOVERED = ("the passages do not state {x}", "none of the passages gives {x}", "there is no information about {x}")
_DENIED = "it is not the case that {x}"
_APART = ("the number of years between {x} and {y} is ", "the years that separate {x} from {y} are ")
_IDLE = {
    ClaimlessStep.PLAN: (
        "first, find {x}",
        "we need to identify {x}",
        "let us look for {x}",
        "the next thing to find is {x}",
    ),
    ClaimlessStep.RESTATEMENT: ("the question is about {x}", "the question asks for {x}"),
    ClaimlessStep.TRANSITION: (
        "let us read the passages",
        "here is the reasoning",
        "now to the second part",
        "step by step",
    ),
}
_LESS = {ValueKind.DATE: "earlier than", ValueKind.YEAR: "earlier than"}
_MORE = {ValueKind.DATE: "later than", ValueKind.YEAR: "later than"}


@dataclass
class TraceStepWriter:
    """Writer of the steps of one trace."""

    rng: Random
    discourse: PronounReferents = field(default_factory=PronounReferents)
    steps: int = 0

    def write_step(
        self, claim: Claim, passage: int | None = None, *, conclusion: bool = False, opener: str | None = None
    ) -> str:
        """Return the sentence of a claim; ``passage`` is the index of a passage to cite, ``opener`` its first words."""
        text = self._write_claim(claim)
        self.discourse.record(claim)
        if isinstance(claim, ClaimlessStep):
            return f"{phrases.capitalise_sentence(text)}."
        if opener is None:
            opener = self.rng.choice(_CONCLUDERS if conclusion else _OPENERS)
        # The opener is drawn in any case, so the stream does not depend on the position of the step.
        if self.steps == 0 and opener in ("Next, ", "Also, "):
            opener = ""
        self.steps += 1
        # An opener that cites a passage replaces the citation in brackets.
        if "{n}" in opener:
            opener = opener.replace("{n}", str(passage)) if passage is not None else ""
        elif passage is not None and self.rng.random() < 0.6:
            text += f" [{passage}]"
        return phrases.capitalise_sentence(f"{opener}{text}") + "."

    def join_steps(self, steps: tuple[str, ...]) -> str:
        """Return several steps as one line."""
        return "; ".join(step.removesuffix(".") for step in steps) + "."

    def write_idle_step(self, kind: ClaimlessStep, phrase: phrases.RelationPhrase) -> str:
        """Return a step without a claim, about a phrase."""
        return (
            phrases.capitalise_sentence(
                self.rng.choice(_IDLE[kind]).replace("{x}", phrases.verbalize_phrase(phrase, self.rng))
            )
            + "."
        )

    def _write_claim(self, claim: Claim) -> str:
        if isinstance(claim, DescriptionClaim):
            raise TypeError("the world writes no descriptions in steps")
        if isinstance(claim, FactClaim):
            return self._write_fact(claim)
        if isinstance(claim, NegatedFactClaim):
            return _DENIED.replace("{x}", self._write_fact(claim.fact))
        if isinstance(claim, MissingFactClaim):
            return self.rng.choice(_UNCOVERED).replace("{x}", phrases.verbalize_phrase(claim.phrase, self.rng))
        if isinstance(claim, ClaimlessStep):
            return self.rng.choice(_IDLE[ClaimlessStep.TRANSITION])
        return (
            self._write_pair_claim(claim)
            if isinstance(claim, ComparisonClaim | SameValueClaim | YearsApartClaim)
            else self._write_computed_claim(claim)
        )

    def _write_pair_claim(self, claim: ComparisonClaim | SameValueClaim | YearsApartClaim) -> str:
        rng = self.rng
        if isinstance(claim, ComparisonClaim):
            order = COMPARISON_WORDS[claim.first.path[-1]]
            words = rng.choice(order.less if claim.less else order.more)
            first, second = (
                phrases.verbalize_phrase(replace(p, path=p.path[:-1]), rng) for p in (claim.first, claim.second)
            )
            return f"{first} {words} {second}"
        if isinstance(claim, SameValueClaim):
            _, same, different = rng.choice(AGREEMENT_FORMS[claim.relation])
            return self._fill_pair(same if claim.same else different, claim.first, claim.second)
        return self._fill_pair(rng.choice(_APART), claim.first, claim.second) + claim.years

    def _write_computed_claim(self, claim: ValueOrderClaim | SuperlativeClaim | SubtractionClaim) -> str:
        rng = self.rng
        if isinstance(claim, SuperlativeClaim):
            return self._write_choice(claim)
        if isinstance(claim, SubtractionClaim):
            templates = ("{a} - {b} = {r}", "{a} minus {b} is {r}")
            return rng.choice(templates).format(a=claim.larger, b=claim.smaller, r=claim.result)
        kind = _guess_kind(claim.first)
        words = _LESS.get(kind, "less than") if claim.less else _MORE.get(kind, "more than")
        return f"{draw_surface_form(kind, claim.first, rng)} is {words} {draw_surface_form(kind, claim.second, rng)}"

    def _fill_pair(self, template: str, first: phrases.RelationPhrase, second: phrases.RelationPhrase) -> str:
        return template.replace("{x}", phrases.verbalize_phrase(first, self.rng)).replace(
            "{y}", phrases.verbalize_phrase(second, self.rng)
        )

    def _write_fact(self, fact: FactClaim) -> str:
        phrase, rng = fact.phrase, self.rng
        last = phrase.path[-1] if phrase.path else None
        kind = last.kind if last else ValueKind.NAME
        if last is None or (len(phrase.path) > 1 and rng.random() < 0.6) or rng.random() < 0.2:
            value = draw_surface_form(kind, fact.value, rng)
            words = phrases.verbalize_phrase(phrase, rng)
            inverted = kind is ValueKind.NAME and rng.random() < 0.3
            return f"{value} is {words}" if inverted else f"{words} is {value}"
        # "the director of X was born in Y": the last relation is the sentence, the others are its subject.
        inner = replace(phrase, path=phrase.path[:-1])
        return phrases.verbalize_fact(phrases.FactTriple(inner, last, fact.value), rng, subject=self._pronoun(inner))

    def _pronoun(self, subject: phrases.RelationPhrase) -> str | None:
        # 30 % of repeated subjects become pronouns.
        if subject.path or self.rng.random() > 0.3:
            return None
        if subject.base == self.discourse.person and isinstance(subject.base, str):
            return "she" if is_female_name(subject.base) else "he"
        return "it" if subject.base == self.discourse.thing else None

    def _write_choice(self, claim: SuperlativeClaim) -> str:
        words = self.rng.choice(list_superlative_wordings(claim.attribute, least=claim.least))
        if not claim.path:
            return f"{claim.option} {words}"
        noun, kind = ROLE_NOUNS[claim.path[0]], self.rng.choice(TYPE_WORDS[claim.kind])
        return self.rng.choice(
            (f"{claim.option} is the {kind} whose {noun} {words}", f"{claim.option} has the {noun} who {words}")
        )


def _guess_kind(value: str) -> ValueKind:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return ValueKind.DATE
    # Numbers from 1500 to 2099 count as years.
    return ValueKind.YEAR if re.fullmatch(r"1[5-9]\d\d|20\d\d", value) else ValueKind.NUMBER


def parse_step_claims(text: str, discourse: PronounReferents) -> tuple[Claim, ...] | None:
    """Return the claims of a step with pronouns resolved, None where a part cannot be read."""
    claims: list[Claim] = []
    for part in _PART_END.split(phrases.replace_an_by_a(text.strip().removesuffix("."))):
        part_claims = _read_part(part, discourse) or _read_paraphrase(part, discourse)
        if part_claims is None:
            return None
        claims += part_claims
    return tuple(claims)


def _read_part(part: str, discourse: PronounReferents) -> tuple[Claim, ...] | None:
    """Return the claims of a part in wordings of the grammar; later parts may refer to them."""
    core = _CITATION.sub("", part.strip())
    for text in phrases.list_initial_letter_variants(core):
        if idle := _read_idle(text):
            return (idle,)
    # "Passage 3 says that X [3]": the citation goes first, then the opener.
    core = _CITATION.sub("", _OPENING.sub("", core))
    for text in phrases.list_initial_letter_variants(core):
        claim = _read_core(text)
        if claim is not None:
            resolved = _resolve_pronouns(claim, discourse)
            if resolved is None:
                return None
            discourse.record(resolved)
            return (resolved,)
    return None


def _read_paraphrase(part: str, discourse: PronounReferents) -> tuple[Claim, ...] | None:
    """Return the claims of a part that the world's writer would word otherwise, None where it cannot be read."""
    core = _CITATION.sub("", part.strip())
    core = OPENERS.sub("", _OPENING.sub("", core))
    if description := _read_description(core):
        for claim in description:
            discourse.record(claim)
        return description
    for variant in phrases.list_initial_letter_variants(core):
        for text in rewrite_paraphrase(variant):
            claims = [_read_part(part, discourse) or _read_description(part) for part in text.split("; ")]
            if None not in claims:
                return tuple(claim for part_claims in claims if part_claims for claim in part_claims)
    return _read_mistyped(core, discourse)


def _read_mistyped(core: str, discourse: PronounReferents) -> tuple[Claim, ...] | None:
    """Return a fact whose subject or value is of a type that its relation does not have.

    None where the words can be read as several facts.
    """
    for variant in phrases.list_initial_letter_variants(core):
        for text in rewrite_paraphrase(variant):
            facts = {(phrase.base, phrase.path, value): phrase for phrase, value in phrases.parse_mistyped_facts(text)}
            if len(facts) != 1:
                continue
            ((_, _, value), phrase) = next(iter(facts.items()))
            claim = _resolve_pronouns(FactClaim(phrase, value), discourse)
            # What the next pronoun refers to is not known: the types of both names are not.
            discourse.person = discourse.thing = discourse.earlier_thing = None
            return None if claim is None else (claim,)
    return None


def _read_description(core: str) -> tuple[Claim, ...] | None:
    """Return the claims of a step that is worded like the opening of an article."""
    opening = parse_opening(core)
    subject = phrases.parse_phrase(opening.name) if opening else None
    # Pronouns and phrases such as "the writer of X" are not names.
    name = subject.base if subject and not subject.path else None
    if opening is None or not isinstance(name, str) or name in phrases.PRONOUNS:
        return None
    facts = (FactClaim(phrases.RelationPhrase(name, (fact.relation,)), fact.value) for fact in opening.statements)
    return (DescriptionClaim(name, opening.kind, opening.words), *facts)


@lru_cache(maxsize=4_096)
def _read_idle(text: str) -> ClaimlessStep | None:
    for kind, templates in _IDLE.items():
        for template in templates:
            # Transitions have no slot.
            if template == text:
                return kind
            if "{x}" in template and any(
                phrases.parse_phrase(slots["x"]) for slots in phrases.match_template(template, text)
            ):
                return kind
    return None


@lru_cache(maxsize=8_192)
def _read_core(text: str) -> Claim | None:
    # A denial wraps a fact, so it is read before all other forms.
    for slots in phrases.match_template(_DENIED, text):
        fact = _read_fact(slots["x"])
        return NegatedFactClaim(fact) if fact else None
    for template in _UNCOVERED:
        for slots in phrases.match_template(template, text):
            if phrase := phrases.parse_phrase(slots["x"]):
                return MissingFactClaim(phrase)
    # From narrow to wide forms: a fact is tried last, since "X is Y" matches most sentences.
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
    if matched := _MINUS.fullmatch(text):
        return SubtractionClaim(matched["a"], matched["b"], matched["r"])
    if matched := _ORDERED.fullmatch(text):
        return ValueOrderClaim(
            parse_answer_value(matched["a"]),
            parse_answer_value(matched["b"]),
            less=matched["way"] in {"earlier", "less"},
        )
    return None


def _read_apart(text: str) -> YearsApartClaim | None:
    for template in _APART:
        ending = re.fullmatch(r"(.* )(\d+)", text)
        if ending and (pair := parse_dated_pair(template, ending[1])):
            return YearsApartClaim(*pair, ending[2])
    return None


def _read_agreed(text: str) -> SameValueClaim | None:
    for relation, forms in AGREEMENT_FORMS.items():
        for _, same, different in forms:
            for template, agrees in ((same, True), (different, False)):
                if pair := parse_phrase_pair(template, text):
                    return SameValueClaim(*pair, relation, agrees)
    return None


@cache
def _choice_patterns() -> tuple[tuple[re.Pattern[str], str, tuple[Relation, ...], Relation, bool], ...]:
    patterns: list[tuple[re.Pattern[str], str, tuple[Relation, ...], Relation, bool]] = []
    for attribute in COMPARISON_WORDS:
        for least in (True, False):
            superlatives = "|".join(list_superlative_wordings(attribute, least=least))
            patterns.append((re.compile(f"(?P<o>.+) (?:{superlatives})"), attribute.subject, (), attribute, least))
            if attribute.subject != "person":
                continue
            for role, noun in ROLE_NOUNS.items():
                kinds = "|".join(TYPE_WORDS[role.subject])
                bridge = f"(?P<o>.+) (?:is the (?:{kinds}) whose {noun}|has the {noun} who) (?:{superlatives})"
                patterns.append((re.compile(bridge), role.subject, (role,), attribute, least))
    return tuple(patterns)


def _read_chosen(text: str) -> SuperlativeClaim | None:
    for pattern, kind, path, attribute, least in _choice_patterns():
        if (matched := pattern.fullmatch(text)) and (option := parse_value(ValueKind.NAME, matched["o"])):
            return SuperlativeClaim(option, kind, path, attribute, least)
    return None


def _read_compared(text: str) -> ComparisonClaim | None:
    for attribute, order in COMPARISON_WORDS.items():
        for wordings, less in ((order.less, True), (order.more, False)):
            for wording in wordings:
                if f" {wording} " in text and (pair := parse_phrase_pair("{x} " + wording + " {y}", text)):
                    first, second = pair
                    return ComparisonClaim(first.then(attribute), second.then(attribute), less)
    return None


def _read_fact(text: str) -> FactClaim | None:
    for triple in phrases.parse_fact_triples(text):
        return FactClaim(triple.subject.then(triple.relation), triple.value)
    # "the director of X is Y" or "Y is the director of X", at any " is " or " was ".
    for cut in re.finditer(" (is|was) ", text):
        head, tail = text[: cut.start()], text[cut.end() :]
        for phrase, value in ((phrases.parse_phrase(head), tail), (phrases.parse_phrase(tail), head)):
            if phrase is None or not (phrase.path or isinstance(phrase.base, phrases.PersonOfTwoDeeds)):
                continue
            # "the seat of X was Y" may mean a former seat.
            if cut[1] == "was" and phrase.path and phrase.path[-1] in DATED_RELATIONS:
                continue
            read_back = (
                phrases.parse_object_value(phrase.path[-1], value)
                if phrase.path
                else parse_value(ValueKind.NAME, value)
            )
            if read_back is not None:
                return FactClaim(phrase, read_back)
    return None


def _resolve_pronouns(claim: Claim, discourse: PronounReferents) -> Claim | None:
    if isinstance(claim, FactClaim):
        phrase = discourse.resolve(claim.phrase, claim.value)
        value = discourse.resolve(phrases.RelationPhrase(claim.value))
        if phrase is None or value is None or not isinstance(value.base, str):
            return None
        return FactClaim(phrase, value.base)
    if isinstance(claim, NegatedFactClaim):
        fact = _resolve_pronouns(claim.fact, discourse)
        return NegatedFactClaim(fact) if isinstance(fact, FactClaim) else None
    if isinstance(claim, MissingFactClaim):
        phrase = discourse.resolve(claim.phrase)
        return MissingFactClaim(phrase) if phrase else None
    if isinstance(claim, ComparisonClaim | SameValueClaim | YearsApartClaim):
        first, second = discourse.resolve(claim.first), discourse.resolve(claim.second)
        return replace(claim, first=first, second=second) if first and second else None
    return claim


def parse_trace_claims(trace: Trace) -> list[Claim] | None:
    """Return all claims of a trace, None where a step cannot be read."""
    # Pronouns refer across steps, so the discourse spans the trace.
    discourse = PronounReferents()
    claims: list[Claim] = []
    for text in trace.texts:
        step_claims = parse_step_claims(text, discourse)
        if step_claims is None:
            return None
        claims += step_claims
    return claims
