"""Sources that cannot be built on, made from good ones: one thing is wrong with each, and nothing about it says so.

Ids, support marks and the number of passages stay as they were. What was planted is for the caller to keep; every
spoilt source is held against the oracle before it is given away, so that it is refused for a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from eclose.core.identity import hash_rank
from eclose.core.instance import Instance, Passage
from eclose.errors import SettingError
from eclose.world.language.phrases import FactTriple, Phrase, capitalise, write_triple
from eclose.world.language.questions import LookupQuestion, read_question
from eclose.world.language.relations import ALIAS
from eclose.world.make.drafts import pick_wrong_answer, reword_statement
from eclose.world.make.families import draw_new_values
from eclose.world.make.instances import WorldItem, make_item
from eclose.world.make.solve import write_answer
from eclose.world.oracle.evidence import EvidenceFact, EvidenceFacts, read_evidence
from eclose.world.oracle.family_conditions import screen_source
from eclose.world.server.faults import hash_to_unit

if TYPE_CHECKING:
    from collections.abc import Iterator

SourceBreaker = Callable[[WorldItem, Random], Instance | None]


class GeneratedSource(NamedTuple):
    """A source, and what is wrong with it; None for a good one."""

    instance: Instance
    kind: str | None


@dataclass(frozen=True, slots=True)
class PlantedDefect:
    """What was planted in a source, as it is kept beside it."""

    instance_id: str
    kind: str | None
    """None for a source that was left as it was."""


def make_sources(profile: str, seed: int, n: int, ineligible: float = 0.3) -> Iterator[GeneratedSource]:
    """So many sources, of which this share is spoilt, in one way or another."""
    if not 0 <= ineligible <= 1:
        raise SettingError("the share of ineligible sources lies between 0 and 1.")
    for index in range(n):
        item = make_item(profile, seed, index)
        spoilt = hash_to_unit("spoil", profile, seed, index) < ineligible
        yield (
            _spoilt(item, Random(hash_rank("spoil", profile, seed, index)))
            if spoilt
            else GeneratedSource(item.instance, None)
        )


def _spoilt(item: WorldItem, rng: Random) -> GeneratedSource:
    kinds = list(BAD_SOURCE_KINDS)
    rng.shuffle(kinds)
    for kind in kinds:
        if (made := make_bad_source(item, kind, rng)) is not None:
            return GeneratedSource(made, kind)
    raise AssertionError("a reference can always be made a wrong one")


def make_bad_source(item: WorldItem, kind: str, rng: Random) -> Instance | None:
    """The item's source with one thing wrong; None where this item does not admit it."""
    if kind not in BAD_SOURCE_KINDS:
        raise SettingError(
            f"there is no way to spoil a source called {kind!r}. Choose from: {', '.join(BAD_SOURCE_KINDS)}."
        )
    made = BAD_SOURCE_KINDS[kind](item, rng)
    return made if made is not None and not _eligible(made) else None


def _eligible(source: Instance) -> bool:
    found = screen_source(source.question, source.evidence, source.accepted_answers)
    return found.defect is None and len(found.support) > 1 and not found.judged.labels["elsewhere"]


def _missing_passage(item: WorldItem, rng: Random) -> Instance | None:
    """A passage that is needed gives way to one about something else, so that nothing follows."""
    if item.instance.benchmark is None:
        return None
    other = make_item(item.instance.benchmark.removeprefix("world-"), rng.randrange(10_000), 0)
    titles = {passage.title for passage in item.instance.evidence}
    strangers = [passage for passage in other.instance.evidence if passage.title not in titles]
    made = _with_passage(item, rng.choice(sorted(item.solution.support)), rng.choice(strangers))
    return None if read_evidence(made.evidence).answers(item.target) else made


def _with_passage(item: WorldItem, place: int, passage: Passage) -> Instance:
    evidence = item.instance.evidence
    kept = replace(passage, id=evidence[place].id)
    return replace(item.instance, evidence=(*evidence[:place], kept, *evidence[place + 1 :]))


def _hops(item: WorldItem) -> list[EvidenceFact]:
    (way,) = read_evidence(item.instance.evidence).answers(item.target)
    return list(dict.fromkeys(way.hops))


def _told(text: str, hop: EvidenceFact, rng: Random, value: str | None = None) -> str:
    """A text with a sentence more, in front of its last one: a fact, as somebody else may tell it."""
    said = FactTriple(Phrase(hop.subject), hop.relation, value or hop.value)
    sentence = capitalise(write_triple(said, rng, subject=hop.subject))
    head, dot, tail = text.removesuffix(".").rpartition(". ")
    return f"{head}{dot}{sentence}. {tail}." if dot else f"{text} {sentence}."


def _second_answer(item: WorldItem, rng: Random) -> Instance | None:
    """A fact gets a second value, and so the question a second answer."""
    hops = [hop for hop in _hops(item) if hop.relation is not ALIAS]
    rng.shuffle(hops)
    for hop in hops:
        place = hop.passages[0]
        passage = item.instance.evidence[place]
        for value in draw_new_values(item.instance.evidence, hop, rng):
            made = _with_passage(item, place, replace(passage, text=_told(passage.text, hop, rng, value)))
            evidence = EvidenceFacts(made.evidence)
            if not evidence.unread and len(evidence.answers(item.target)) > 1:
                return made
    return None


def _broken_link(item: WorldItem, rng: Random) -> Instance | None:
    """What is needed next is told of somebody whom nothing joins to the question."""
    hops = [hop for hop in _hops(item)[:-1] if len(hop.passages) == 1]
    rng.shuffle(hops)
    for hop in hops:
        place = hop.passages[0]
        reading = read_evidence(item.instance.evidence).readings[place]
        told = [one for one in reading.statements if one.relation is hop.relation and one.value == hop.value]
        # The last of the new values is one that nothing is told of.
        value = draw_new_values(item.instance.evidence, hop, rng)[-1]
        found = reword_statement(item.instance.evidence[place], place, told[0], value) if told else None
        if found is not None:
            made = _with_passage(item, place, found.passage)
            if not read_evidence(made.evidence).answers(item.target):
                return made
    return None


def _wrong_reference(item: WorldItem, rng: Random) -> Instance | None:
    """The passages lead to another answer than the reference."""
    hops, target = _hops(item), item.target
    values = draw_new_values(item.instance.evidence, hops[-1], rng) if isinstance(target, LookupQuestion) else []
    other = pick_wrong_answer(target, item.solution.answer, values)
    if other is None:
        return None
    return replace(item.instance, reference_answer=write_answer(target, other, rng), aliases=())


def _malformed_question(item: WorldItem, rng: Random) -> Instance | None:
    """The question lost a part of itself."""
    words = item.instance.question.split()
    for _ in range(20):
        cut = rng.randrange(1, max(2, len(words) - 1))
        question = " ".join(words[:cut]) + "?"
        if read_question(question) is None:
            return replace(item.instance, question=question)
    return None


def _one_passage(item: WorldItem, rng: Random) -> Instance | None:
    """One passage tells all that is needed, so the answer follows from it alone."""
    hops = _hops(item)
    place = hops[0].passages[0]
    text = item.instance.evidence[place].text
    for hop in hops:
        if place not in hop.passages:
            text = _told(text, hop, rng)
    return _with_passage(item, place, replace(item.instance.evidence[place], text=text))


def _told_elsewhere(item: WorldItem, rng: Random) -> Instance | None:
    """Other passages tell all that is needed as well."""
    hops, evidence = _hops(item), item.instance.evidence
    others = [place for place in range(len(evidence)) if place not in item.solution.support]
    rng.shuffle(others)
    if len(others) < len(hops):
        return None
    texts = {place: _told(evidence[place].text, hop, rng) for place, hop in zip(others, hops, strict=False)}
    passages = (replace(p, text=texts.get(place, p.text)) for place, p in enumerate(evidence))
    return replace(item.instance, evidence=tuple(passages))


def _long_answer(item: WorldItem, rng: Random) -> Instance | None:
    """The reference is what the passages say, and not the answer alone."""
    texts = [item.instance.evidence[place].text for place in item.solution.support]
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
"""By what is wrong with the source."""
