"""Find questions, answers, messages and documents in the input and output of a span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eclose.errors import RecordError
from eclose.readers.spans.documents import RetrievedChunk, read_chunk
from eclose.readers.spans.selection import parse_json_text
from eclose.readers.spans.span import as_text
from eclose.reading.messages import PartKind, find_role, join_texts, read_parts, unwrap_message
from eclose.reading.shapes import MODEL_ROLES, USER_ROLES

# Keys under which applications store a question or an answer, most specific first.
_QUESTION_KEYS = ("question", "query", "user_query", "user_input", "input", "prompt", "text", "content", "message")
_ANSWER_KEYS = (
    "final_answer",
    "answer",
    "final_output",
    "response",
    "output",
    "result",
    "completion",
    "text",
    "content",
)
_WRAPPED_MESSAGES = ("messages", "message", "choices", "generations", "outputs", "output")
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A chat message with its text, its reasoning and the results of its tools."""

    role: str
    text: str
    reasoning: tuple[str, ...] = ()
    tool_results: tuple[Any, ...] = ()

    @property
    def is_question(self) -> bool:
        """Whether a user wrote the message."""
        return self.role in USER_ROLES and bool(self.text)

    @property
    def is_reply(self) -> bool:
        """Whether a model wrote the message."""
        return self.role in MODEL_ROLES


def read_messages(value: Any, depth: int = 0) -> list[ChatMessage] | None:
    """Return the messages of a value; None where it holds none.

    Reads lists of messages by role or type, messages in parts, LangChain's serialised messages, and the same under
    ``messages``, ``choices`` or ``generations``.
    """
    value = parse_json_text(value)
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        if (message := _read_message(value)) is not None:
            return [message]
        nested = next((value[key] for key in _WRAPPED_MESSAGES if isinstance(value.get(key), list | Mapping)), None)
        return None if nested is None else read_messages(nested, depth + 1)
    if not isinstance(value, list) or not value:
        return None
    messages: list[ChatMessage] = []
    for item in value:
        parts = read_messages(item, depth + 1) if isinstance(item, list | Mapping) else None
        if parts is None:
            return None
        messages += parts
    return messages


def _read_message(value: Mapping[str, Any]) -> ChatMessage | None:
    role = find_role(unwrap_message(value))
    if not role:
        return None
    try:
        parts = read_parts([value])
    except RecordError:
        # A span may hold parts of a model that is not of texts; what can be read of it counts.
        parts = []
    spoken = (PartKind.SAID, PartKind.USER, PartKind.SYSTEM, PartKind.COMMENTARY, PartKind.REFUSAL)
    reasoning = tuple(part.text for part in parts if part.kind is PartKind.HIDDEN and part.text)
    results = tuple(part.value for part in parts if part.kind is PartKind.RESULT and part.value and not part.is_error)
    texts = [part.text for part in parts if part.kind in spoken]
    return ChatMessage(role, join_texts(texts), reasoning, results)


def find_questions(value: Any) -> list[str]:
    """Return the questions of an input: the texts of user messages, or the text under a key such as ``question``.

    >>> find_questions({"question": "Where was Ada born?", "top_k": 3})
    ['Where was Ada born?']
    """
    value = parse_json_text(value)
    if (messages := read_messages(value)) is not None:
        return list(dict.fromkeys(message.text for message in messages if message.is_question))
    return _find_texts(value, _QUESTION_KEYS, find_questions)


def find_answer(value: Any) -> str | None:
    """Return the answer of an output: the last message of a model, or the text under a key such as ``answer``."""
    value = parse_json_text(value)
    if (messages := read_messages(value)) is not None:
        return next((message.text for message in reversed(messages) if message.is_reply and message.text), None)
    texts = _find_texts(value, _ANSWER_KEYS, lambda item: [text] if (text := find_answer(item)) else [])
    return texts[0] if len(texts) == 1 else None


def _find_texts(value: Any, keys: tuple[str, ...], find: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, list):
        # The arguments of a traced function may be a list with the question alone.
        return find(value[0]) if len(value) == 1 else [item for item in value if as_text(item)]
    if not isinstance(value, Mapping):
        return []
    for key in keys:
        if value.get(key) not in (None, "", [], {}):
            return list(find(value[key]))
    texts = [item for item in value.values() if as_text(item)]
    return list(find(next(iter(value.values())))) if len(value) == 1 else texts if len(texts) == 1 else []


def find_document_list(value: Any) -> list[Any] | None:
    """Return the list of documents in the output of a retriever: the output itself, or the only list in it."""
    value = parse_json_text(value)
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        lists = [item for item in value.values() if isinstance(item, list)]
        named = (value[key] for key in ("documents", "docs", "results") if isinstance(value.get(key), list))
        return next(named, lists[0] if len(lists) == 1 else None)
    return None


def read_texts_of_documents(items: list[Any]) -> Iterator[RetrievedChunk]:
    """Yield the documents that have a text; a document with only an id and a score is skipped."""
    for item in items:
        chunk = read_chunk(parse_json_text(item))
        if chunk is not None and chunk.text.strip():
            yield chunk
