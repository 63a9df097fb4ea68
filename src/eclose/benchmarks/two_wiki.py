"""Conversion of 2WikiMultiHopQA records, with or without Wikidata ids, official or from Hugging Face tables.

The layout is that of HotpotQA, but sentences have no leading blank: a passage is its sentences joined by one blank.
Aliases of answers come from the benchmark's ``id_aliases.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eclose.benchmarks import conversion, hotpot
from eclose.benchmarks.hotpot import HotpotParagraph, SupportingFact
from eclose.core.instance import Instance
from eclose.errors import RecordError
from eclose.store.records.json_reader import read_json_objects
from eclose.store.records.jsonl import parse_dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eclose.benchmarks.conversion import ConvertedRecord
    from eclose.store.records.json_reader import JsonObject

TWO_WIKI_BENCHMARK = "2WikiMultiHopQA"


@dataclass(frozen=True, slots=True)
class TwoWikiRecord:
    """The fields of a 2WikiMultiHopQA record that are used."""

    question: str
    context: list[HotpotParagraph] = field(metadata={"shape": "[title, [sentences]]"})
    supporting_facts: list[SupportingFact] | None = field(default=None, metadata={"shape": "[title, sentence number]"})
    evidences: list[tuple[str, str, str]] | None = field(
        default=None, metadata={"shape": "[subject, relation, object]"}
    )
    answer: str | None = None
    answer_id: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class WikidataAliasLine:
    """One line of ``id_aliases.json``."""

    Q_id: str
    aliases: list[str] = field(default_factory=list)
    demonyms: list[str] = field(default_factory=list)


def convert_two_wiki_record(
    record: JsonObject, aliases: Mapping[str, tuple[str, ...]] | None = None
) -> ConvertedRecord:
    """Return a 2WikiMultiHopQA record as an instance, with the aliases listed for the id of its answer."""
    repairs: list[str] = []
    raw = parse_dataclass(TwoWikiRecord, hotpot.to_official_hotpot_layout(_with_triples(record)), extra="ignore")
    # Before the aliases, which are cleaned of the answer itself.
    answer = conversion.read_reference_answer(raw.answer, repairs)
    support = hotpot.find_supporting_passages(raw.context, raw.supporting_facts, repairs)
    instance = Instance(
        id=conversion.read_record_id(conversion.first_present_column(record, ("_id", "id")), repairs),
        question=raw.question,
        evidence=conversion.drop_blank_passages(
            hotpot.build_hotpot_passages(raw.context, separator=" "), support, repairs
        ),
        reference_answer=answer,
        aliases=conversion.clean_answer_aliases(answer, (aliases or {}).get(raw.answer_id or "", ())),
        benchmark=TWO_WIKI_BENCHMARK,
        support_ids=support,
        kind=raw.type or None,
        hops=len(raw.evidences) if raw.evidences else None,  # one evidence triple per hop
    )
    return conversion.finish_record_conversion(instance, repairs, TWO_WIKI_BENCHMARK)


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
