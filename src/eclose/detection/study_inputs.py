"""Inputs of the detector study: responses and verdicts of runs, and files of scores, checked to belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from eclose.core.response import Response
from eclose.core.verdict import SettledVerdict
from eclose.detection.scores import DetectorScore
from eclose.errors import UserError
from eclose.judged_cases import describe_rejects, read_judged_cases, read_run_records, refuse_reused_question_ids
from eclose.store.records.json_reader import require_regular_file
from eclose.store.records.jsonl import read_records
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.verify_files import ProvenanceCheck, check_result_provenance, check_verdicts_provenance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNCHECKED_SCORES = "No manifest says which responses these scores were made from, so that was not checked."


@dataclass(frozen=True, slots=True)
class StudyInputs:
    """Everything that a study needs, with what a reader must know about it."""

    scores: tuple[DetectorScore, ...]
    responses: tuple[Response, ...]
    verdicts: tuple[SettledVerdict, ...]
    label_source: str
    """Who labelled the responses, in a sentence."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Responses of the runs that cannot be studied, by reason."""
    notices: tuple[str, ...] = ()
    """Sentences on stale, unchecked and unused files; the report prints them first."""


def read_study_inputs(
    runs: Sequence[Path], score_files: Sequence[Path], verdicts: Path | None = None, *, allow_stale: bool = False
) -> StudyInputs:
    """Read the responses of runs, their settled verdicts and the scores of detectors.

    Args:
        runs: Folders with questions and responses, and with judgments unless ``verdicts`` is given.
        score_files: Files of scores, of one or more detectors.
        verdicts: File of settled verdicts, such as those of people; the judgments of the runs by default.
        allow_stale: Use results that were made from other files than those in the folders; the report says so.

    Raises:
        UserError: A result was made from other files, a file holds no score, or one id stands for two questions.
    """
    scores = tuple(chain.from_iterable(_read_scores(path) for path in score_files))
    provenance = [_check_scores(path, runs, allow_stale=allow_stale) for path in score_files]
    notices = [f"STALE: {sentence}" for check in provenance for sentence in check.stale]
    notices += [UNCHECKED_SCORES] if not all(check.checked for check in provenance) else []
    read_labels = _read_judged if verdicts is None else _read_with_verdicts
    labelled = read_labels(runs, verdicts, allow_stale=allow_stale)
    return StudyInputs(
        scores,
        labelled.responses,
        labelled.verdicts,
        labelled.label_source,
        labelled.left_out,
        (*labelled.notices, *notices),
    )


def list_label_files(runs: Sequence[Path], verdicts: Path | None) -> list[Path]:
    """Return the files that ``read_study_inputs`` takes labels from."""
    return [run / JUDGMENTS_FILE for run in runs] if verdicts is None else [verdicts]


def _read_scores(path: Path) -> list[DetectorScore]:
    """Return the records of a file; raise where it holds none."""
    require_regular_file(path)
    records = list(read_records(path, DetectorScore))
    if not records:
        raise UserError(f"{path}: there is no score in this file. Check that this is the file you meant.")
    return records


def _check_scores(path: Path, runs: Sequence[Path], *, allow_stale: bool) -> ProvenanceCheck:
    """Compare a file of scores, and the questions and responses of its folder, with its manifest."""
    # A file of scores belongs to the run in whose folder it lies; elsewhere, to the only run.
    run = next((run for run in runs if run.resolve() == path.resolve().parent), runs[0] if len(runs) == 1 else None)
    sources = () if run is None else (run / INSTANCES_FILE, run / RESPONSES_FILE)
    check = check_result_provenance(path, [source for source in sources if source.is_file()])
    return check.refuse_stale(path, "Score the responses again", allow_stale=allow_stale)


def _read_judged(runs: Sequence[Path], _verdicts: Path | None, *, allow_stale: bool) -> StudyInputs:
    """Read the responses of judged runs, with the judge's verdicts."""
    # Read one by one: scores have the plain response ids, so ids must not get the names of runs before them.
    parts = [read_judged_cases(run, allow_stale=allow_stale) for run in runs]
    refuse_reused_question_ids(*(part.cases for part in parts))
    cases = [case for part in parts for case in part.cases]
    judges = ", ".join(sorted({case.judgment.judge for case in cases}))
    stale = [f"STALE: {sentence}" for part in parts for sentence in part.stale]
    others = [sentence for part in parts for sentence in part.notices[len(part.stale) :]]
    return StudyInputs(
        (),
        tuple(case.response for case in cases),
        tuple(case.row for case in cases),
        f"The groups rest on the labels of {judges}, as settled in the judgments.",
        dict(sorted(Counter(reason for part in parts for _, reason in part.left_out).items())),
        tuple(dict.fromkeys([*stale, *others])),
    )


def _read_with_verdicts(runs: Sequence[Path], verdicts: Path | None, *, allow_stale: bool) -> StudyInputs:
    """Read the responses of runs, and a file of verdicts on them."""
    assert verdicts is not None
    require_regular_file(verdicts)
    check = check_verdicts_provenance(verdicts, allow_stale=allow_stale)
    parts = [read_run_records(run) for run in runs]
    rejects = chain.from_iterable(describe_rejects(part.rejected) for part in parts)
    return StudyInputs(
        (),
        tuple(response for part in parts for response in part.responses),
        tuple(read_records(verdicts, SettledVerdict)),
        f"The groups rest on the settled verdicts in {verdicts.name}.",
        dict(sorted(Counter(reason for part in parts for _, reason in part.left_out).items())),
        (*(f"STALE: {sentence}" for sentence in check.stale), *rejects),
    )
