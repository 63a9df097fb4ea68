"""What all layouts share on the way to an instance: ids, passages, support and the repairs that are allowed.

A repair mends what real files are known to contain, is counted, and is listed in the data guide. Everything else
that is wrong is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eclose.core.identity import content_hash
from eclose.core.instance import Instance, Passage
from eclose.core.response import Response
from eclose.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eclose.store.records.json_reader import JsonObject

ID_DERIVED = "id derived from content"
ID_WAS_NUMBER = "number taken as id"
ANSWER_BLANK = "blank answer taken as none"
PASSAGE_BLANK = "passage without text left out"
SUPPORT_ABSENT = "supporting fact of an absent passage left out"
SUPPORT_SHARED = "supporting title shared by several passages"
SENTENCE_ABSENT = "supporting sentence beyond its passage"
DOC_ID_REPEATED = "repeated doc_id replaced by position"


@dataclass(frozen=True, slots=True)
class ConvertedRecord:
    """An instance read from a foreign record."""

    instance: Instance
    repairs: tuple[str, ...] = ()
    response: Response | None = None
    """The response that stood in the same record, if any."""
    rejected: str | None = None
    """Why the instance is not for study, such as ``unanswerable``."""
    notes: tuple[str, ...] = ()
    """What was decided about the response; counted with the repairs of responses, not with those of instances."""


def first_present(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of several columns that is there and not null."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def read_id(value: object, repairs: list[str]) -> str:
    """The id as a text; empty when there is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        repairs.append(ID_WAS_NUMBER)
        return str(value)
    if value is not None and not isinstance(value, str):
        raise RecordError("id: should be a text")
    if value is not None and not value.strip():
        raise RecordError("id: is empty; leave the key out and an id will be derived")
    return value or ""


def read_answer(answer: str | None, repairs: list[str]) -> str | None:
    """The reference; test splits leave it out or blank."""
    if answer is not None and not answer.strip():
        repairs.append(ANSWER_BLANK)
        return None
    return answer


def clean_aliases(answer: str | None, candidates: Iterable[str]) -> tuple[str, ...]:
    """Aliases as a set in order: without blanks, repeats and the answer itself."""
    if answer is None:
        return ()
    return tuple(dict.fromkeys(alias for alias in candidates if alias.strip() and alias != answer))


def zip_columns(record: JsonObject, key: str, columns: tuple[str, ...]) -> JsonObject:
    """The record with a dict of parallel lists, as Hugging Face tables have it, turned into a list of rows."""
    table = record.get(key)
    if not isinstance(table, dict):
        return record
    lists = [table.get(column) for column in columns]
    for column, values in zip(columns, lists, strict=True):
        if not isinstance(values, list):
            raise RecordError(f"{key}.{column}: should be a list")
    lengths = {column: len(values) for column, values in zip(columns, lists, strict=True) if values is not None}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{column} {length}" for column, length in lengths.items())
        raise RecordError(f"{key}: its lists differ in length ({listed})")
    return {**record, key: [list(row) for row in zip(*(values or [] for values in lists), strict=True)]}


def drop_blank_passages(
    passages: Iterable[Passage], support: tuple[str, ...] | None, repairs: list[str]
) -> tuple[Passage, ...]:
    """Passages that say something. A blank one that is marked as supporting stays, to be refused."""
    passages = tuple(passages)
    kept = tuple(passage for passage in passages if passage.text.strip() or passage.id in (support or ()))
    if len(kept) < len(passages):
        repairs.append(PASSAGE_BLANK)
    return kept


def finish_conversion(
    instance: Instance, repairs: list[str], prefix: str, *, rejected: str | None = None
) -> ConvertedRecord:
    """The instance with an id: its own, or one that follows from its question and evidence."""
    if not instance.id:
        texts = [[passage.title, passage.text] for passage in instance.evidence]
        digest = content_hash([instance.question, texts]).removeprefix("sha256:")[:16]
        instance = replace(instance, id=f"{prefix}-{digest}")
        repairs.append(ID_DERIVED)
    return ConvertedRecord(instance, tuple(dict.fromkeys(repairs)), rejected=rejected)
