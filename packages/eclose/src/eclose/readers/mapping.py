"""Reading of records in any layout by field paths, as ``--map`` names them.

A path is keys and indexes: ``input.text``, ``outputs[0].answer``, ``hits[*].page_content``. ``[*]`` takes all items, a
negative index counts from the end, and a key with dots or brackets is quoted: ``attributes["gen_ai.prompt"]``. Texts
that hold JSON are opened where a path leads into them. A null on the way makes the value null.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from eclose.errors import RecordError, SettingError
from eclose.readers.conversion import ToolColumnNames
from eclose.readers.layouts import describe_json_type
from eclose.readers.spans.documents import read_titled_documents
from eclose.readers.spans.selection import parse_json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eclose.files.json_reader import JsonObject

MAPPED_FIELDS = (
    "question",
    "answer",
    "documents",
    "reference",
    "aliases",
    "kind",
    "hops",
    "trace",
    "messages",
    "id",
    "model",
    "dataset",
    "time",
)
"""Fields that a mapping may name."""

_PART = re.compile(r"""\.?(?P<key>[^.\[\]"']+)|\[(?P<index>-?\d+|\*)\]|\[(?P<quote>["'])(?P<quoted>.+?)(?P=quote)\]""")
# Commas inside brackets belong to a quoted key.
_COMMA = re.compile(r",(?![^\[]*\])")


def parse_field_map(text: str) -> dict[str, str]:
    """Return the paths of ``question=a.b,answer=c[0]`` by field.

    Raises:
        SettingError: A part is no ``field=path``, or names a field twice.

    >>> parse_field_map("question=input.text,documents=hits[*].text")
    {'question': 'input.text', 'documents': 'hits[*].text'}
    """
    paths: dict[str, str] = {}
    for part in _COMMA.split(text):
        name, equals, path = (word.strip() for word in part.partition("="))
        if not (name and equals and path):
            raise SettingError(f"--map: {part.strip()!r} is no field=path. Write --map question=a.b,answer=c[0].")
        if name in paths:
            raise SettingError(f"--map: names {name} twice. Give each field one path.")
        paths[name] = path
    return paths


def check_field_map(paths: Mapping[str, str]) -> None:
    """Raise unless the paths can be read and name a question with its documents, or messages.

    Raises:
        SettingError: A field is unknown, a path is malformed, or a field is missing.
    """
    for name, path in paths.items():
        if name not in MAPPED_FIELDS:
            raise SettingError(f"--map: there is no field {name!r}. The fields are {', '.join(MAPPED_FIELDS)}.")
        _split_path(name, path)
    if "aliases" in paths and "reference" not in paths:
        raise SettingError("--map: aliases are further texts of a reference. Name it with reference=PATH.")
    if "messages" in paths:
        doubled = [name for name in ("question", "answer", "trace") if name in paths]
        if doubled:
            raise SettingError(f"--map: messages hold question, trace and answer; leave {', '.join(doubled)} out.")
        return
    missing = [name for name in ("question", "documents") if name not in paths]
    if missing:
        raise SettingError(
            f"--map: {' and '.join(missing)} missing. Name at least question=PATH,documents=PATH, or messages=PATH."
        )


def has_mapped_question(record: JsonObject, paths: Mapping[str, str]) -> bool:
    """Return whether the path of the question, or of the messages that hold it, begins with a key of the record."""
    return any(name in paths and _split_path(name, paths[name])[0] in record for name in ("question", "messages"))


def drop_mapped_keys(record: JsonObject, paths: Mapping[str, str]) -> JsonObject:
    """Return a record without the keys in which a path begins."""
    mapped = {_split_path(name, path)[0] for name, path in paths.items()}
    return {name: value for name, value in record.items() if name not in mapped}


def map_record(record: JsonObject, paths: Mapping[str, str]) -> tuple[JsonObject, ToolColumnNames]:
    """Return the values at the paths under the paths as keys, and which of them is which column.

    Raises:
        RecordError: The record has no value at a path; the message names the keys that are there.
    """
    values = {path: get_at_path(record, name, path) for name, path in paths.items()}

    def column(*names: str) -> tuple[str, ...]:
        return tuple(paths[name] for name in names if name in paths) or (names[0],)

    columns = ToolColumnNames(
        question=column("question", "messages"),
        passages=column("documents"),
        reference=column("reference"),
        aliases=column("aliases"),
        kind=column("kind"),
        hops=column("hops"),
        response=column("answer"),
        id=column("id"),
        model=column("model"),
        dataset=column("dataset"),
        trace=column("trace"),
        documents=True,
    )
    for name in ("question", "answer"):
        # A path with [*], or a list of texts, is joined: parts of a message are one text.
        value = values.get(paths.get(name, ""))
        if value and _is_list_of_texts(value):
            values[paths[name]] = "\n".join(value)
        elif name == "answer" and isinstance(value, bool | int | float):
            # The score of a grader.
            values[paths[name]] = json.dumps(value)
    if (path := paths.get("documents")) is not None and (chunks := read_titled_documents(values[path])) is not None:
        values[path] = [asdict(chunk) for chunk in chunks]
    return _split_references(values, paths, columns)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _split_references(
    values: JsonObject, paths: Mapping[str, str], columns: ToolColumnNames
) -> tuple[JsonObject, ToolColumnNames]:
    """Return the values and columns with one reference: the first text of a list; the other texts are aliases."""
    reference, aliases = (values.get(paths.get(name, "")) for name in ("reference", "aliases"))
    if not isinstance(reference, str | None) and not _is_list_of_texts(reference):
        raise RecordError(f"--map reference={paths['reference']}: should be a text or a list of texts")
    if aliases is not None and not _is_list_of_texts(aliases):
        raise RecordError(f"--map aliases={paths['aliases']}: should be a list of texts")
    texts = [text for text in reference if text.strip()] if isinstance(reference, list) else [reference]
    aliases = [alias for alias in (*texts[1:], *(aliases or ())) if alias.strip()]
    if aliases and not (texts and texts[0] and texts[0].strip()):
        raise RecordError(f"--map aliases={paths['aliases']}: are aliases of no reference, which is empty here")
    if isinstance(reference, list):
        # Under keys of their own, since two fields may have the same path.
        columns = replace(columns, reference=(f"{paths['reference']}[0]",))
        values = {**values, columns.reference[0]: next(iter(texts), None)}
    columns = replace(columns, aliases=("aliases of the reference",))
    return {**values, columns.aliases[0]: aliases}, columns


def get_at_path(record: JsonObject, name: str, path: str) -> Any:
    """Return the value of a field at its path; None where a value on the way is null.

    Raises:
        RecordError: There is no such key or item; the message names what is there.
    """
    return _descend(record, _split_path(name, path), f"--map {name}={path}", "")


def _split_path(name: str, path: str) -> list[str | int]:
    parts: list[str | int] = []
    position = 0
    while position < len(path):
        match = _PART.match(path, position)
        if match is None:
            raise SettingError(
                f"--map {name}={path}: cannot be read at {path[position:]!r}. Write keys and indexes, as in a.b[0].c "
                'or hits[*].text; quote a key that has dots: a["b.c"].'
            )
        position = match.end()
        index = match["index"]
        if index == "*":
            parts.append(_ALL)
        else:
            parts.append(int(index) if index else match["key"] or match["quoted"])
    return parts


# A key that no JSON object can be asked for by a path.
_ALL = "[*]"


def _descend(value: Any, parts: list[str | int], option: str, walked: str) -> Any:
    if not parts or value is None:
        return value
    part, *rest = parts
    value, here = parse_json_text(value), walked or "the record"
    if part != _ALL and isinstance(part, str):
        return _descend(_get_key(value, part, option, here), rest, option, f"{walked}.{part}".removeprefix("."))
    if not isinstance(value, list):
        raise RecordError(f"{option}: {here} is {describe_json_type(value)}, not a list")
    if isinstance(part, str):
        items = [_descend(item, rest, option, f"{walked}[{number}]") for number, item in enumerate(value)]
        # A null in place of an inner list stays, so that it is not passed over in silence.
        return [deep for item in items for deep in ([None] if item is None else item)] if _ALL in rest else items
    if not -len(value) <= part < len(value):
        raise RecordError(f"{option}: {here} has no item {part}; it has {len(value)}")
    return _descend(value[part], rest, option, f"{walked}[{part}]")


def _get_key(value: Any, key: str, option: str, here: str) -> Any:
    if not isinstance(value, dict):
        raise RecordError(f"{option}: {here} is {describe_json_type(value)}, so it has no key {key!r}")
    if key not in value:
        keys = ", ".join(repr(name) for name in sorted(value)[:20]) or "none"
        raise RecordError(f"{option}: {here} has no key {key!r}. Keys there: {keys}")
    return value[key]
