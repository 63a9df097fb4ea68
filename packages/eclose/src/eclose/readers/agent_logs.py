"""Agent records in other tools' files: conversations with tool messages, lists of tool calls, intermediate steps.

Tool output is evidence; the agent's messages before its last one are the trace. Messages are read as RAGAS, LangChain,
the chat completions and the Responses API of OpenAI, and Anthropic write them. A record with more than one question is
an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from eclose.errors import RecordError
from eclose.files.json_reader import JsonObject
from eclose.readers.spans.documents import find_documents, unwrap_serialized

# RAGAS writes LangChain's message types (human, ai), other tools the roles of chat APIs (user, assistant).
_QUESTION_ROLES = ("human", "user")
_ANSWER_ROLES = ("ai", "assistant", "aimessagechunk")
_TOOL_ROLES = ("tool", "function")
_SYSTEM_ROLES = ("system", "developer")
_ROLES = (*_QUESTION_ROLES, *_ANSWER_ROLES, *_TOOL_ROLES, *_SYSTEM_ROLES)

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
# Parts in which a model calls a tool or has its reasoning encrypted: neither step nor evidence.
_SILENT_PARTS = ("tool_use", "tool_call", "function_call", "server_tool_use", "redacted_thinking")
_REACT_ACTION = re.compile(r"^\s*(?:Action(?: Input)?\s*:|Invoking:)", re.MULTILINE)
_RESPONDED = re.compile(r"^responded:\s*(?P<text>.*)", re.MULTILINE | re.DOTALL)


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
    turns = [
        item
        for number, message in enumerate(messages)
        for item in _normalise_message(unwrap_serialized(message), f"{column}[{number}]")
        if _role(item) not in _SYSTEM_ROLES
    ]
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
        closing = items.pop()
        last = closing.get("content")
        if closing.get("thought"):
            items.append({"role": "assistant", "thought": closing["thought"]})
    return AgentConversation(questions[0].get("content"), items, last)


def _role(message: JsonObject) -> str:
    return str(message.get("type") or message.get("role") or "").lower()


def _normalise_message(message: JsonObject, where: str) -> list[JsonObject]:
    """Return a message as items with texts: itself where it is plain, one item for each document of a tool."""
    names = [str(message.get(key) or "").lower() for key in ("type", "role")]
    role = next((name for name in names if name in _ROLES), None)
    if role is None:
        if (items := _read_output_item(message, names[0])) is not None:
            return items
        raise RecordError(f"{where}: its type should be human, ai or tool (or its role user, assistant)")
    content = message.get("content")
    if role in _TOOL_ROLES:
        # A LangChain tool returns its documents as the artifact, and their texts joined as the content.
        content = message["artifact"] if find_documents(message.get("artifact")) else content
        plain = isinstance(content, str | None) and find_documents(content) is None
        return [message] if plain else list_observations(content)
    reasoning = _find_reasoning(message)
    if isinstance(content, str | None) and reasoning is None and _role(message) == role:
        return [message]
    parts = _MessageParts(thoughts=[] if reasoning is None else [reasoning])
    if isinstance(content, str):
        parts.texts.append(content)
    elif content is not None:
        parts.read(content, f"{where}.content")
    if parts.observations and not parts.texts:
        # Anthropic sends tool results in messages of the user.
        return parts.observations
    item: JsonObject = {"role": role, "content": "\n".join(parts.texts) if parts.texts else None}
    if parts.thoughts:
        item["thought"] = "\n".join(parts.thoughts)
    return [*parts.observations, item]


@dataclass(frozen=True, slots=True)
class _MessageParts:
    """The texts of a message, the reasoning before them, and the tool results among them."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    observations: list[JsonObject] = field(default_factory=list)

    def read(self, content: Any, where: str) -> None:
        """Add the parts of a message's content."""
        if not is_message_list(content) and content != []:
            raise RecordError(f"{where}: should be a text")
        for number, part in enumerate(content):
            self._read_part(part, f"{where}[{number}]")

    def _read_part(self, part: JsonObject, where: str) -> None:
        kind = str(part.get("type") or "").lower()
        reasoning = _find_reasoning(part)
        if reasoning is not None:
            self.thoughts.append(reasoning)
        elif kind in ("tool_result", "tool_call_response") or "tool_call_result" in part:
            result = part.get("tool_call_result", part)
            self.observations.extend(list_observations(_first_value(result, ("content", "response", "result"))))
        elif kind in (*_TEXT_PARTS, "") and isinstance(text := _first_value(part, ("text", "refusal", "content")), str):
            self.texts.append(text)
        elif kind not in _SILENT_PARTS and "tool_call" not in part:
            raise RecordError(
                f"{where}: is a part of type {kind or 'unknown'!r} without a text, which cannot be judged"
            )


def _find_reasoning(fields: JsonObject) -> str | None:
    """Return the reasoning of a message, of one of its parts, or of an item of the Responses API; None without one."""
    for key in ("reasoning_content", "reasoning", "thinking", "summary"):
        value = fields.get(key)
        if key == "summary" and str(fields.get("type")) != "reasoning":
            continue
        if isinstance(value, dict):
            value = _first_value(value, ("reasoning_text", "content", "text"))
        if isinstance(value, list):
            value = "\n".join(str(part["text"]) for part in value if isinstance(part, dict) and part.get("text"))
        if isinstance(value, str) and value.strip():
            return value
    return None


def _read_output_item(item: JsonObject, kind: str) -> list[JsonObject] | None:
    """Return an item of the Responses API other than a message: reasoning, a call, or its output. None for no such."""
    if kind == "reasoning":
        reasoning = _find_reasoning({**item, "reasoning": item.get("content")})
        return [] if reasoning is None else [{"role": "assistant", "thought": reasoning}]
    if kind.endswith(("_call", "_output", "_result")) or kind in ("mcp_list_tools", "mcp_approval_request"):
        # Calls of hosted tools hold their results; other calls hold a request alone.
        output = _first_value(item, ("results", "output", "outputs"))
        return [] if output is None else list_observations(output)
    return None


def _first_value(fields: Any, keys: tuple[str, ...]) -> Any:
    return (
        next((fields[key] for key in keys if fields.get(key) is not None), None) if isinstance(fields, dict) else fields
    )


def list_observations(output: Any) -> list[JsonObject]:
    """Return tool output as trajectory items: one for each document of a list, else one for all of it."""
    content = unwrap_serialized(output)
    if is_message_list(content) and all(part.get("type") in _TEXT_PARTS and "text" in part for part in content):
        # Parts of a tool's message; each may hold a list of documents as JSON.
        return [item for part in content for item in list_observations(part["text"])]
    documents = find_documents(content)
    if documents is not None:
        return [{"observation": chunk.text, "title": chunk.title} for chunk in documents]
    if content is None or content == "":
        return []
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return [{"observation": text}]


def parse_deepeval_tool_calls(calls: object, column: str) -> list[JsonObject]:
    """Return DeepEval's tool calls as trajectory items: the reasoning is a thought, the output an observation."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise RecordError(f"{column}: should be a list of objects with a name, and an output where there was one")
    items: list[JsonObject] = []
    for number, call in enumerate(calls):
        reasoning = call.get("reasoning")
        if not isinstance(reasoning, str | None):
            raise RecordError(f"{column}[{number}].reasoning: should be a text")
        first, *others = list_observations(call.get("output")) or [{"observation": ""}]
        items += [{"thought": reasoning or "", **first}, *others]
    return items


def parse_intermediate_steps(steps: object, column: str) -> list[JsonObject]:
    """Return LangChain's pairs of action and observation as trajectory items; the log before an action is a thought."""
    if not isinstance(steps, list):
        raise RecordError(f"{column}: should be a list of pairs of an action and its observation")
    items: list[JsonObject] = []
    for number, step in enumerate(steps):
        if not isinstance(step, list) or len(step) != 2:
            raise RecordError(f"{column}[{number}]: should be a pair of an action and its observation")
        action, observation = unwrap_serialized(step[0]), step[1]
        log = action.get("log") if isinstance(action, dict) else action
        if not isinstance(log, str | None):
            raise RecordError(f"{column}[{number}][0].log: should be a text")
        items += [{"thought": _thought_of_log(log or "")}, *list_observations(observation)]
    return items


def _thought_of_log(log: str) -> str:
    """Return the reasoning of an action's log, without the call itself."""
    if (responded := _RESPONDED.search(log)) is not None:
        return responded["text"].strip()
    before = _REACT_ACTION.split(log, maxsplit=1)[0].strip()
    return before.removeprefix("Thought:").strip()
