"""A folder with everything that came of annotation, in files that other commands read as they are.

All files appear together or not at all. A folder that holds an export already is left alone: the same labels again are
nothing to do, and others are refused.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from eclose.annotation.results import label_studio
from eclose.annotation.results.final_labels import (
    PEOPLE,
    settled_judgments,
    settled_labels,
    settled_screenings,
    settled_verdicts,
)
from eclose.annotation.results.flat_tables import flat_tables
from eclose.annotation.results.formats import (
    ANNOTATIONS,
    LABELS,
    MANIFEST,
    OPEN,
    SCREENING_ANNOTATIONS,
    VERDICTS,
    Format,
)
from eclose.annotation.results.parquet import require_pyarrow, write_parquet
from eclose.errors import SettingError, UserError
from eclose.store.records.atomic import AtomicFile, sync_folder
from eclose.store.records.counts import Counts
from eclose.store.records.csv_table import table
from eclose.store.records.jsonl import write
from eclose.store.runs.folder import INSTANCES, JUDGMENTS, RESPONSES, SCREENING
from eclose.store.runs.manifest import Manifest, file_hash, file_hashes, read_manifest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from eclose.annotation.results.annotations import Told, ToldQuestion, ToldResponse
    from eclose.annotation.results.project_annotations import Material


@dataclass(frozen=True, slots=True)
class Exported:
    """What lies in the folder."""

    manifest: Manifest
    again: bool
    """Whether it lay there before."""


def export(
    told: Told,
    out: Path,
    *,
    stage: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, str] | None = None,
    material: Material | None = None,
    judge: str = PEOPLE,
    formats: Collection[Format] = (Format.JSONL,),
    for_label_studio: bool = False,
) -> Exported:
    """Write the files; with the material, the folder is a run that can be diagnosed."""
    if Format.PARQUET in formats:
        require_pyarrow()
    _refuse_strangers(out)
    with _making(out) as folder:
        if Format.JSONL in formats:
            _records(folder, told, material, judge)
        _tables(folder, told, formats)
        if for_label_studio:
            _for_label_studio(folder, told, material)
        funnel = _funnel(told)
        how = {**settings, "judge": judge, "formats": sorted(formats)}
        outputs = file_hashes(sorted(folder.iterdir()))
        manifest = Manifest(stage, how, dict(inputs or {}), outputs, next(iter(funnel.values())), funnel)
        if (before := _same(out, outputs)) is not None:
            return Exported(before, again=True)
        manifest.write(folder / MANIFEST)
        os.rename(folder, out)
        sync_folder(out.parent)
    return Exported(manifest, again=False)


def _records(folder: Path, told: Told, material: Material | None, judge: str) -> None:
    if told.responses:
        write(folder / ANNOTATIONS, (row for one in told.responses for row in one.rows))
        write(folder / JUDGMENTS, settled_judgments(told, judge))
        write(folder / VERDICTS, settled_verdicts(told))
        write(folder / LABELS, settled_labels(told))
    if told.questions:
        write(folder / SCREENING_ANNOTATIONS, (row for one in told.questions for row in one.rows))
        write(folder / SCREENING, settled_screenings(told, judge))
    with AtomicFile(folder / OPEN) as file:
        for line in _open(told):
            file.write(json.dumps(line).encode() + b"\n")
    if material is not None:
        responses = [material.responses[one.response_id] for one in told.responses]
        questions = dict.fromkeys([one.instance_id for one in responses] + [one.question_id for one in told.questions])
        write(folder / INSTANCES, (material.instances[one] for one in questions))
        write(folder / RESPONSES, responses)


def _open(told: Told) -> Iterator[dict[str, str]]:
    """What does not hold yet, and why."""
    for one in told.responses:
        if (reason := one.open) is not None:
            yield {"response_id": one.response_id, "question_id": one.question_id, "reason": reason}
    for other in told.questions:
        if (reason := other.open) is not None:
            yield {"question_id": other.question_id, "reason": reason}


def _tables(folder: Path, told: Told, formats: Collection[Format]) -> None:
    for one in flat_tables(told, lambda: settled_labels(told)):
        if Format.CSV in formats:
            with AtomicFile(folder / f"{one.name}.csv") as file:
                for row in table(list(one.columns), one.rows()):
                    file.write(row)
        if Format.PARQUET in formats:
            write_parquet(folder / f"{one.name}.parquet", one)


def _for_label_studio(folder: Path, told: Told, material: Material | None) -> None:
    if material is None:
        raise SettingError("tasks of Label Studio need questions and responses. Export them from a project.")
    for name, data in (
        (label_studio.TASKS, label_studio.tasks(material, (one.response_id for one in told.responses))),
        (label_studio.CONFIG, iter([label_studio.config()])),
    ):
        with AtomicFile(folder / name) as file:
            for part in data:
                file.write(part)


def _funnel(told: Told) -> dict[str, Counts]:
    """Received = settled + open, for responses and for questions."""
    both: dict[str, Sequence[ToldResponse] | Sequence[ToldQuestion]] = {
        "responses": told.responses,
        "questions": told.questions,
    }
    found = {name: _counts(subjects) for name, subjects in both.items() if subjects}
    if not found:
        raise UserError("there is nothing to export: no work was given out.")
    return found


def _counts(subjects: Iterable[ToldResponse | ToldQuestion]) -> Counts:
    reasons = Counter(one.open for one in subjects)
    settled = reasons.pop(None, 0)
    left = {str(reason): count for reason, count in reasons.items()}
    return Counts(settled + sum(left.values()), settled, left)


_REFUSAL = "Write to another folder, or move this one away."


def _refuse_strangers(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise SettingError(f"{out}: is a file. Name a folder to write.")
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).is_file():
        raise UserError(f"{out}: is not empty and has no manifest, so it is not known whose it is. {_REFUSAL}")


def _same(out: Path, outputs: Mapping[str, str]) -> Manifest | None:
    """The manifest of the same files, whole and unchanged; None for a folder that is still empty."""
    if not (out / MANIFEST).is_file():
        return None
    manifest = read_manifest(out / MANIFEST)
    if manifest.outputs != outputs:
        raise UserError(f"{out}: holds an export of other labels, or in other formats. {_REFUSAL}")
    for name, known in outputs.items():
        if not (out / name).is_file() or file_hash(out / name) != known:
            raise UserError(f"{out}: {name} was changed after it was written. {_REFUSAL}")
    return manifest


@contextmanager
def _making(out: Path) -> Iterator[Path]:
    """A folder beside the one to be; gone in the end, unless it took its place."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = out.with_name(f".{out.name}.{token_hex(8)}")
        folder.mkdir()  # with the permissions of any new folder: the system applies the umask
        try:
            yield folder
        finally:
            rmtree(folder, ignore_errors=True)
    except OSError as error:
        problem = f"cannot be written here ({error.strerror or error})"
        raise UserError(f"{out}: {problem}. Choose another place or make room.") from error
