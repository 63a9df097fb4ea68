"""Conversion of the records of HotpotQA, 2WikiMultiHopQA and MuSiQue."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.files.json_reader import read_json_objects
from eclose.files.jsonl import parse_dataclass
from eclose.readers import conversion
from eclose.values.instance import Instance, Passage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from eclose.files.json_reader import JsonObject
    from eclose.readers.conversion import ConvertedRecord


HOTPOT_BENCHMARK = "HotpotQA"
TWO_WIKI_BENCHMARK = "2WikiMultiHopQA"
_HOTPOT_HOPS = 2  # by construction: a bridge or a comparison of two articles

HotpotParagraph = tuple[str, list[str]]
SupportingFact = tuple[str, int]


@dataclass(frozen=True, slots=True)
class HotpotRecord:
    """The fields of a HotpotQA record that are used, in the official layout or that of Hugging Face tables."""

    question: str
    context: list[HotpotParagraph] = field(metadata={"shape": "[title, [sentences]]"})
    supporting_facts: list[SupportingFact] | None = field(default=None, metadata={"shape": "[title, sentence number]"})
    answer: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class TwoWikiRecord(HotpotRecord):
    """The fields of a 2WikiMultiHopQA record that are used; the Wikidata ids may be missing."""

    evidences: list[tuple[str, str, str]] | None = field(
        default=None, metadata={"shape": "[subject, relation, object]"}
    )
    answer_id: str | None = None


def convert_hotpot_record(record: JsonObject) -> ConvertedRecord:
    """Return a HotpotQA record as an instance."""
    raw = parse_dataclass(HotpotRecord, _to_official_layout(record), extra="ignore")
    # Sentences of HotpotQA start with their own blank.
    return _convert_paragraphs(record, raw, HOTPOT_BENCHMARK, _HOTPOT_HOPS, separator="")


def convert_two_wiki_record(
    record: JsonObject, aliases: Mapping[str, tuple[str, ...]] | None = None
) -> ConvertedRecord:
    """Return a 2WikiMultiHopQA record as an instance, with the aliases listed for the id of its answer."""
    raw = parse_dataclass(TwoWikiRecord, _to_official_layout(_with_triples(record)), extra="ignore")
    hops = len(raw.evidences) if raw.evidences else None  # one evidence triple per hop
    listed = (aliases or {}).get(raw.answer_id or "", ())
    return _convert_paragraphs(record, raw, TWO_WIKI_BENCHMARK, hops, separator=" ", aliases=listed)


def _convert_paragraphs(
    record: JsonObject,
    raw: HotpotRecord,
    benchmark: str,
    hops: int | None,
    *,
    separator: str,
    aliases: Iterable[str] = (),
) -> ConvertedRecord:
    repairs: list[str] = []
    # Before the aliases, which are cleaned of the answer itself.
    answer = conversion.read_reference_answer(raw.answer, repairs)
    support = find_supporting_passages(raw.context, raw.supporting_facts, repairs)
    # The index is the id, since titles may repeat within a record.
    passages = (Passage(str(index), title, separator.join(texts)) for index, (title, texts) in enumerate(raw.context))
    instance = Instance(
        id=conversion.read_record_id(conversion.first_present_column(record, ("_id", "id")), repairs),
        question=raw.question,
        evidence=conversion.drop_blank_passages(passages, support, repairs),
        reference_answer=answer,
        aliases=conversion.clean_answer_aliases(answer, aliases),
        benchmark=benchmark,
        support_ids=support,
        kind=raw.type or None,
        hops=hops,
    )
    return conversion.finish_record_conversion(instance, repairs, benchmark)


def _to_official_layout(record: JsonObject) -> JsonObject:
    """Return the record with Hugging Face tables turned into rows."""
    record = conversion.columns_to_rows(record, "context", ("title", "sentences"))
    return conversion.columns_to_rows(record, "supporting_facts", ("title", "sent_id"))


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


@dataclass(frozen=True, slots=True)
class WikidataAliasLine:
    """One line of ``id_aliases.json``."""

    Q_id: str
    aliases: list[str] = field(default_factory=list)
    demonyms: list[str] = field(default_factory=list)


def read_wikidata_aliases(path: Path) -> dict[str, tuple[str, ...]]:
    """Return aliases and demonyms by Wikidata id, from the benchmark's ``id_aliases.json`` (JSON Lines)."""
    aliases: dict[str, tuple[str, ...]] = {}
    for raw in read_json_objects(path):
        if raw.error is not None:
            raise raw.error
        try:
            line = parse_dataclass(WikidataAliasLine, raw.value or {}, extra="ignore")
        except RecordError as error:
            problem = f"{error.problem}. Is this the benchmark's id_aliases.json?"
            raise RecordError(problem, path=path, record=raw.where) from error
        # An id may have several lines.
        aliases[line.Q_id] = (*aliases.get(line.Q_id, ()), *line.aliases, *line.demonyms)
    return aliases


def _with_triples(record: JsonObject) -> JsonObject:
    """Return the record with its evidence triples as rows, under any names of the three columns."""
    triples: Any = record.get("evidences")
    return conversion.columns_to_rows(record, "evidences", tuple(triples)) if isinstance(triples, dict) else record


# Conversion of MuSiQue records, answerable or not.
#
# Titles repeat within a record, even between supporting passages and distractors, so a passage is identified by
# ``idx``.


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
