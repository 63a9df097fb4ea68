"""Conversion of HotpotQA records, in the official layout or that of Hugging Face tables.

Sentences of HotpotQA start with their own blank, so a passage is its sentences joined without a separator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.benchmarks import conversion
from eclose.core.instance import Instance, Passage
from eclose.store.records.jsonl import parse_dataclass

if TYPE_CHECKING:
    from eclose.benchmarks.conversion import ConvertedRecord
    from eclose.store.records.json_reader import JsonObject

HOTPOT_BENCHMARK = "HotpotQA"
_HOPS = 2  # by construction: a bridge or a comparison of two articles

HotpotParagraph = tuple[str, list[str]]
SupportingFact = tuple[str, int]


@dataclass(frozen=True, slots=True)
class HotpotRecord:
    """The fields of a HotpotQA record that are used."""

    question: str
    context: list[HotpotParagraph] = field(metadata={"shape": "[title, [sentences]]"})
    supporting_facts: list[SupportingFact] | None = field(default=None, metadata={"shape": "[title, sentence number]"})
    answer: str | None = None
    type: str | None = None


def convert_hotpot_record(record: JsonObject) -> ConvertedRecord:
    """Return a HotpotQA record as an instance."""
    repairs: list[str] = []
    raw = parse_dataclass(HotpotRecord, to_official_hotpot_layout(record), extra="ignore")
    support = find_supporting_passages(raw.context, raw.supporting_facts, repairs)
    instance = Instance(
        id=conversion.read_record_id(conversion.first_present_column(record, ("_id", "id")), repairs),
        question=raw.question,
        evidence=conversion.drop_blank_passages(build_hotpot_passages(raw.context, separator=""), support, repairs),
        reference_answer=conversion.read_reference_answer(raw.answer, repairs),
        benchmark=HOTPOT_BENCHMARK,
        support_ids=support,
        kind=raw.type or None,
        hops=_HOPS,
    )
    return conversion.finish_record_conversion(instance, repairs, HOTPOT_BENCHMARK)


def to_official_hotpot_layout(record: JsonObject) -> JsonObject:
    """Return the record in the official layout, its Hugging Face tables turned into rows."""
    record = conversion.columns_to_rows(record, "context", ("title", "sentences"))
    return conversion.columns_to_rows(record, "supporting_facts", ("title", "sent_id"))


def build_hotpot_passages(context: list[HotpotParagraph], *, separator: str) -> list[Passage]:
    """Return the paragraphs as passages, each with its index as id: titles may repeat within a record."""
    return [Passage(str(index), title, separator.join(sentences)) for index, (title, sentences) in enumerate(context)]


def find_supporting_passages(
    context: list[HotpotParagraph], facts: list[SupportingFact] | None, repairs: list[str]
) -> tuple[str, ...] | None:
    """Return the ids of the passages with a supporting fact; None for a split without facts.

    Facts name titles. Where several passages share the title all of them count, since the file cannot tell them apart.
    """
    # An empty list means the same: every question of a labelled split has supporting facts.
    if not facts:
        return None
    supporting: set[int] = set()
    for title, sentence in facts:
        indices = [index for index, (name, _) in enumerate(context) if name == title]
        if not indices:
            repairs.append(conversion.SUPPORT_ABSENT)
        # The sentence number matters to no later step, so a passage with a wrong one still counts as supporting.
        elif not any(0 <= sentence < len(context[index][1]) for index in indices):
            repairs.append(conversion.SENTENCE_ABSENT)
        if len(indices) > 1:
            repairs.append(conversion.SUPPORT_SHARED)
        supporting.update(indices)
    return tuple(str(index) for index in sorted(supporting))
