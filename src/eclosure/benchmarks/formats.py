"""Which layouts a file of questions can have, and how to tell them apart by their keys."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eclosure.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Format(StrEnum):
    """A layout of records."""

    AUTO = "auto"
    """Not a layout: tell it from the keys of the first readable record."""
    HOTPOT = "hotpot"
    TWO_WIKI = "2wiki"
    MUSIQUE = "musique"
    RAGAS = "ragas"
    DEEPEVAL = "deepeval"
    RAGCHECKER = "ragchecker"
    ECLOSURE = "eclosure"


# No two layouts name their evidence alike, except HotpotQA and 2WikiMultiHopQA. DeepEval may have a "context" of
# its own beside what was retrieved, so "context" is looked at last.
_EVIDENCE_KEYS = {
    "evidence": Format.ECLOSURE,
    "paragraphs": Format.MUSIQUE,
    "retrieved_contexts": Format.RAGAS,
    "contexts": Format.RAGAS,
    "retrieval_context": Format.DEEPEVAL,
    "retrievalContext": Format.DEEPEVAL,
    "retrieved_context": Format.RAGCHECKER,
}
_TWO_WIKI_KEYS = frozenset({"evidences", "evidences_id", "entity_ids", "answer_id"})
_TWO_WIKI_TYPES = frozenset({"compositional", "inference", "bridge_comparison"})


def detect(record: Mapping[str, Any]) -> Format:
    """The layout of a record, by its keys."""
    for key, found in _EVIDENCE_KEYS.items():
        if key in record:
            return found
    if (agents := _agent_layout(record)) is not None:
        return agents
    if "context" in record:
        return _hotpot_or_two_wiki(record)
    keys = ", ".join(repr(key) for key in sorted(record)[:20]) or "none"
    known = ", ".join(repr(key) for key in (*_EVIDENCE_KEYS, "context"))
    formats = ", ".join(name for name in Format if name is not Format.AUTO)
    raise RecordError(
        f"has no key that holds evidence. Keys seen: {keys}. Keys known: {known}. "
        f"Name the format with --format ({formats}), or rename the key."
    )


def _agent_layout(record: Mapping[str, Any]) -> Format | None:
    """Agents have their evidence from tools: in the messages of a conversation, or in a list of calls."""
    if isinstance(record.get("user_input"), list):
        return Format.RAGAS
    if "input" in record and ("tools_called" in record or "toolsCalled" in record):
        return Format.DEEPEVAL
    if isinstance(record.get("turns"), list):
        raise RecordError(
            "turns: is a conversation of several turns, and one question is judged at a time. Write a record for each "
            "question with its input, retrieval_context and actual_output."
        )
    return None


def _hotpot_or_two_wiki(record: Mapping[str, Any]) -> Format:
    kind = record.get("type")
    if _TWO_WIKI_KEYS & record.keys() or (isinstance(kind, str) and kind in _TWO_WIKI_TYPES):
        return Format.TWO_WIKI
    if kind == "comparison" and "level" not in record:
        raise RecordError(
            "could be HotpotQA or 2WikiMultiHopQA, which join their sentences differently. "
            "Say --format hotpot or --format 2wiki."
        )
    return Format.HOTPOT
