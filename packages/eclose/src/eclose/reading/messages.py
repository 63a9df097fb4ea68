"""Messages of any producer as parts: what a user asked, what a model said, thought and called, what tools returned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eclose.errors import RecordError
from eclose.reading import shapes

_MAX_DEPTH = 12


class PartKind(StrEnum):
    """What a part of a conversation is."""

    USER = "user"
    CALL = "call"
    RESULT = "result"
    HIDDEN = "hidden"
    SAID = "said"
    """Visible text of a model; the last of a response is its reply."""
    COMMENTARY = "commentary"
    """Visible text that its producer marks as no reply."""
    REFUSAL = "refusal"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a conversation."""

    kind: PartKind
    text: str = ""
    name: str = ""
    """Name of the tool that was called or returned something."""
    value: Any = None
    """Arguments of a call, or what a tool returned."""
    is_error: bool = False
    message: int = 0
    """Number of the message, so that texts of one message are joined."""


def is_message_list(value: object) -> bool:
    """Return whether the value is a non-empty list of message objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)


def parse_json_text(value: Any) -> Any:
    """Return the JSON value of a text that holds an object or a list; any other value unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    # A text may start with a bracket and still be prose; a number may be too long to read.
    except (ValueError, RecursionError):
        return value


def nest_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat attributes such as ``llm.output_messages.0.message.role`` with their lists built up."""
    nested: dict[str, Any] = {}
    for name, value in attributes.items():
        head, _, rest = name.partition("_messages.")
        if not rest:
            nested[name] = value
            continue
        target: Any = nested.setdefault(f"{head}_messages", {})
        *keys, last = [key for key in rest.split(".") if key not in ("message", "message_content", "tool_call")]
        for key in keys:
            target = target.setdefault(key, {}) if isinstance(target, dict) else {}
        if isinstance(target, dict):
            target[last] = value
    return {name: _number_lists(value) for name, value in nested.items()}


def _number_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if all(str(key).isdigit() for key in value):
        return [_number_lists(value[key]) for key in sorted(value, key=int)]
    return {("content" if key == "contents" else key): _number_lists(item) for key, item in value.items()}


def read_parts(value: Any, where: str = "messages") -> list[Part]:
    """Return the parts of messages, items, deltas or steps, in order.

    Raises:
        RecordError: A message or a part has no known shape; the error names its keys.
    """
    parts: list[Part] = []
    items = value if isinstance(value, list) else [value]
    for number, item in enumerate(items):
        position = f"{where}[{number}]" if isinstance(value, list) else where
        parts += _read_item(item, position, number, 0)
    return parts


def _read_item(item: Any, where: str, number: int, depth: int) -> Iterator[Part]:
    if depth > _MAX_DEPTH or item is None:
        return
    if isinstance(item, str):
        yield Part(PartKind.SAID, item, message=number)
    elif isinstance(item, list):
        yield from _read_pair(item, where, number, depth)
    elif isinstance(item, Mapping):
        yield from _read_mapping(unwrap_message(item), where, number, depth)
    else:
        raise RecordError(f"{where}: is neither a text nor a message")


def _read_pair(item: list[Any], where: str, number: int, depth: int) -> Iterator[Part]:
    """Yield a pair of an action and its observation, as LangChain writes it, or the messages of a list."""
    if len(item) == 2 and isinstance(action := unwrap_message(item[0]), Mapping) and {"tool", "log"} & action.keys():
        log = action.get("log")
        if not isinstance(log, str | None):
            raise RecordError(f"{where}[0].log: should be a text")
        if thought := take_thought(log or ""):
            yield Part(PartKind.SAID, thought, message=number)
        yield Part(PartKind.CALL, name=str(action.get("tool") or ""), value=action.get("tool_input"), message=number)
        yield make_result(item[1], str(action.get("tool") or ""), number)
        return
    for position, inner in enumerate(item):
        yield from _read_item(inner, f"{where}[{position}]", number, depth + 1)


def unwrap_message(item: Any) -> Any:
    """Return the fields of a message that LangChain serialized or another producer wrapped."""
    if not isinstance(item, Mapping):
        return item
    if "kwargs" in item and isinstance(item["kwargs"], Mapping) and isinstance(item.get("id"), list) and item["id"]:
        return {"type": str(item["id"][-1]).lower(), **item["kwargs"]}
    if item.keys() == {"type", "data"} and isinstance(item["data"], Mapping):
        return {"type": item["type"], **item["data"]}
    return item


def find_role(item: Mapping[str, Any]) -> str:
    """Return the role of a message by its role, type or kind; empty where it has none."""
    if item.get("type") in ("TextMessage", "ThoughtEvent", "MultiModalMessage") and "source" in item:
        return "user" if str(item["source"]).lower() in ("user", "user_proxy") else "assistant"
    for key in shapes.ROLE_KEYS:
        value = item.get(key)
        value = value.get("label", value.get("Label")) if isinstance(value, Mapping) else value
        name = str(value or "").lower().rpartition(".")[2]
        if name in shapes.ROLES:
            return name
    return ""


def _kind_of(item: Mapping[str, Any]) -> str:
    kind = next(
        (
            item[key]
            for key in ("type", "part_kind", "block_type", "kind", "$type", "message_type")
            if isinstance(item.get(key), str)
        ),
        "",
    )
    return str(kind).lower()


def _read_mapping(item: Mapping[str, Any], where: str, number: int, depth: int) -> Iterator[Part]:
    if item.get("type") == "handoff_output_item":
        return
    if isinstance(item.get("raw_item"), Mapping):
        item = item["raw_item"]
    special = _read_special(item, where, number, depth)
    if special is not None:
        yield from special
        return
    kind, role = _kind_of(item), find_role(item)
    _refuse_role(item, role, kind, where)
    if item.get("channel") in ("analysis", "commentary") and isinstance(item.get("content"), str):
        hidden = PartKind.HIDDEN if item["channel"] == "analysis" else PartKind.COMMENTARY
        yield Part(hidden, item["content"], message=number)
    elif role in shapes.USER_ROLES or role in shapes.OTHER_ROLES:
        yield from _read_request(item, role, where, number)
    elif role in shapes.TOOL_ROLES:
        yield from _read_tool_message(item, number)
    elif kind == "request" and isinstance(item.get("parts"), list):
        yield from (part for inner in item["parts"] for part in _read_mapping(inner, where, number, depth + 1))
    elif kind in _PART_TYPES or _is_hosted_call(kind):
        yield from _read_part(item, where, number)
    elif role in shapes.MODEL_ROLES or _holds_message(item):
        yield from _read_model_message(item, where, number)
    else:
        yield from _read_wrapped(item, where, number, depth)


_PART_TYPES = shapes.RESULT_TYPES | shapes.CALL_TYPES | shapes.HIDDEN_TYPES
_NO_CONTENT = frozenset(
    (
        "finish_reason",
        "finishReason",
        "safetyRatings",
        "tokenCount",
        "index",
        "logprobs",
        "usage",
        "id",
        "object",
        "text",
    )
)


def _read_wrapped(item: Mapping[str, Any], where: str, number: int, depth: int) -> Iterator[Part]:
    """Yield the parts of an object that wraps a message or is a part itself."""
    wrapper = next((key for key in shapes.WRAPPERS if isinstance(item.get(key), Mapping)), None)
    if wrapper is not None:
        outer = {"type": item["type"]} if depth == 0 and str(item.get("type")) in shapes.ROLES else {}
        yield from _read_item({**outer, **item[wrapper]}, where, number, depth + 1)
    elif _kind_of(item) not in shapes.SILENT_TYPES and (item.keys() - _NO_CONTENT or item.get("text")):
        yield from _read_part(item, where, number)


def _refuse_role(item: Mapping[str, Any], role: str, kind: str, where: str) -> None:
    """Raise where a message has a role that is not known."""
    if not role and isinstance(item.get("role"), str) and item["role"] and kind not in _PART_TYPES:
        keys = ", ".join(repr(key) for key in sorted(map(str, item))[:20])
        raise RecordError(
            f"{where}: its type should be human, ai or tool (or its role user, assistant), and its role is "
            f"{item['role']!r}. Keys seen: {keys}"
        )


def _read_special(item: Mapping[str, Any], where: str, number: int, depth: int) -> Iterator[Part] | None:
    """Return the parts of steps and chunks that are no messages: agents' steps, trajectories, choices."""
    for key in ("choices", "candidates"):
        if isinstance(item.get(key), list) and item[key]:
            return (part for choice in item[key][:1] for part in _read_item(choice, where, number, depth + 1))
    if _kind_of(item) in shapes.STREAM_TYPES:
        return _read_chunk(item, number)
    if {"model_output", "step_number", "task", "plan", "tool_calls", "observations"} & item.keys() and (
        "model_output" in item or "plan" in item or ("task" in item and "role" not in item)
    ):
        return _read_agent_step(item, number)
    if any(key.startswith("thought_") for key in item):
        return _read_trajectory(item, number)
    named = {"name", "output", "reasoning", "inputParameters", "input_parameters", "description", "input"}
    if "name" in item and item.keys() <= named:
        return _read_named_call(item, where, number)
    thought = item.get("thought")
    if (
        isinstance(thought, str) or item.get("observation") is not None or item.get("action") is not None
    ) and not find_role(item):
        return _read_thought_step(item, number)
    return None


def _read_chunk(item: Mapping[str, Any], number: int) -> Iterator[Part]:
    """Yield the text of an event of a stream; events that only begin or end something hold none."""
    delta = item.get("delta")
    fields = delta if isinstance(delta, Mapping) else {"text": delta} if isinstance(delta, str) else {}
    text = next((fields[key] for key in ("text", "thinking", "content") if isinstance(fields.get(key), str)), None)
    is_hidden = "thinking" in fields or "reasoning" in _kind_of(item)
    if text and not _kind_of(item).endswith("arguments.delta"):
        yield Part(PartKind.HIDDEN if is_hidden else PartKind.SAID, text, message=-1)
    block = item.get("content_block")
    if isinstance(block, Mapping) and _kind_of(block) in shapes.CALL_TYPES:
        yield _read_call(block, number)


def _read_agent_step(item: Mapping[str, Any], number: int) -> Iterator[Part]:
    """Yield a step of smolagents: its thought, its call and its observations; plans and tasks are none of these."""
    if isinstance(item.get("model_output"), str):
        yield Part(PartKind.SAID, strip_code(item["model_output"]), message=number)
    if item.get("is_final_answer"):
        calls = item.get("tool_calls")
        parts = [_read_call(call, number) for call in calls] if isinstance(calls, list) else []
        submitted = [part for part in parts if part.name.lower() in shapes.SUBMITTING]
        output = item.get("action_output")
        if output is None and submitted:
            # An agent that calls tools gives the answer in the call alone; one that writes code, in its output.
            yield submitted[-1]
        else:
            yield Part(PartKind.CALL, name="final_answer", value={"answer": output}, message=number)
    elif item.get("tool_calls") or item.get("code_action"):
        yield Part(PartKind.CALL, message=number)
        if item.get("observations"):
            yield Part(PartKind.RESULT, value=item["observations"], is_error=bool(item.get("error")), message=number)


def _read_trajectory(item: Mapping[str, Any], number: int) -> Iterator[Part]:
    """Yield the steps of DSPy's ReAct; its thoughts are exploration that no user sees."""
    step = 0
    while any(key.endswith(f"_{step}") for key in item):
        if isinstance(thought := item.get(f"thought_{step}"), str):
            yield Part(PartKind.HIDDEN, thought, message=number)
        name = str(item.get(f"tool_name_{step}") or "")
        if name and name != "finish":
            yield Part(PartKind.CALL, name=name, value=item.get(f"tool_args_{step}"), message=number)
            yield make_result(item.get(f"observation_{step}"), name, number)
        step += 1


def _read_named_call(item: Mapping[str, Any], where: str, number: int) -> Iterator[Part]:
    """Yield a call that has its output beside it, as DeepEval writes it: its reasoning says why it is made."""
    reasoning = item.get("reasoning")
    if not isinstance(reasoning, str | None):
        raise RecordError(f"{where}.reasoning: should be a text")
    if reasoning:
        yield Part(PartKind.SAID, reasoning, message=number)
    yield Part(PartKind.CALL, name=str(item["name"]), message=number)
    if item.get("output") is not None:
        yield make_result(item["output"], str(item["name"]), number)


def _read_thought_step(item: Mapping[str, Any], number: int) -> Iterator[Part]:
    if isinstance(item.get("thought"), str):
        yield Part(PartKind.SAID, item["thought"], message=number)
    if item.get("action") is not None:
        yield Part(PartKind.CALL, name=str(item["action"]), value=item.get("action_input"), message=number)
    if item.get("observation") is not None:
        yield make_result(item["observation"], "", number)


def _holds_message(item: Mapping[str, Any]) -> bool:
    """Return whether an object without a role holds what only a model's message does, as a delta or a generation."""
    return (
        not _kind_of(item)
        and bool(
            {"tool_calls", "toolCalls", "reasoning_content", "content", "blocks"} & item.keys()
            or isinstance(item.get("parts"), list)
            or ("text" in item and "finishReason" in item)
        )
        and not isinstance(item.get("content"), Mapping)
    )


def _read_request(item: Mapping[str, Any], role: str, where: str, number: int) -> Iterator[Part]:
    """Yield the text of a user or of the system; tools' results, which some APIs send as a user, are results."""
    texts: list[str] = []
    content = next((item[key] for key in shapes.CONTENT_KEYS if item.get(key) is not None), None)
    results: list[Part] = []
    for position, part in enumerate(content if isinstance(content, list) else [content]):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping):
            kind = _kind_of(part)
            if kind in shapes.MEDIA_TYPES and role in shapes.USER_ROLES:
                raise RecordError(
                    f"{where}.content[{position}]: is a part of type {kind!r} without a text, which cannot be judged"
                )
            if kind in shapes.RESULT_TYPES or any(key in part for key in shapes.RESULT_KEYS):
                results += _read_part(part, where, number)
            elif kind in ("user-prompt", "system-prompt") or kind in shapes.TEXT_TYPES or not kind:
                own = next((own for key in ("text", "content") if (own := _take_text(part.get(key)))), None)
                texts += [own] if own and kind != "system-prompt" else []
        elif part is not None:
            raise RecordError(f"{where}.content: should be a text")
    if results:
        yield from results
    text = "\n".join(text for text in texts if text.strip())
    if role in shapes.USER_ROLES and text:
        yield Part(PartKind.USER, text, message=number)
    elif text:
        yield Part(PartKind.SYSTEM, text, message=number)


def _take_text(value: Any) -> str | None:
    """Return a text, which some APIs wrap as ``{"value": text}``; None for anything else."""
    value = value.get("value") if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else None


def _read_tool_message(item: Mapping[str, Any], number: int) -> Iterator[Part]:
    name = str(item.get("name") or item.get("tool_name") or "")
    content = next((item[key] for key in (*shapes.CONTENT_KEYS, "output", "result") if item.get(key) is not None), None)
    # A LangChain tool returns its documents as the artifact, and their texts joined as the content.
    artifact = item.get("artifact")
    if isinstance(artifact, list) and artifact:
        content = artifact
    if isinstance(content, list) and all(isinstance(part, Mapping) for part in content):
        kinds = {_kind_of(part) for part in content}
        if kinds & shapes.RESULT_TYPES or any(
            key in part for part in content for key in (*shapes.RESULT_KEYS, "call_id")
        ):
            for part in content:
                yield from _read_part({"type": "tool_result", **part}, "", number)
            return
    yield make_result(content, name, number, is_error=_says_error(item))


def make_result(value: Any, name: str, number: int, *, is_error: bool = False) -> Part:
    """Return what a tool returned as a part; an error object is no evidence."""
    inner = parse_json_text(value)
    failed = is_error or (isinstance(inner, Mapping) and _says_error(inner))
    return Part(PartKind.RESULT, name=name, value=value, is_error=failed, message=number)


def _says_error(item: Mapping[str, Any]) -> bool:
    return any(item.get(key) is True for key in shapes.ERROR_KEYS) or str(item.get("status")).lower() == "error"


def _is_hosted_call(kind: str) -> bool:
    return kind.endswith(("_call", "_call_output")) or kind.startswith("tool-") or kind in shapes.SILENT_TYPES


def _read_model_message(item: Mapping[str, Any], where: str, number: int) -> Iterator[Part]:
    """Yield thinking, texts, calls and results of a model's message, in this order unless its parts have another."""
    if (hidden := find_hidden(item)) is not None:
        yield Part(PartKind.HIDDEN, hidden, message=number)
    content = next((item[key] for key in shapes.CONTENT_KEYS if item.get(key) not in (None, "", [])), None)
    is_commentary = item.get("phase") == "commentary" or item.get("channel") == "commentary"
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield Part(PartKind.COMMENTARY if is_commentary else PartKind.SAID, part, message=number)
        elif isinstance(part, Mapping):
            for inner in _read_part(part, where, number):
                commented = is_commentary and inner.kind is PartKind.SAID
                yield Part(PartKind.COMMENTARY, inner.text, message=number) if commented else inner
        elif part is not None:
            raise RecordError(f"{where}.content: should be a text")
    if isinstance(item.get("refusal"), str) and item["refusal"] and content is not item["refusal"]:
        yield Part(PartKind.REFUSAL, item["refusal"], message=number)
    for key in shapes.CALL_KEYS:
        calls = item.get(key)
        for call in calls if isinstance(calls, list) else [calls] if calls else []:
            yield _read_call(call, number)
    for key in shapes.RESULT_KEYS:
        results = item.get(key)
        for result in results if isinstance(results, list) else [results] if results else []:
            yield _result_of(result, number)


def _read_call(call: Any, number: int) -> Part:
    """Return a call with its name and arguments, wherever its producer nests them."""
    fields = call if isinstance(call, Mapping) else {}
    inner = next(
        (
            fields[key]
            for key in ("function", "tool_call", "functionCall", "toolUse")
            if isinstance(fields.get(key), Mapping)
        ),
        fields,
    )
    name = next(
        (inner[key] for key in ("name", "tool_name", "toolName", "functionName") if isinstance(inner.get(key), str)), ""
    )
    arguments = next(
        (inner[key] for key in ("arguments", "args", "input", "parameters") if inner.get(key) is not None), None
    )
    return Part(PartKind.CALL, name=name, value=parse_json_text(arguments), message=number)


def _result_of(result: Any, number: int) -> Part:
    fields = result if isinstance(result, Mapping) else {"content": result}
    value = next((fields[key] for key in shapes.RESULT_VALUES if fields.get(key) is not None), None)
    origin = fields.get("origin")
    origin = origin if isinstance(origin, Mapping) else {}
    name = next(
        (
            str(position[key])
            for position in (fields, origin)
            for key in ("name", "tool_name", "toolName")
            if position.get(key)
        ),
        "",
    )
    return make_result(value, name, number, is_error=_says_error(fields))


def find_hidden(item: Mapping[str, Any]) -> str | None:
    """Return the thinking of a message or a part; None without one."""
    for key in shapes.HIDDEN_KEYS:
        if key == "summary" and _kind_of(item) != "reasoning":
            continue
        if text := _join_hidden(item.get(key)):
            return text
    return None


def _join_hidden(value: Any) -> str:
    if isinstance(value, str):
        return value if value.strip() else ""
    if isinstance(value, Mapping):
        keys = ("reasoningText", "text", "thinking", "content", "summary", "reasoning_text")
        return next((text for key in keys if (text := _join_hidden(value.get(key)))), "")
    if isinstance(value, list):
        return "\n".join(text for part in value if (text := _join_hidden(part)))
    return ""


def _read_part(part: Mapping[str, Any], where: str, number: int) -> Iterator[Part]:
    """Yield one part of a message's content, or an item of the Responses API."""
    kind = _kind_of(part)
    if part.get("thought") is True or kind in shapes.HIDDEN_TYPES or find_hidden(part) is not None:
        text = find_hidden(part) or _join_hidden(part.get("text")) or _join_hidden(part.get("content"))
        yield Part(PartKind.HIDDEN, text, message=number)
    elif kind in shapes.RESULT_TYPES or any(key in part for key in shapes.RESULT_KEYS):
        inner = next((part[key] for key in shapes.RESULT_KEYS if isinstance(part.get(key), Mapping)), part)
        yield _result_of(inner, number)
    elif (
        kind in shapes.CALL_TYPES
        or kind.startswith("tool-")
        or kind.endswith("_call")
        or any(part.get(key) for key in shapes.CALL_KEYS)
    ):
        yield from _read_call_part(part, kind, number)
    elif kind == "refusal" or isinstance(part.get("refusal"), str):
        yield Part(PartKind.REFUSAL, str(part.get("refusal") or part.get("text") or ""), message=number)
    elif kind in shapes.SILENT_TYPES or {"inlineData", "fileData", "executableCode"} & part.keys():
        return
    else:
        plain = next((own for key in shapes.TEXT_KEYS if (own := _take_text(part.get(key))) is not None), None)
        if plain is None or (kind and kind not in shapes.TEXT_TYPES):
            keys = ", ".join(repr(key) for key in sorted(map(str, part))[:20]) or "none"
            raise RecordError(
                f"{where}: is a part of type {kind or 'unknown'!r} that cannot be read. Keys seen: {keys}"
            )
        yield Part(PartKind.SAID, plain, message=number)


def _read_call_part(part: Mapping[str, Any], kind: str, number: int) -> Iterator[Part]:
    """Yield a call, and its result where the part holds both, as hosted tools and the parts of a UI do."""
    call = _read_call(part, number)
    yield Part(PartKind.CALL, name=call.name or kind.removeprefix("tool-"), value=call.value, message=number)
    output = next((part[key] for key in ("output", "outputs", "results", "result") if part.get(key) is not None), None)
    if output is not None:
        yield make_result(
            output, call.name or kind.removeprefix("tool-"), number, is_error=part.get("state") == "output-error"
        )


# Texts that hold several parts: channels, thinking in tags, and logs of agents.

_CODE = re.compile(r"<code>.*?(?:</code>|$)|```.*?(?:```|$)|<end_code>", re.DOTALL)
_THOUGHT_LABEL = re.compile(
    r"^\s*(?:Thought|Thoughts|Gedanke|Pensée|Pensamiento|Pensamento|Мысль|思考)\s*\d*\s*[:：]\s*", re.IGNORECASE
)
_ACTION = re.compile(r"^\s*(?:Action(?: Input)?\s*\d*\s*:|Invoking:)", re.MULTILINE)
_RESPONDED = re.compile(r"^responded:\s*(?P<text>.*)", re.MULTILINE | re.DOTALL)


def strip_code(text: str) -> str:
    """Return the thought of a text that calls by code."""
    return _THOUGHT_LABEL.sub("", _CODE.sub("\n", text)).strip()


def take_thought(log: str) -> str:
    """Return the reasoning of an action's log, without the call itself."""
    if (responded := _RESPONDED.search(log)) is not None:
        return responded["text"].strip()
    return _THOUGHT_LABEL.sub("", _ACTION.split(log, maxsplit=1)[0].strip()).strip()


def join_texts(texts: Sequence[str]) -> str:
    """Return texts of one message as one: deltas and cited spans without a break, sentences on lines of their own."""
    joined = ""
    for text in texts:
        is_sentence = joined.rstrip()[-1:] in set(".!?。！？:") and text[:1].isupper() and not joined[-1:].isspace()
        joined += f"\n{text}" if joined and is_sentence else text
    return joined
