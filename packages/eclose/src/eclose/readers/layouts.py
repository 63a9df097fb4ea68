"""Record layouts of question files, their detection by keys and shapes, and the table of benchmarks.

A benchmark is added by a member of ``RecordLayout`` and a row of ``BENCHMARK_LOADERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.readers.pipelines import holds_conversation, holds_pipeline_output
from eclose.readers.spans.detection import TraceDialect, detect_trace_dialect
from eclose.readers.spans.documents import find_documents

if TYPE_CHECKING:
    from eclose.readers.conversion import ConvertedRecord


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
    MESSAGES = "messages"
    """Messages of a chat API, items of the Responses API, or the state of a LangGraph graph."""
    LANGCHAIN = "langchain"
    """Output of a LangChain chain or agent: documents or intermediate steps beside input and output."""
    LLAMA_INDEX = "llama-index"
    """Response of LlamaIndex with its source nodes."""
    HAYSTACK = "haystack"
    """Output of a Haystack pipeline, by component."""
    MAPPED = "mapped"
    """Any other record, by the field paths of ``--map``."""
    ECLOSE = "eclose"
    OTLP = "otlp"
    MLFLOW = "mlflow"
    LANGFUSE = "langfuse"
    LANGSMITH = "langsmith"
    ATIF = "atif"

    @property
    def trace_dialect(self) -> TraceDialect | None:
        """The dialect of a layout whose records are spans or traces; None for records of questions."""
        return TraceDialect(self.value) if self.value in set(TraceDialect) else None


# Keys and question types of 2WikiMultiHopQA that HotpotQA lacks.
_TWO_WIKI_KEYS = frozenset({"evidences", "evidences_id", "entity_ids", "answer_id"})
_TWO_WIKI_TYPES = frozenset({"compositional", "inference", "bridge_comparison"})


def _is_surely_two_wiki(record: Mapping[str, Any]) -> bool:
    kind = record.get("type")
    return bool(_TWO_WIKI_KEYS & record.keys()) or (isinstance(kind, str) and kind in _TWO_WIKI_TYPES)


def _may_be_two_wiki(record: Mapping[str, Any]) -> bool:
    # Comparison questions exist in both; only HotpotQA grades them by a "level".
    return _is_surely_two_wiki(record) or (record.get("type") == "comparison" and "level" not in record)


@dataclass(frozen=True, slots=True)
class BenchmarkLoader:
    """How the records of a benchmark are recognised and converted."""

    name: str
    evidence_key: str
    """Key of a record that holds its passages."""
    converter: str
    """Function in ``multi_hop`` that converts a record: imported at use, since it is slow to."""
    takes_aliases: bool = False
    """Whether the converter takes a table of answer aliases as a second argument."""
    fits: Callable[[Mapping[str, Any]], bool] = lambda _record: True
    """Whether a record may be of this benchmark, where several share the evidence key."""

    def load_converter(self) -> Callable[..., ConvertedRecord]:
        """Import the function that converts a record."""
        converter: Callable[..., ConvertedRecord] = getattr(import_module("eclose.readers.benchmarks"), self.converter)
        return converter


_PARAGRAPHS_KEY = "context"
"""Evidence key of HotpotQA and 2WikiMultiHopQA."""

BENCHMARK_LOADERS = {
    RecordLayout.HOTPOT: BenchmarkLoader(
        "HotpotQA",
        _PARAGRAPHS_KEY,
        "convert_hotpot_record",
        fits=lambda record: not _is_surely_two_wiki(record),
    ),
    RecordLayout.TWO_WIKI: BenchmarkLoader(
        "2WikiMultiHopQA",
        _PARAGRAPHS_KEY,
        "convert_two_wiki_record",
        takes_aliases=True,
        fits=_may_be_two_wiki,
    ),
    RecordLayout.MUSIQUE: BenchmarkLoader("MuSiQue", "paragraphs", "convert_musique_record"),
}
"""The benchmarks that can be read: detection, conversion and refusals of settings follow from this table."""

# No two layouts name their evidence alike, except HotpotQA and 2WikiMultiHopQA. DeepEval may have a "context" of
# its own beside what was retrieved, so "context" is looked at last.
_EVIDENCE_KEYS = {
    "evidence": RecordLayout.ECLOSE,
    **{
        loader.evidence_key: layout
        for layout, loader in BENCHMARK_LOADERS.items()
        if loader.evidence_key != _PARAGRAPHS_KEY
    },
    "retrieved_contexts": RecordLayout.RAGAS,
    "contexts": RecordLayout.RAGAS,
    "retrieval_context": RecordLayout.DEEPEVAL,
    "retrievalContext": RecordLayout.DEEPEVAL,
    "retrieved_context": RecordLayout.RAGCHECKER,
}
_QUESTION_KEYS = ("user_input", "question", "input", "query")


def detect_record_layout(record: Mapping[str, Any]) -> RecordLayout:
    """Return the layout of a record by its keys, and by the shape of ``context``, a key of several tools.

    Raises:
        RecordError: No layout, or more than one, fits the record.
    """
    # Spans come first: OpenTelemetry's JSON has a "context" with the ids of the span, which is no evidence.
    if (dialect := detect_trace_dialect(record)) is not None:
        return RecordLayout(dialect.value)
    # A table may have a column "messages" beside its own question; a log of messages has no other question.
    if isinstance(record.get("messages"), list) and not any(isinstance(record.get(key), str) for key in _QUESTION_KEYS):
        return RecordLayout.MESSAGES
    for key, layout in _EVIDENCE_KEYS.items():
        if key in record:
            return layout
    if (agent_layout := _detect_agent_layout(record) or _detect_framework(record)) is not None:
        return agent_layout
    if _PARAGRAPHS_KEY in record:
        if not _has_paragraphs(record[_PARAGRAPHS_KEY]):
            raise RecordError(_describe_unknown_context(record[_PARAGRAPHS_KEY]))
        return _choose_benchmark(record, _PARAGRAPHS_KEY)
    keys = ", ".join(repr(key) for key in sorted(record)[:20]) or "none"
    evidence_keys = ", ".join(repr(key) for key in (*_EVIDENCE_KEYS, "context"))
    formats = ", ".join(name for name in RecordLayout if name not in (RecordLayout.AUTO, RecordLayout.MAPPED))
    raise RecordError(
        f"has no key that holds evidence. Keys seen: {keys}. Keys known: {evidence_keys}. "
        f"Name the format with --format ({formats}), or convert the file with eclose data convert and its option "
        "--map question=PATH,answer=PATH,documents=PATH."
    )


def is_known_record(record: Mapping[str, Any]) -> bool:
    """Return whether the keys of a record are those of a known layout, or of one that is refused by name."""
    try:
        detect_record_layout(record)
    except RecordError:
        return "turns" in record or _PARAGRAPHS_KEY in record
    return True


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
        shape = f"a list whose first item is {describe_json_type(context[0])}"
    else:
        shape = describe_json_type(context)
    return (
        f"context: is {shape}, and no known layout has that. HotpotQA and 2WikiMultiHopQA have [title, [sentences]] "
        "for each paragraph; for passages as texts, call the key retrieved_contexts (RAGAS) and the others user_input, "
        "response and reference, or name the fields with --map question=PATH,answer=PATH,documents=PATH."
    )


def describe_json_type(value: object) -> str:
    """Return the JSON type of a value in words: a text, an object, a list, a number."""
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


def _detect_framework(record: Mapping[str, Any]) -> RecordLayout | None:
    if "source_nodes" in record:
        return RecordLayout.LLAMA_INDEX
    if isinstance(record.get("intermediate_steps"), list) or "source_documents" in record:
        return RecordLayout.LANGCHAIN
    documents = record.get("documents", record.get("context"))
    if _is_document_list(documents) and any(isinstance(record.get(key), str) for key in _QUESTION_KEYS):
        return RecordLayout.LANGCHAIN
    if holds_pipeline_output(record):
        return RecordLayout.HAYSTACK
    return RecordLayout.MESSAGES if holds_conversation(record) else None


def _is_document_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and bool(find_documents(value[:1]))


def _choose_benchmark(record: Mapping[str, Any], evidence_key: str) -> RecordLayout:
    """Return the benchmark of a record among those with its evidence key; raise where several fit."""
    fitting = {
        layout: loader.name
        for layout, loader in BENCHMARK_LOADERS.items()
        if loader.evidence_key == evidence_key and loader.fits(record)
    }
    if len(fitting) > 1:
        formats = " or ".join(f"--format {layout}" for layout in fitting)
        raise RecordError(
            f"could be {' or '.join(fitting.values())}, which join their sentences differently. Say {formats}."
        )
    return next(iter(fitting))
