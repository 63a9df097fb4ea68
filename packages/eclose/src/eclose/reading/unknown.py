"""Replies in objects of no known shape: messages, or the one text that stands under a name for it.

Nothing is guessed among several: an object in which two places could be the reply stays an error that names its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eclose.reading import shapes
from eclose.reading.languages import key_name
from eclose.reading.messages import find_role, parse_json_text
from eclose.reading.slots import find_object, flatten

_MAX_DEPTH = 6
# In order of preference: names that only a reply has.
_REPLY_NAMES = (
    "final_answer", "answer", "model_answer", "final_response", "model_response", "reply", "response",
    "generated_text", "completion", "fulfillmenttext", "output_text", "output", "result",
)  # fmt: skip
# Names that a reply may have, where nothing else could be one.
_OTHER_NAMES = frozenset({"text", "body", "content", "contentstring", "message", "transcript", "plaintext", "value"})
_TEXT_NAMES = ("text", "content", "body", "message", "value")
_SENDERS = ("author", "from", "sender", "source")
_STATUS_NAMES = frozenset({"status", "code", "statuscode", "level", "severity", "logger"})


def find_reply(value: Mapping[str, Any], depth: int = 0) -> object:
    """Return the messages, the object or the text that an object holds as its reply; None where none or several do.

    >>> find_reply({"headers": {"type": "json"}, "body": '{"answer": "Lund"}'})
    {'answer': 'Lund'}
    >>> find_reply({"first": {"text": "Lund"}, "second": {"text": "Malmö"}}) is None
    True
    """
    conversations = [messages for item in value.values() if (messages := _read_messages(item))]
    if conversations or depth > _MAX_DEPTH:
        return conversations[0] if len(conversations) == 1 else None
    names = {key_name(key): item for key, item in value.items()}
    row = {name.removeprefix("model_"): item for name, item in names.items()}
    if (slots := find_object(row)) is not None and slots.has_answer:
        return row if slots.has_trace else slots.answer
    for name in _REPLY_NAMES:
        if (reply := _look_into(names.get(name), depth)) is not None:
            return reply
    is_status = bool(_STATUS_NAMES & names.keys())
    replies = [
        reply
        for name, item in names.items()
        if (name in _OTHER_NAMES and not (is_status and name == "message")) or not isinstance(item, str)
        if (reply := _look_into(item, depth)) is not None
    ]
    return replies[0] if len(replies) == 1 else None


def _look_into(item: Any, depth: int) -> object:
    """Return the reply that stands at a place; None where there is none."""
    if isinstance(item, str):
        return parse_json_text(item) if item.strip() else None
    if isinstance(item, Mapping):
        return find_reply(item, depth + 1)
    if isinstance(item, list):
        # Of several items without a sender, it cannot be told which is the reply.
        if len(item) == 1:
            return _look_into(item[0], depth)
        texts = [part for part in item if isinstance(part, str) and part.strip()]
        return "\n".join(texts) if texts and len(texts) == len(item) and depth else None
    return None


def _read_messages(items: Any) -> list[Any]:
    """Return the items of a list as messages, oldest first; empty where they are none."""
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        return []
    messages = [message for item in items if (message := _read_message(item)) is not None]
    silent = [item for item in items if _read_message(item) is None]
    # What a sender did without a text, or a text without a sender, would be lost: such a list is not read.
    if not messages or any(item.get(name) for item in silent for name in (*_TEXT_NAMES, *_SENDERS)):
        return []
    times = [item.get("created_at") for item in items]
    is_newest_first = len(times) > 1 and all(isinstance(time, int | float) for time in times) and times[0] > times[-1]
    return messages[::-1] if is_newest_first else messages


def _read_message(item: Mapping[str, Any]) -> Any:
    if find_role(item) or any(
        isinstance(inner := item.get(key), Mapping) and find_role(inner) for key in shapes.WRAPPERS
    ):
        return item
    senders = (item.get(key) for key in _SENDERS)
    sender = next((name for sender in senders if (name := _name_sender(sender))), "")
    text = next((item[key] for key in _TEXT_NAMES if item.get(key)), None)
    return {"role": sender, "content": flatten(text, "\n")} if sender and text else None


_PEOPLE = frozenset({"end-user", "customer", "visitor", "guest", "client"})


def _name_sender(sender: Any) -> str:
    """Return the role of a sender, which may be an object with a role, a type or a name."""
    if isinstance(sender, Mapping):
        return next((name for key in ("role", "type", "name", "id") if (name := _name_sender(sender.get(key)))), "")
    name = str(sender or "").casefold()
    return "user" if name in _PEOPLE else name if name in shapes.ROLES else ""


def lower_keys(value: Any) -> Any:
    """Return objects whose keys are all capitalised, as .NET writes them, with small first letters."""
    if isinstance(value, list):
        return [lower_keys(item) for item in value] if any(isinstance(item, Mapping) for item in value) else value
    if not isinstance(value, Mapping) or not value or not all(_is_capitalised(key) for key in value):
        return value
    return {key[:1].lower() + key[1:]: lower_keys(item) for key, item in value.items()}


def _is_capitalised(key: Any) -> bool:
    return isinstance(key, str) and (key[:1].isupper() or key[:1] == "$") and key.replace("$", "").isidentifier()
