"""Record layouts of question files, and their detection by keys and shapes."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Mapping


class RecordLayout(StrEnum):
    """A record layout, as ``--format`` names it."""

    AUTO = "auto"
    """Detect the layout from the keys of the first readable record."""
    HOTPOT = "hotpot"
    TWO_WIKI = "2wiki"
    MUSIQUE = "musique"
    RAGAS = "ragas"
    DEEPEVAL = "deepeval"
    RAGCHECKER = "ragchecker"
    ECLOSE = "eclose"


# No two layouts name their evidence alike, except HotpotQA and 2WikiMultiHopQA. DeepEval may have a "context" of
# its own beside what was retrieved, so "context" is looked at last.
_EVIDENCE_KEYS = {
    "evidence": RecordLayout.ECLOSE,
    "paragraphs": RecordLayout.MUSIQUE,
    "retrieved_contexts": RecordLayout.RAGAS,
    "contexts": RecordLayout.RAGAS,
    "retrieval_context": RecordLayout.DEEPEVAL,
    "retrievalContext": RecordLayout.DEEPEVAL,
    "retrieved_context": RecordLayout.RAGCHECKER,
}
# Keys and question types of 2WikiMultiHopQA that HotpotQA lacks.
_TWO_WIKI_KEYS = frozenset({"evidences", "evidences_id", "entity_ids", "answer_id"})
_TWO_WIKI_TYPES = frozenset({"compositional", "inference", "bridge_comparison"})


def detect_record_layout(record: Mapping[str, Any]) -> RecordLayout:
    """Return the layout of a record by its keys, and by the shape of ``context``, a key of several tools.

    Raises:
        RecordError: No layout, or more than one, fits the record.
    """
    for key, layout in _EVIDENCE_KEYS.items():
        if key in record:
            return layout
    if (agent_layout := _detect_agent_layout(record)) is not None:
        return agent_layout
    if "context" in record:
        if not _has_paragraphs(record["context"]):
            raise RecordError(_describe_unknown_context(record["context"]))
        return _hotpot_or_two_wiki(record)
    keys = ", ".join(repr(key) for key in sorted(record)[:20]) or "none"
    evidence_keys = ", ".join(repr(key) for key in (*_EVIDENCE_KEYS, "context"))
    formats = ", ".join(name for name in RecordLayout if name is not RecordLayout.AUTO)
    raise RecordError(
        f"has no key that holds evidence. Keys seen: {keys}. Keys known: {evidence_keys}. "
        f"Name the format with --format ({formats}), or rename the key."
    )


def _has_paragraphs(context: object) -> bool:
    """Return whether a context is HotpotQA's: a list of [title, [sentences]], or the same as a Hugging Face table."""
    if isinstance(context, dict):
        return "title" in context and "sentences" in context
    if not isinstance(context, list):
        return False
    # The first paragraph decides the layout; a broken one further on is an error of that record.
    return all(
        isinstance(paragraph, list)
        and len(paragraph) == 2
        and isinstance(paragraph[0], str)
        and isinstance(paragraph[1], list)
        for paragraph in context[:1]
    )


def _describe_unknown_context(context: object) -> str:
    if isinstance(context, dict):
        listed = ", ".join(repr(key) for key in sorted(context)[:5])
        shape = f"an object with the keys {listed}" if listed else "an empty object"
    elif isinstance(context, list):
        shape = f"a list whose first item is {_noun(context[0])}"
    else:
        shape = _noun(context)
    return (
        f"context: is {shape}, and no known layout has that. HotpotQA and 2WikiMultiHopQA have [title, [sentences]] "
        "for each paragraph; for passages as texts, call the key retrieved_contexts (RAGAS) and the others user_input, "
        "response and reference."
    )


def _noun(value: object) -> str:
    nouns: dict[type, str] = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}
    return "nothing (null)" if value is None else nouns.get(type(value), "a number")


def _detect_agent_layout(record: Mapping[str, Any]) -> RecordLayout | None:
    """Return the layout of an agent's record, whose evidence is in messages or in a list of tool calls; else None."""
    if isinstance(record.get("user_input"), list):
        return RecordLayout.RAGAS
    if "input" in record and ("tools_called" in record or "toolsCalled" in record):
        return RecordLayout.DEEPEVAL
    if isinstance(record.get("turns"), list):
        raise RecordError(
            "turns: is a conversation of several turns, and one question is judged at a time. Write a record for each "
            "question with its input, retrieval_context and actual_output."
        )
    return None


def _hotpot_or_two_wiki(record: Mapping[str, Any]) -> RecordLayout:
    # Comparison questions exist in both; only HotpotQA grades them by a "level".
    kind = record.get("type")
    if _TWO_WIKI_KEYS & record.keys() or (isinstance(kind, str) and kind in _TWO_WIKI_TYPES):
        return RecordLayout.TWO_WIKI
    if kind == "comparison" and "level" not in record:
        raise RecordError(
            "could be HotpotQA or 2WikiMultiHopQA, which join their sentences differently. "
            "Say --format hotpot or --format 2wiki."
        )
    return RecordLayout.HOTPOT
