"""Agent records in other tools' files: conversations with tool messages (RAGAS) and lists of tool calls (DeepEval).

Tool output is evidence; the agent's messages before its last one are the trace. A record with more than one question
is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from eclose.errors import RecordError
from eclose.store.records.json_reader import JsonObject

# RAGAS writes LangChain's message types (human, ai), other tools the roles of chat APIs (user, assistant).
_QUESTION_ROLES = ("human", "user")
_ANSWER_ROLES = ("ai", "assistant")
_ROLES = (*_QUESTION_ROLES, *_ANSWER_ROLES, "tool", "function", "system")


@dataclass(frozen=True, slots=True)
class AgentConversation:
    """One question, the messages and tool outputs that followed it, and the last message."""

    question: Any
    items: list[JsonObject]
    last: Any


def is_message_list(value: object) -> bool:
    """Return whether the value is a non-empty list of message objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)


def parse_agent_conversation(messages: list[JsonObject], column: str, response: object = None) -> AgentConversation:
    """Return the conversation about one question. Its last message is the response, unless ``response`` differs."""
    for number, message in enumerate(messages):
        if _role(message) not in _ROLES:
            raise RecordError(f"{column}[{number}]: its type should be human, ai or tool (or its role user, assistant)")
        if not isinstance(message.get("content"), str | None):
            raise RecordError(f"{column}[{number}].content: should be a text")
    turns = [message for message in messages if _role(message) != "system"]
    questions = [message for message in turns if _role(message) in _QUESTION_ROLES]
    if len(questions) != 1:
        raise RecordError(
            f"{column}: holds {len(questions)} messages of a person, and one question is judged at a time. Write a "
            "record for each question, with the messages that answer it."
        )
    if turns[0] is not questions[0]:
        raise RecordError(f"{column}: its first message should be the question, of type human")
    items, last = turns[1:], response
    # A response column that repeats the last message is the same text, not another step of the trace.
    if items and _role(items[-1]) in _ANSWER_ROLES and response in (None, items[-1].get("content")):
        last = items.pop().get("content")
    return AgentConversation(questions[0].get("content"), items, last)


def _role(message: JsonObject) -> str:
    return str(message.get("type") or message.get("role") or "").lower()


def parse_deepeval_tool_calls(calls: object, column: str) -> list[JsonObject]:
    """Return DeepEval's tool calls as trajectory items: the reasoning is a thought, the output an observation."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RecordError(f"{column}: should be a list of objects with a name, and an output where there was one")
    items: list[JsonObject] = []
    for number, call in enumerate(calls):
        reasoning, output = call.get("reasoning"), call.get("output")
        if not isinstance(reasoning, str | None):
            raise RecordError(f"{column}[{number}].reasoning: should be a text")
        # Tools may return JSON; as text it becomes a passage like any other observation.
        if output is not None and not isinstance(output, str):
            output = json.dumps(output, ensure_ascii=False)
        items.append({"thought": reasoning or "", "observation": output or ""})
    return items
