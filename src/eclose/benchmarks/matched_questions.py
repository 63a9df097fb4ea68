"""Which questions every model answered: the matched pool, over which models may be compared.

The rule of appendix A.2: a question stays if its generation is complete in every run and, where questions were
screened, if it is eligible. Joins by the id of the question, never by position.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.core.response import Response
from eclose.errors import RecordError, UserError
from eclose.store.records.json_reader import open_bytes, read_objects, require_file
from eclose.store.records.jsonl import ReadRecord, read_records
from eclose.store.runs.manifest import hash_file, read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose.store.records.json_reader import JsonObject

RESPONSES = "responses.jsonl"
NOT_ELIGIBLE = "not eligible"
NOT_IN_EVERY_RUN = "no response in some run"
INCOMPLETE = "incomplete in some run"


@dataclass(frozen=True, slots=True)
class PooledQuestion:
    """A question of the pool."""

    id: str


@dataclass(frozen=True)
class RunAnswers:
    """What one run has for each question."""

    path: Path
    responses: int
    incomplete: Mapping[str, int]
    """Responses without an answer, by reason."""
    complete: Mapping[str, bool]
    """Whether all responses to a question have an answer."""


def find_responses(run: Path) -> Path:
    """The responses of a run: of a folder, those of a finished one; a file as it is."""
    if not run.is_dir():
        require_file(run)
        return run
    path = run / RESPONSES
    manifest = sibling_path(path, "manifest.json")
    if not path.is_file() or not manifest.is_file():
        raise UserError(f"{run}: holds no finished run. Run its command again; it goes on where it was.")
    if read_manifest(manifest).outputs.get(path.name) != hash_file(path):
        raise UserError(f"{path}: was changed after it was written. Name the file itself if that is meant.")
    return path


def read_answers(path: Path) -> RunAnswers:
    """The responses of a file, as far as the pool needs them."""
    complete: dict[str, bool] = {}
    incomplete: Counter[str] = Counter()
    count = 0
    for response in read_records(path, Response):
        count += 1
        why = response.incomplete
        if why is not None:
            incomplete[why.value] += 1
        complete[response.instance_id] = complete.get(response.instance_id, True) and why is None
    return RunAnswers(path, count, dict(sorted(incomplete.items())), complete)


def read_eligibility(path: Path) -> Callable[[str], bool]:
    """Which questions are eligible, from screening records or from a plain list of ids, one a line.

    A record has an ``id`` or ``instance_id`` and says ``eligible``; one with an ``id`` and nothing else is eligible.
    """
    require_file(path)
    with open_bytes(path) as file:
        head = file.read(2**16).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if head not in (b"{", b"["):
        with open_bytes(path) as file:
            listed = {line.strip() for line in file.read().decode("utf-8").splitlines()}
        return lambda id_: id_ in listed
    found: dict[str, bool] = {}
    for raw in read_objects(path):
        if raw.value is None:
            raise raw.error or RecordError("cannot be read.", path=path, record=raw.where)
        id_, eligible = _screened(raw.value, path, raw.where)
        if found.setdefault(id_, eligible) is not eligible:
            raise RecordError(f"{id_!r} is eligible in one place and not in another.", path=path, record=raw.where)
    return lambda id_: found.get(id_, False)


def _screened(record: JsonObject, path: Path, where: str) -> tuple[str, bool]:
    id_ = record.get("instance_id", record.get("id"))
    eligible = True if set(record) == {"id"} else record.get("eligible")
    if eligible is None and "judge" in record:
        eligible = False  # a judge could not be brought to say: nobody knows that it may be used
    if not isinstance(id_, str) or not isinstance(eligible, bool):
        shown = json.dumps({"id": "q1", "eligible": True})
        raise RecordError(f"is no screening record. Write such as {shown}.", path=path, record=where)
    return id_, eligible


def match_questions(
    runs: Sequence[RunAnswers], eligible: Callable[[str], bool] = lambda _: True
) -> Iterator[ReadRecord[PooledQuestion]]:
    """Every question that any run has, in the order of ids: in the pool, or why not."""
    for id_ in sorted({id_ for run in runs for id_ in run.complete}):
        if not all(id_ in run.complete for run in runs):
            yield ReadRecord(repr(id_), rejected=NOT_IN_EVERY_RUN)
        elif not all(run.complete[id_] for run in runs):
            yield ReadRecord(repr(id_), rejected=INCOMPLETE)
        elif not eligible(id_):
            yield ReadRecord(repr(id_), rejected=NOT_ELIGIBLE)
        else:
            yield ReadRecord(repr(id_), value=PooledQuestion(id_))
