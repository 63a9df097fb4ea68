"""Documents in the shapes of other tools: retrieved passages, nodes, search results, tool output that lists them."""

from __future__ import annotations

import ast
import json
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError
from eclose.readers.spans.selection import parse_json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_KEYS = ("text", "page_content", "content", "passage", "chunk", "snippet", "excerpt", "body", "document")
"""Keys with the text of a document, in order of preference."""

_TITLE_KEYS = ("title", "name", "filename", "file_name", "source", "url", "doc_uri")
_ID_KEYS = ("doc_id", "id", "id_", "node_id", "chunk_id", "document_id", "file_id")
# LlamaIndex nests its nodes, Elasticsearch and Qdrant their records.
_NESTED_KEYS = ("node", "document", "_source", "payload", "metadata")
_METADATA_KEYS = ("metadata", "meta")
_LIST_KEYS = (
    "documents",
    "results",
    "source_documents",
    "source_nodes",
    "docs",
    "nodes",
    "hits",
    "matches",
    "passages",
    "chunks",
    "contexts",
    "context",
    "items",
    "data",
    "output",
)
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
# Keys of a search result that repeat the request.
_REQUEST_KEYS = frozenset({"query", "queries", "question", "search_query", "id", "type", "object", "status", "model"})


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """A retrieved passage with the id and title of its document."""

    text: str
    doc_id: str | None = None
    title: str = ""


def unwrap_serialized(value: Any) -> Any:
    """Return the fields of an object that LangChain serialized, by ``dumpd`` or ``messages_to_dict``; else value."""
    if not isinstance(value, dict):
        return value
    if "lc" in value and isinstance(value.get("kwargs"), dict):
        return value["kwargs"]
    if value.keys() == {"type", "data"} and isinstance(value["data"], dict):
        return {"type": value["type"], **value["data"]}
    return value


def parse_listing(value: Any) -> Any:
    """Return the list that a text holds as JSON or as Python prints it; any other value unchanged."""
    value = parse_json_text(value)
    if not isinstance(value, str) or not value.lstrip().startswith("[{"):
        return value
    try:
        with warnings.catch_warnings():
            # A text may hold what is no escape in Python, such as \d.
            warnings.simplefilter("ignore")
            return ast.literal_eval(value.strip())
    # What only begins like a list is prose, or was cut off.
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def find_documents(value: Any) -> list[RetrievedChunk] | None:
    """Return the documents of tool output: a list of them, or an object or JSON text that holds one.

    Returns:
        The documents, in order; empty where the list is empty. None where the value is no list of documents.
    """
    value = unwrap_serialized(parse_listing(value))
    if isinstance(value, list):
        chunks = [read_chunk(document) for document in value]
        return None if None in chunks else [chunk for chunk in chunks if chunk is not None]
    if not isinstance(value, dict):
        return None
    for key in _LIST_KEYS:
        if isinstance(value.get(key), list | dict) and (documents := find_documents(value[key])) is not None:
            return documents + _read_rest(value, key)
    return None


def list_tool_documents(output: Any) -> list[RetrievedChunk]:
    """Return what a tool returned as documents: one for each of a list, else one for all of it."""
    content = unwrap_serialized(output)
    parts = content if isinstance(content, list) and content and all(isinstance(part, dict) for part in content) else []
    if parts and all(part.get("type") in _TEXT_PARTS and "text" in part for part in parts):
        # Parts of a tool's message; each may hold a list of documents as JSON.
        return [chunk for part in parts for chunk in list_tool_documents(part["text"])]
    documents = find_documents(content)
    if documents is not None:
        return documents
    if content in (None, ""):
        return []
    return [RetrievedChunk(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))]


def _read_rest(value: Mapping[str, Any], key: str) -> list[RetrievedChunk]:
    """Return what a search result says beside its list, such as a summary, as one more document."""
    rest = {
        name: content
        for name, content in value.items()
        if name != key and name not in _REQUEST_KEYS and isinstance(content, str | list | dict) and content
    }
    return [RetrievedChunk(json.dumps(rest, ensure_ascii=False))] if rest else []


def read_documents(value: Any, column: str) -> list[RetrievedChunk]:
    """Return the documents of a column; one text is one document.

    Raises:
        RecordError: The column is no list of documents, or one of them has no text.
    """
    value = unwrap_serialized(parse_json_text(value))
    if isinstance(value, str):
        return [RetrievedChunk(value)]
    if isinstance(value, dict):
        if (documents := find_documents(value)) is not None:
            return documents
        value = [value]
    if not isinstance(value, list):
        raise RecordError(f"{column}: should be a list of documents, each a text or an object with a text")
    chunks = [read_chunk(document) for document in value]
    for number, chunk in enumerate(chunks):
        if chunk is None:
            keys = ", ".join(sorted(value[number])[:10]) if isinstance(value[number], dict) else ""
            seen = f" Keys there: {keys}." if keys else ""
            raise RecordError(
                f"{column}[{number}]: has no text. Write a text, or an object with one of {', '.join(TEXT_KEYS)}.{seen}"
            )
    return [chunk for chunk in chunks if chunk is not None]


def read_titled_documents(value: Any) -> list[RetrievedChunk] | None:
    """Return the documents of ``{title: text}`` or ``{title: [sentences]}``; None where the value is none of these.

    Sentences are joined by one space. An object that is a document itself, or that wraps a list of them, is none.
    """
    value = unwrap_serialized(parse_json_text(value))
    if not isinstance(value, dict) or read_chunk(value) is not None or find_documents(value) is not None:
        return None
    texts = {title: [text] if isinstance(text, str) else text for title, text in value.items()}
    for sentences in texts.values():
        if not (isinstance(sentences, list) and all(isinstance(sentence, str) for sentence in sentences)):
            return None
    return [RetrievedChunk(" ".join(sentences), title=title) for title, sentences in texts.items()]


def read_chunk(document: Any) -> RetrievedChunk | None:
    """Return a document as a passage; None where it has no text."""
    document = unwrap_serialized(document)
    if isinstance(document, str):
        return RetrievedChunk(document)
    if not isinstance(document, dict):
        return None
    text = _first_text(document, TEXT_KEYS)
    if text is None:
        nested = (read_chunk(document[key]) for key in _NESTED_KEYS if isinstance(document.get(key), dict))
        return next((chunk for chunk in nested if chunk is not None), None)
    metadata = (parse_json_text(document.get(key)) for key in _METADATA_KEYS)
    titles = (_first_text(fields, _TITLE_KEYS) for fields in (document, *metadata) if isinstance(fields, dict))
    doc_id = next((document[key] for key in _ID_KEYS if isinstance(document.get(key), str | int)), None)
    return RetrievedChunk(text, None if doc_id is None else str(doc_id), next((t for t in titles if t), ""))


def _first_text(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((fields[key] for key in keys if isinstance(fields.get(key), str)), None)
