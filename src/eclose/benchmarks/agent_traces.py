"""Records of agents in other tools' files: conversations with tools (RAGAS) and lists of calls (DeepEval).

What tools returned is evidence, what the agent said before its last message is the trace. One question a record:
anything else is refused rather than cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from eclose.errors import RecordError
from eclose.store.records.json_reader import JsonObject

_ASKING = ("human", "user")
_ANSWERING = ("ai", "assistant")
_KNOWN = (*_ASKING, *_ANSWERING, "tool", "function", "system")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One question, what was said and returned on the way, and the last message."""

    question: Any
    items: list[JsonObject]
    last: Any


def is_conversation(value: object) -> bool:
    """Whether this is a list of messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)


def read_conversation(messages: list[JsonObject], column: str, response: object = None) -> Conversation:
    """The messages of one question. The last one is the response, unless there is another beside them."""
    for number, message in enumerate(messages):
        if _speaker(message) not in _KNOWN:
            raise RecordError(f"{column}[{number}]: its type should be human, ai or tool (or its role user, assistant)")
        if not isinstance(message.get("content"), str | None):
            raise RecordError(f"{column}[{number}].content: should be a text")
    spoken = [message for message in messages if _speaker(message) != "system"]
    asked = [message for message in spoken if _speaker(message) in _ASKING]
    if len(asked) != 1:
        raise RecordError(
            f"{column}: holds {len(asked)} messages of a person, and one question is judged at a time. Write a record "
            "for each question, with the messages that answer it."
        )
    if spoken[0] is not asked[0]:
        raise RecordError(f"{column}: its first message should be the question, of type human")
    items, last = spoken[1:], response
    if items and _speaker(items[-1]) in _ANSWERING and response in (None, items[-1].get("content")):
        last = items.pop().get("content")
    return Conversation(asked[0].get("content"), items, last)


def _speaker(message: JsonObject) -> str:
    return str(message.get("type") or message.get("role") or "").lower()


def read_tool_calls(calls: object, column: str) -> list[JsonObject]:
    """DeepEval's calls of tools: the reasoning of a call is a thought, its output an observation."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RecordError(f"{column}: should be a list of objects with a name, and an output where there was one")
    items: list[JsonObject] = []
    for number, call in enumerate(calls):
        reasoning, output = call.get("reasoning"), call.get("output")
        if not isinstance(reasoning, str | None):
            raise RecordError(f"{column}[{number}].reasoning: should be a text")
        if output is not None and not isinstance(output, str):
            output = json.dumps(output, ensure_ascii=False)
        items.append({"thought": reasoning or "", "observation": output or ""})
    return items
