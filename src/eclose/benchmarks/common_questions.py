"""The matched pool of questions (appendix A.2): those that every model answered, so that models can be compared.

A question is in the pool if its generation is complete in every run and, where questions were screened, if it is
eligible. Runs are joined by question id, never by position.
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
from eclose.store.records.json_reader import open_bytes, read_json_objects, require_regular_file
from eclose.store.records.jsonl import ReadRecord, read_records
from eclose.store.runs.folder import RESPONSES_FILE
from eclose.store.runs.manifest import hash_file, read_manifest
from eclose.store.runs.step import companion_file_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eclose.store.records.json_reader import JsonObject

NOT_ELIGIBLE = "not eligible"
NOT_IN_EVERY_RUN = "no response in some run"
INCOMPLETE = "incomplete in some run"


@dataclass(frozen=True, slots=True)
class MatchedQuestion:
    """A question of the matched pool."""

    id: str


@dataclass(frozen=True)
class RunCompleteness:
    """Completeness of one run's responses, by question."""

    path: Path
    responses: int
    incomplete: Mapping[str, int]
    """Responses without an answer, by reason."""
    complete: Mapping[str, bool]
    """Whether all responses to a question have an answer."""


def find_responses_file(run: Path) -> Path:
    """Return the path of a run's responses: the file itself, or that of a folder with a finished run."""
    if not run.is_dir():
        require_regular_file(run)
        return run
    path = run / RESPONSES_FILE
    manifest = companion_file_path(path, "manifest.json")
    if not path.is_file() or not manifest.is_file():
        raise UserError(f"{run}: holds no finished run. Run its command again; it goes on where it was.")
    if read_manifest(manifest).outputs.get(path.name) != hash_file(path):
        raise UserError(f"{path}: was changed after it was written. Name the file itself to use it as it is.")
    return path


def read_run_completeness(path: Path) -> RunCompleteness:
    """Return which questions of a file of responses are complete."""
    complete: dict[str, bool] = {}
    incomplete: Counter[str] = Counter()
    count = 0
    for response in read_records(path, Response):
        count += 1
        reason = response.incomplete
        if reason is not None:
            incomplete[reason.value] += 1
        # With several responses to a question, one incomplete response makes the question incomplete.
        complete[response.instance_id] = complete.get(response.instance_id, True) and reason is None
    return RunCompleteness(path, count, dict(sorted(incomplete.items())), complete)


def load_eligibility_test(path: Path) -> Callable[[str], bool]:
    """Return a test of eligibility by id, from screening records or from a plain list of ids, one a line.

    A screening record has ``id`` or ``instance_id``, and ``eligible``; a record with ``id`` alone is eligible.
    """
    require_regular_file(path)
    with open_bytes(path) as file:
        head = file.read(2**16).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]  # the byte order mark and blanks skipped
    # Anything but JSON is a list of ids, such as one kept in a spreadsheet column.
    if head not in (b"{", b"["):
        with open_bytes(path) as file:
            listed = {line.strip() for line in file.read().decode("utf-8").splitlines()}
        return lambda id_: id_ in listed
    eligibility: dict[str, bool] = {}
    for raw in read_json_objects(path):
        if raw.value is None:
            raise raw.error or RecordError("cannot be read.", path=path, record=raw.where)
        id_, eligible = _read_screening(raw.value, path, raw.where)
        if eligibility.setdefault(id_, eligible) is not eligible:
            raise RecordError(f"{id_!r} is eligible in one record and not in another.", path=path, record=raw.where)
    return lambda id_: eligibility.get(id_, False)


def _read_screening(record: JsonObject, path: Path, where: str) -> tuple[str, bool]:
    id_ = record.get("instance_id", record.get("id"))
    eligible = True if set(record) == {"id"} else record.get("eligible")
    if eligible is None and "judge" in record:
        eligible = False  # the judge gave no label, and an unknown question must not enter the pool
    if not isinstance(id_, str) or not isinstance(eligible, bool):
        example = json.dumps({"id": "q1", "eligible": True})
        raise RecordError(f"is not a screening record. Write records such as {example}.", path=path, record=where)
    return id_, eligible


def match_questions_across_runs(
    runs: Sequence[RunCompleteness], eligible: Callable[[str], bool] = lambda _: True
) -> Iterator[ReadRecord[MatchedQuestion]]:
    """Yield every question of any run in the order of ids, in the pool or rejected with a reason."""
    for id_ in sorted({id_ for run in runs for id_ in run.complete}):
        # The reasons are checked in this order, so that each question is counted under one of them. In the paper 9 of
        # 3,900 generations were incomplete, which left 1,291 of 1,300 questions (appendix A.2).
        if not all(id_ in run.complete for run in runs):
            yield ReadRecord(repr(id_), rejected=NOT_IN_EVERY_RUN)
        elif not all(run.complete[id_] for run in runs):
            yield ReadRecord(repr(id_), rejected=INCOMPLETE)
        elif not eligible(id_):
            yield ReadRecord(repr(id_), rejected=NOT_ELIGIBLE)
        else:
            yield ReadRecord(repr(id_), value=MatchedQuestion(id_))
