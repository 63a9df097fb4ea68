"""Find questions, answers, messages and documents in the input and output of a span."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eclose.errors import RecordError
from eclose.readers.spans.documents import RetrievedChunk, parse_listing, read_chunk
from eclose.readers.spans.selection import parse_json_text
from eclose.readers.spans.span import as_text, first_attribute
from eclose.reading.messages import Part, PartKind, find_role, join_texts, read_parts, unwrap_message
from eclose.reading.shapes import MODEL_ROLES, SUBMITTING, USER_ROLES
from eclose.reading.slots import Slots, find_object

# Keys under which applications store a question or an answer, most specific first.
_QUESTION_KEYS = (
    "question",
    "query",
    "user_query",
    "user_input",
    "input",
    "prompt",
    "text",
    "content",
    "message",
    "task",
)
# Keys that name a question wherever they stand, as the inputs of a pipeline do for each of its components.
_NESTED_QUESTION_KEYS = frozenset({"question", "query", "user_query", "user_input"})
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
_GIVEN_KEYS = ("context", "contexts", "documents", "source_documents", "passages")
_WRAPPED_MESSAGES = ("messages", "message", "choices", "generations", "outputs", "output")
_STRUCTURED = "structured_response"
_MAX_DEPTH = 8
# What Python prints of an object, in place of its texts: "StopEvent(result=...", "<module.Context object at 0x...".
_PRINTED_OBJECT = re.compile(r"[A-Z][a-z]+[A-Z]\w*\((?:\w+=|\))|<[\w.]+ object at 0x")


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A chat message with its text, its reasoning and the results of its tools."""

    role: str
    text: str
    reasoning: tuple[str, ...] = ()
    tool_results: tuple[Any, ...] = ()
    submitted: str | None = None
    """The answer in the call of a tool that submits it."""

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
    return ChatMessage(role, join_texts(texts), reasoning, results, _find_submitted(parts))


def _find_submitted(parts: list[Part]) -> str | None:
    calls = [part for part in parts if part.kind is PartKind.CALL and part.name.lower() in SUBMITTING]
    value = calls[-1].value if calls else None
    if isinstance(value, Mapping):
        slots = find_object(value, "output tool")
        only = next(iter(value.values())) if len(value) == 1 else None
        value = slots.answer if slots is not None and slots.has_answer else only
    return as_text(value)


def find_slots(output: Any) -> Slots | None:
    """Return the slots of an output that holds trace and answer apart, as a prediction of DSPy does; else None."""
    value = parse_json_text(output)
    slots = find_object(value) if isinstance(value, Mapping) else None
    return slots if slots is not None and slots.has_answer and slots.trace else None


def read_result(output: Any) -> Any:
    """Return what a tool returned, without the message or the parts of a text around it; None for an error."""
    value = parse_json_text(output)
    if not isinstance(value, Mapping):
        return output
    if find_role(unwrap_message(value)):
        return next((result for message in read_messages(value) or () for result in message.tool_results), None)
    for key in ("content", "blocks"):
        parts = value.get(key)
        if isinstance(parts, list) and parts and all(isinstance(part, Mapping) and "text" in part for part in parts):
            return "\n".join(str(part["text"]) for part in parts)
    return output


def find_questions(value: Any) -> list[str]:
    """Return the questions of an input: the texts of user messages, or the text under a key such as ``question``.

    >>> find_questions({"question": "Where was Ada born?", "top_k": 3})
    ['Where was Ada born?']
    """
    value = parse_json_text(value)
    if (messages := read_messages(value)) is not None:
        return list(dict.fromkeys(message.text for message in messages if message.is_question))
    if isinstance(value, Mapping) and not first_attribute(value, _QUESTION_KEYS):
        nested = set(_find_nested_questions(value, 0))
        if len(nested) == 1:
            return [*nested]
    return _find_texts(value, _QUESTION_KEYS, find_questions)


def _find_nested_questions(value: Any, depth: int) -> Iterator[str]:
    if not isinstance(value, Mapping) or depth > _MAX_DEPTH:
        return
    for key, item in value.items():
        if key in _NESTED_QUESTION_KEYS and (text := _as_said(item)):
            yield text
        yield from _find_nested_questions(item, depth + 1)


def find_answer(value: Any) -> str | None:
    """Return the answer of an output: the last message of a model, or the text under a key such as ``answer``."""
    value = parse_json_text(value)
    if isinstance(value, Mapping) and isinstance(value.get(_STRUCTURED), Mapping):
        return find_answer(value[_STRUCTURED])
    if (messages := read_messages(value)) is not None:
        replies = (message.submitted or message.text for message in reversed(messages) if message.is_reply)
        return next((reply for reply in replies if reply), None)
    texts = _find_texts(value, _ANSWER_KEYS, lambda item: [text] if (text := find_answer(item)) else [])
    return texts[0] if len(texts) == 1 else None


def _find_texts(value: Any, keys: tuple[str, ...], find: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if _as_said(value) else []
    if isinstance(value, list):
        # The arguments of a traced function may be a list with the question alone.
        return find(value[0]) if len(value) == 1 else [item for item in value if _as_said(item)]
    if not isinstance(value, Mapping):
        return []
    for key in keys:
        if value.get(key) not in (None, "", [], {}):
            return list(find(value[key]))
    texts = [item for item in value.values() if _as_said(item)]
    return list(find(next(iter(value.values())))) if len(value) == 1 else texts if len(texts) == 1 else []


def _as_said(value: Any) -> str | None:
    """Return a text of a person or a model; None for any other value and for what Python prints of an object."""
    text = as_text(value)
    return None if text is None or _PRINTED_OBJECT.match(text) else text


def find_document_list(value: Any) -> list[Any] | None:
    """Return the list of documents in the output of a retriever: the output itself, or the only list in it."""
    value = parse_listing(value)
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        lists = [item for item in value.values() if isinstance(item, list)]
        named = (value[key] for key in ("documents", "docs", "results") if isinstance(value.get(key), list))
        return next(named, lists[0] if len(lists) == 1 else None)
    return None


def find_given_documents(value: Any) -> list[Any]:
    """Return the documents that the input of a case holds beside its question, as that of a RAG chain does."""
    value = parse_json_text(value)
    if not isinstance(value, Mapping):
        return []
    if len(value) == 1:
        return find_given_documents(next(iter(value.values())))
    return next((value[key] for key in _GIVEN_KEYS if isinstance(value.get(key), list)), [])


def read_texts_of_documents(items: list[Any]) -> Iterator[RetrievedChunk]:
    """Yield the documents that have a text; a document with only an id and a score is skipped."""
    for item in items:
        chunk = read_chunk(parse_json_text(item))
        if chunk is not None and chunk.text.strip():
            yield chunk
