"""Sources that cannot be built on, made from good ones by one change that nothing marks.

Ids, support marks and the number of passages stay the same. Every bad source is checked by the oracle, so that it is
refused for a reason; the planted defect is returned beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from eclose.errors import SettingError
from eclose.values.identity import hash_sort_key
from eclose.values.instance import Instance, Passage
from eclose_world.language.phrases import FactTriple, RelationPhrase, capitalise_sentence, verbalize_fact
from eclose_world.language.questions import LookupQuestion, parse_question
from eclose_world.language.relations import ALIAS
from eclose_world.make.drafts import pick_wrong_answer, replace_statement_value
from eclose_world.make.families import draw_replacement_values
from eclose_world.make.instances import WorldItem, make_world_item
from eclose_world.make.solve import verbalize_answer
from eclose_world.oracle.evidence import EvidenceFact, EvidenceFacts, parse_evidence_facts
from eclose_world.oracle.family_conditions import screen_source
from eclose_world.server.faults import hash_to_unit_interval

if TYPE_CHECKING:
    from collections.abc import Iterator

SourceBreaker = Callable[[WorldItem, Random], Instance | None]


class SourceWithDefect(NamedTuple):
    """A source and its defect; None for a good one."""

    instance: Instance
    kind: str | None


@dataclass(frozen=True, slots=True)
class PlantedSourceDefect:
    """The defect of a source, as written to the file beside it."""

    instance_id: str
    kind: str | None
    """None for an unchanged source."""


def make_world_sources(profile: str, seed: int, n: int, ineligible: float = 0.3) -> Iterator[SourceWithDefect]:
    """Yield ``n`` sources, of which the share ``ineligible`` has a defect."""
    if not 0 <= ineligible <= 1:
        raise SettingError("the share of ineligible sources must be between 0 and 1 (--ineligible).")
    for index in range(n):
        item = make_world_item(profile, seed, index)
        # "spoil" is part of the seed: changing it changes every source.
        bad = hash_to_unit_interval("spoil", profile, seed, index) < ineligible
        yield (
            _make_any_bad_source(item, Random(hash_sort_key("spoil", profile, seed, index)))
            if bad
            else SourceWithDefect(item.instance, None)
        )


def _make_any_bad_source(item: WorldItem, rng: Random) -> SourceWithDefect:
    kinds = list(BAD_SOURCE_KINDS)
    # The first kind that the item admits, in random order.
    rng.shuffle(kinds)
    for kind in kinds:
        if (source := make_bad_source(item, kind, rng)) is not None:
            return SourceWithDefect(source, kind)
    raise AssertionError("a reference can always be made a wrong one")


def make_bad_source(item: WorldItem, kind: str, rng: Random) -> Instance | None:
    """Return the item's source with one defect, None where the item does not admit it."""
    if kind not in BAD_SOURCE_KINDS:
        raise SettingError(f"unknown kind of bad source {kind!r}. Choose from: {', '.join(BAD_SOURCE_KINDS)}.")
    source = BAD_SOURCE_KINDS[kind](item, rng)
    return source if source is not None and not _is_eligible(source) else None


def _is_eligible(source: Instance) -> bool:
    screening = screen_source(source.question, source.evidence, source.accepted_answers)
    # The conditions of appendix B.2.
    return screening.defect is None and len(screening.support) > 1 and not screening.conditions.labels["elsewhere"]


def _missing_passage(item: WorldItem, rng: Random) -> Instance | None:
    """Replace a needed passage by one about something else, so that no answer follows."""
    if item.instance.benchmark is None:
        return None
    # Another item of the same profile: its passages have the usual length and style, so only their content is wrong.
    other = make_world_item(item.instance.benchmark.removeprefix("world-"), rng.randrange(10_000), 0)
    titles = {passage.title for passage in item.instance.evidence}
    strangers = [passage for passage in other.instance.evidence if passage.title not in titles]
    source = _with_passage(item, rng.choice(sorted(item.solution.support)), rng.choice(strangers))
    return None if parse_evidence_facts(source.evidence).find_answers(item.target) else source


def _with_passage(item: WorldItem, index: int, passage: Passage) -> Instance:
    evidence = item.instance.evidence
    replacement = replace(passage, id=evidence[index].id)
    return replace(item.instance, evidence=(*evidence[:index], replacement, *evidence[index + 1 :]))


def _hops(item: WorldItem) -> list[EvidenceFact]:
    (derivation,) = parse_evidence_facts(item.instance.evidence).find_answers(item.target)
    return list(dict.fromkeys(derivation.hops))


def _insert_fact(text: str, hop: EvidenceFact, rng: Random, value: str | None = None) -> str:
    """Return the text with a fact inserted before its last sentence."""
    triple = FactTriple(RelationPhrase(hop.subject), hop.relation, value or hop.value)
    sentence = capitalise_sentence(verbalize_fact(triple, rng, subject=hop.subject))
    head, dot, tail = text.removesuffix(".").rpartition(". ")
    return f"{head}{dot}{sentence}. {tail}." if dot else f"{text} {sentence}."


def _second_answer(item: WorldItem, rng: Random) -> Instance | None:
    """Give a fact a second value, and so the question a second answer."""
    hops = [hop for hop in _hops(item) if hop.relation is not ALIAS]
    rng.shuffle(hops)
    for hop in hops:
        index = hop.passages[0]
        passage = item.instance.evidence[index]
        for value in draw_replacement_values(item.instance.evidence, hop, rng):
            source = _with_passage(item, index, replace(passage, text=_insert_fact(passage.text, hop, rng, value)))
            evidence = EvidenceFacts(source.evidence)
            if not evidence.unread and len(evidence.find_answers(item.target)) > 1:
                return source
    return None


def _broken_link(item: WorldItem, rng: Random) -> Instance | None:
    """Change a link, so that the next fact is about an entity not joined to the question."""
    hops = [hop for hop in _hops(item)[:-1] if len(hop.passages) == 1]
    rng.shuffle(hops)
    for hop in hops:
        index = hop.passages[0]
        reading = parse_evidence_facts(item.instance.evidence).readings[index]
        stated = [
            statement
            for statement in reading.statements
            if statement.relation is hop.relation and statement.value == hop.value
        ]
        # The last new value is an unused name, about which no passage states anything.
        value = draw_replacement_values(item.instance.evidence, hop, rng)[-1]
        rewording = replace_statement_value(item.instance.evidence[index], index, stated[0], value) if stated else None
        if rewording is not None:
            source = _with_passage(item, index, rewording.passage)
            if not parse_evidence_facts(source.evidence).find_answers(item.target):
                return source
    return None


def _wrong_reference(item: WorldItem, rng: Random) -> Instance | None:
    hops, target = _hops(item), item.target
    values = (
        draw_replacement_values(item.instance.evidence, hops[-1], rng) if isinstance(target, LookupQuestion) else []
    )
    other = pick_wrong_answer(target, item.solution.answer, values)
    if other is None:
        return None
    return replace(item.instance, reference_answer=verbalize_answer(target, other, rng), aliases=())


def _malformed_question(item: WorldItem, rng: Random) -> Instance | None:
    words = item.instance.question.split()
    # Some cuts leave a readable question.
    for _ in range(20):
        cut = rng.randrange(1, max(2, len(words) - 1))
        question = " ".join(words[:cut]) + "?"
        if parse_question(question) is None:
            return replace(item.instance, question=question)
    return None


def _one_passage(item: WorldItem, rng: Random) -> Instance | None:
    """State all needed facts in one passage, so that the answer follows from it alone."""
    hops = _hops(item)
    index = hops[0].passages[0]
    text = item.instance.evidence[index].text
    for hop in hops:
        if index not in hop.passages:
            text = _insert_fact(text, hop, rng)
    return _with_passage(item, index, replace(item.instance.evidence[index], text=text))


def _told_elsewhere(item: WorldItem, rng: Random) -> Instance | None:
    hops, evidence = _hops(item), item.instance.evidence
    others = [index for index in range(len(evidence)) if index not in item.solution.support]
    rng.shuffle(others)
    if len(others) < len(hops):
        return None
    texts = {index: _insert_fact(evidence[index].text, hop, rng) for index, hop in zip(others, hops, strict=False)}
    passages = (replace(passage, text=texts.get(index, passage.text)) for index, passage in enumerate(evidence))
    return replace(item.instance, evidence=tuple(passages))


def _long_answer(item: WorldItem, rng: Random) -> Instance | None:
    texts = [item.instance.evidence[index].text for index in item.solution.support]
    rng.shuffle(texts)
    return replace(item.instance, reference_answer=" ".join(texts), aliases=())


BAD_SOURCE_KINDS: Mapping[str, SourceBreaker] = {
    "missing_passage": _missing_passage,
    "second_answer": _second_answer,
    "broken_link": _broken_link,
    "wrong_reference": _wrong_reference,
    "malformed_question": _malformed_question,
    "one_passage": _one_passage,
    "told_elsewhere": _told_elsewhere,
    "long_answer": _long_answer,
}
"""Makers of bad sources, by kind of defect."""
