"""Texts that hold several parts: channels, thinking in tags, and the logs of agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from eclose.reading.languages import collect_labels, collect_texts
from eclose.reading.messages import Part, PartKind, parse_json_text

_CHANNEL = re.compile(
    r"(?:<\|start\|>(?P<role>[^<]*))?<\|channel\|>(?P<channel>[^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>(?P<text>.*?)"
    r"(?P<end><\|(?:end|call|return)\|>|(?=<\|start\|>)|(?=<\|channel\|>)|$)",
    re.DOTALL,
)
_THINK = re.compile(
    r"<(?P<tag>think(?:ing)?|thoughts?|antthinking|seed:think)>(?P<text>.*?)(?:</(?P=tag)>|$)",
    re.DOTALL | re.IGNORECASE,
)
_CLOSED_THINK = re.compile(r"^(?P<text>(?:(?!<think).)*?)</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FINISH_CALL = re.compile(
    r"^\s*(?:finish|submit|final_answer|answer|respond)\s*[\[(](?P<answer>.*)[\])]\s*$", re.IGNORECASE | re.DOTALL
)
_SUBMIT = frozenset(("finish", "submit", "final_answer", "final answer", "answer", "respond", "none"))


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text split into parts; ``ends_open`` where a part has no end."""

    parts: tuple[Part, ...]
    is_log: bool = False
    ends_open: bool = False


_TURN = re.compile(
    r"(?:<\|start_header_id\|>|<\|im_start\|>|<\|start_of_role\|>|<start_of_turn>)(?:assistant|model)"
    r"(?:<\|end_header_id\|>|<\|end_of_role\|>|(?=\s))|\[/INST\]|<\|assistant\|>"
)
_TURN_END = re.compile(r"<\|(?:eot_id|im_end|end_of_text|endoftext|eom_id)\|>|<end_of_turn>|</s>")


def take_completion(text: str) -> str:
    """Return what a model wrote in a text that still holds the chat template around it.

    >>> take_completion("<s>[INST] Where? [/INST] In Lund.</s>")
    'In Lund.'
    """
    # Templates are written with such signs, and most texts hold none.
    turns = list(_TURN.finditer(text)) if "<" in text or "[/INST]" in text else []
    return _TURN_END.split(text[turns[-1].end() :], maxsplit=1)[0].strip() if turns else text


def holds_results(text: str) -> bool:
    """Return whether a text may hold what tools returned: a log of an agent, or channels."""
    return "<|channel|>" in text or bool(_observation().search(text))


@cache
def _observation() -> re.Pattern[str]:
    labels = [re.escape(label) for label, part in collect_labels().items() if part == "observation"]
    return re.compile(rf"(?:{'|'.join(labels)})[\s\d*_]*[:：]", re.IGNORECASE)


def split_text(text: str) -> SplitText | None:
    """Return the parts of a text that holds several; None where it is one."""
    if "<|channel|>" in text:
        return _split_channels(text)
    if (call := _read_call_text(text)) is not None:
        return call
    if "<" in text and (split := _split_thinking(text)) is not None:
        return split
    return _split_log(text)


_CALL_TAG = re.compile(r"<(?P<tag>tool_call|function_call|tool_use)>(?P<text>.*?)(?:</(?P=tag)>|$)", re.DOTALL)


def _read_call_text(text: str) -> SplitText | None:
    """Return the calls of a text that writes them as JSON, alone or in tags."""
    if "<tool_call>" in text or "<function_call>" in text or "<tool_use>" in text:
        calls = [
            Part(PartKind.CALL, value=parse_json_text(match["text"].strip())) for match in _CALL_TAG.finditer(text)
        ]
        rest = _CALL_TAG.sub("", text).strip()
        return SplitText((*([Part(PartKind.SAID, rest)] if rest else []), *calls))
    fields = parse_json_text(text) if text.lstrip()[:1] == "{" else None
    if isinstance(fields, dict) and "name" in fields and {"arguments", "parameters"} & fields.keys():
        arguments = fields.get("arguments", fields.get("parameters"))
        return SplitText((Part(PartKind.CALL, name=str(fields["name"]), value=parse_json_text(arguments)),))
    return None


def _split_channels(text: str) -> SplitText:
    """Split gpt-oss's channels: analysis is hidden, commentary a plan or a call, final the reply."""
    parts: list[Part] = []
    ends_open = False
    for match in _CHANNEL.finditer(text):
        role, channel, content = match["role"] or "", match["channel"].strip(), match["text"]
        name = next((word[3:] for word in f"{role} {channel}".split() if word.startswith("to=")), "")
        if role and not role.startswith("assistant"):
            parts.append(Part(PartKind.RESULT, name=role.split()[0], value=content))
        elif match["end"] == "<|call|>" or (name and name != "assistant"):
            parts.append(Part(PartKind.CALL, name=name, value=parse_json_text(content)))
        elif channel.startswith("analysis"):
            parts.append(Part(PartKind.HIDDEN, content))
        else:
            parts.append(Part(PartKind.COMMENTARY if channel.startswith("commentary") else PartKind.SAID, content))
        ends_open = not match["end"] and not channel.startswith("final")
    return SplitText(tuple(parts), ends_open=ends_open)


def _split_thinking(text: str) -> SplitText | None:
    closed = _CLOSED_THINK.match(text)
    if closed is not None:
        return SplitText((Part(PartKind.HIDDEN, closed["text"]), Part(PartKind.SAID, text[closed.end() :])))
    blocks = list(_THINK.finditer(text))
    if not blocks:
        return None
    is_open = not blocks[-1][0].lower().endswith(">") or "</" not in blocks[-1][0][-12:]
    rest = _THINK.sub("\n", text).strip()
    hidden = [Part(PartKind.HIDDEN, match["text"]) for match in blocks if match["text"].strip()]
    return SplitText((*hidden, *([Part(PartKind.SAID, rest)] if rest else [])), ends_open=is_open)


_LABEL = re.compile(r"^[\s>#*_]*(?P<label>[^\W\d_][^\n:：\[\]]{0,28}?)\s*\d{0,3}\s*[*_]*\s*[:：][*_]*\s*(?P<text>.*)$")


def _read_label(line: str) -> tuple[str, str] | None:
    """Return the part and the text of a labelled line of a log."""
    match = _LABEL.match(line[:4000])
    if match is None:
        return None
    part = _all_labels().get(match["label"].strip(" *_").casefold())
    return None if part is None else (part, match["text"] + line[4000:])


@cache
def _all_labels() -> dict[str, str]:
    """Return the parts of a log by their labels in all languages."""
    return {text.casefold(): "answer" for text in collect_texts("answer_markers")} | collect_labels()


def _split_log(text: str) -> SplitText | None:
    """Split the log of an agent by its labels; None where a text is none."""
    if ":" not in text and "：" not in text:
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    # A log is recognised by its labels; few texts have any, so they are looked at first.
    labels = [(number, label) for number, line in enumerate(lines) if (label := _read_label(line)) is not None]
    kinds = {label[0] for _, label in labels}
    is_log = bool(kinds & {"observation", "action"}) and bool(kinds & {"thought", "action"}) and len(kinds) >= 2
    if not is_log and not (
        {"thought", "answer"} <= kinds and lines and (_read_label(lines[0]) or ("",))[0] == "thought"
    ):
        return None
    by_line = dict(labels)
    entries: list[tuple[str, list[str]]] = []
    for number, line in enumerate(lines):
        label = by_line.get(number)
        if label is not None:
            entries.append((label[0], [label[1]]))
        elif entries:
            entries[-1][1].append(line)
        else:
            # Agent prompts end in "Thought:", so text before the first label is a thought.
            entries.append(("thought", [line]))
    return SplitText(tuple(_read_entries(entries)), is_log=True)


def _read_entries(entries: list[tuple[str, list[str]]]) -> list[Part]:
    parts: list[Part] = []
    submits = False
    answers = [number for number, (part, _) in enumerate(entries) if part == "answer"]
    for number, (part, texts) in enumerate(entries):
        text = "\n".join(texts).strip()
        if part == "thought":
            parts.append(Part(PartKind.COMMENTARY, text))
        elif part == "action":
            finished = _FINISH_CALL.match(text)
            submits = text.casefold().strip("`'\" ") in _SUBMIT - {"none"}
            parts.append(
                Part(PartKind.SAID, finished["answer"].strip("'\" ")) if finished else Part(PartKind.CALL, name=text)
            )
        elif part == "input" and submits:
            parts[-1] = Part(PartKind.SAID, text.strip("'\""))
            submits = False
        elif part == "observation" and text:
            parts.append(Part(PartKind.RESULT, value=text))
        elif part == "answer" and number == answers[-1]:
            # Of a log the last answer counts, as its frameworks have it.
            parts.append(Part(PartKind.SAID, text))
    return parts
