"""MuSiQue records, answerable or not.

Titles repeat within a record, also between gold and distractor, so passages are known by their ``idx``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.benchmarks import conversion
from eclose.core.instance import Instance, Passage
from eclose.errors import RecordError
from eclose.store.records.jsonl import parse_record

if TYPE_CHECKING:
    from eclose.benchmarks.conversion import ConvertedRecord
    from eclose.store.records.json_reader import JsonObject

BENCHMARK = "MuSiQue"
UNANSWERABLE = "unanswerable"

_SHAPE = re.compile(r"(?P<shape>(?P<hops>[1-9])hop\d?)__")


@dataclass(frozen=True, slots=True)
class MusiqueParagraph:
    """One paragraph, supporting or not; a test split does not tell."""

    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool | None = None


@dataclass(frozen=True, slots=True)
class MusiqueRecord:
    """The fields we read."""

    question: str
    paragraphs: list[MusiqueParagraph] = field(metadata={"shape": "{idx, title, paragraph_text, is_supporting}"})
    question_decomposition: list[dict[str, Any]] | None = None
    answer: str | None = None
    answer_aliases: list[str] | None = None
    answerable: bool | None = None


def convert_record(record: JsonObject) -> ConvertedRecord:
    """One record as an instance; an unanswerable twin is set aside."""
    repairs: list[str] = []
    raw = parse_record(MusiqueRecord, record, extra="ignore")
    id_ = conversion.read_id(record.get("id"), repairs)
    answer = conversion.read_answer(raw.answer, repairs)
    support = _support_ids(raw.paragraphs)
    passages = (Passage(str(paragraph.idx), paragraph.title, paragraph.paragraph_text) for paragraph in raw.paragraphs)
    shape = _SHAPE.match(id_)
    instance = Instance(
        id=id_,
        question=raw.question,
        evidence=conversion.drop_blank_passages(passages, support, repairs),
        reference_answer=answer,
        aliases=conversion.clean_aliases(answer, raw.answer_aliases or ()),
        benchmark=BENCHMARK,
        support_ids=support,
        kind=shape["shape"] if shape else None,
        hops=len(raw.question_decomposition or ()) or (int(shape["hops"]) if shape else None),
    )
    rejected = UNANSWERABLE if raw.answerable is False else None
    return conversion.finish_conversion(instance, repairs, BENCHMARK, rejected=rejected)


def _support_ids(paragraphs: list[MusiqueParagraph]) -> tuple[str, ...] | None:
    """The passages marked as supporting; None where no passage says either way."""
    told = [paragraph.is_supporting is not None for paragraph in paragraphs]
    if not any(told):
        return None
    if not all(told):
        raise RecordError(f"paragraphs[{told.index(False)}].is_supporting: is missing, while others have it")
    return tuple(str(paragraph.idx) for paragraph in paragraphs if paragraph.is_supporting)
