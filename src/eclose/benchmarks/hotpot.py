"""HotpotQA records, official or as Hugging Face tables have them.

Its sentences carry their own leading blanks, so a passage is its sentences joined by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.benchmarks import conversion
from eclose.core.instance import Instance, Passage
from eclose.store.records.jsonl import parse_record

if TYPE_CHECKING:
    from eclose.benchmarks.conversion import ConvertedRecord
    from eclose.store.records.json_reader import JsonObject

BENCHMARK = "HotpotQA"
_HOPS = 2  # by construction: a bridge or a comparison of two articles

HotpotParagraph = tuple[str, list[str]]
SupportingFact = tuple[str, int]


@dataclass(frozen=True, slots=True)
class HotpotRecord:
    """The fields we read."""

    question: str
    context: list[HotpotParagraph] = field(metadata={"shape": "[title, [sentences]]"})
    supporting_facts: list[SupportingFact] | None = field(default=None, metadata={"shape": "[title, sentence number]"})
    answer: str | None = None
    type: str | None = None


def convert_record(record: JsonObject) -> ConvertedRecord:
    """One record as an instance."""
    repairs: list[str] = []
    raw = parse_record(HotpotRecord, to_official_layout(record), extra="ignore")
    support = find_support_ids(raw.context, raw.supporting_facts, repairs)
    instance = Instance(
        id=conversion.read_id(conversion.first_present(record, ("_id", "id")), repairs),
        question=raw.question,
        evidence=conversion.drop_blank_passages(build_passages(raw.context, joint=""), support, repairs),
        reference_answer=conversion.read_answer(raw.answer, repairs),
        benchmark=BENCHMARK,
        support_ids=support,
        kind=raw.type or None,
        hops=_HOPS,
    )
    return conversion.finish_conversion(instance, repairs, BENCHMARK)


def to_official_layout(record: JsonObject) -> JsonObject:
    """The record in its official layout."""
    record = conversion.zip_columns(record, "context", ("title", "sentences"))
    return conversion.zip_columns(record, "supporting_facts", ("title", "sent_id"))


def build_passages(context: list[HotpotParagraph], *, joint: str) -> list[Passage]:
    """Paragraphs as passages, each with its place as its id."""
    return [Passage(str(place), title, joint.join(sentences)) for place, (title, sentences) in enumerate(context)]


def find_support_ids(
    context: list[HotpotParagraph], facts: list[SupportingFact] | None, repairs: list[str]
) -> tuple[str, ...] | None:
    """The passages with at least one supporting fact; None for a split that does not tell.

    Facts name titles. Where a title occurs twice all its passages count, since the file does not say which is meant.
    """
    if not facts:
        return None
    marked: set[int] = set()
    for title, sentence in facts:
        places = [place for place, (name, _) in enumerate(context) if name == title]
        if not places:
            repairs.append(conversion.SUPPORT_ABSENT)
        elif not any(0 <= sentence < len(context[place][1]) for place in places):
            repairs.append(conversion.SENTENCE_ABSENT)
        if len(places) > 1:
            repairs.append(conversion.SUPPORT_SHARED)
        marked.update(places)
    return tuple(str(place) for place in sorted(marked))
