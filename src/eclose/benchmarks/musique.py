"""Conversion of MuSiQue records, answerable or not.

Titles repeat within a record, even between supporting passages and distractors, so a passage is identified by ``idx``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.benchmarks import conversion
from eclose.core.instance import Instance, Passage
from eclose.errors import RecordError
from eclose.store.records.jsonl import parse_dataclass

if TYPE_CHECKING:
    from eclose.benchmarks.conversion import ConvertedRecord
    from eclose.store.records.json_reader import JsonObject

MUSIQUE_BENCHMARK = "MuSiQue"
UNANSWERABLE = "unanswerable"

# Ids encode the reasoning graph: ``2hop__``, ``3hop1__``, ``4hop2__``, ...
_SHAPE = re.compile(r"(?P<shape>(?P<hops>[1-9])hop\d?)__")


@dataclass(frozen=True, slots=True)
class MusiqueParagraph:
    """One paragraph; ``is_supporting`` is None in test splits."""

    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool | None = None


@dataclass(frozen=True, slots=True)
class MusiqueRecord:
    """The fields of a MuSiQue record that are used."""

    question: str
    paragraphs: list[MusiqueParagraph] = field(metadata={"shape": "{idx, title, paragraph_text, is_supporting}"})
    question_decomposition: list[dict[str, Any]] | None = None
    answer: str | None = None
    answer_aliases: list[str] | None = None
    answerable: bool | None = None


def convert_musique_record(record: JsonObject) -> ConvertedRecord:
    """Return a MuSiQue record as an instance; an unanswerable one is marked as rejected."""
    repairs: list[str] = []
    raw = parse_dataclass(MusiqueRecord, record, extra="ignore")
    id_ = conversion.read_record_id(record.get("id"), repairs)
    answer = conversion.read_reference_answer(raw.answer, repairs)
    support = _support_ids(raw.paragraphs)
    passages = (Passage(str(paragraph.idx), paragraph.title, paragraph.paragraph_text) for paragraph in raw.paragraphs)
    shape = _SHAPE.match(id_)
    instance = Instance(
        id=id_,
        question=raw.question,
        evidence=conversion.drop_blank_passages(passages, support, repairs),
        reference_answer=answer,
        aliases=conversion.clean_answer_aliases(answer, raw.answer_aliases or ()),
        benchmark=MUSIQUE_BENCHMARK,
        support_ids=support,
        kind=shape["shape"] if shape else None,
        hops=len(raw.question_decomposition or ()) or (int(shape["hops"]) if shape else None),
    )
    # MuSiQue-Full pairs every question with a twin whose evidence was removed; only answerable ones are studied.
    rejected = UNANSWERABLE if raw.answerable is False else None
    return conversion.finish_record_conversion(instance, repairs, MUSIQUE_BENCHMARK, rejected=rejected)


def _support_ids(paragraphs: list[MusiqueParagraph]) -> tuple[str, ...] | None:
    marked = [paragraph.is_supporting is not None for paragraph in paragraphs]
    if not any(marked):
        return None
    if not all(marked):
        raise RecordError(f"paragraphs[{marked.index(False)}].is_supporting: is missing, while others have it")
    return tuple(str(paragraph.idx) for paragraph in paragraphs if paragraph.is_supporting)
