"""The questions and responses to judge: those of a run's folder, of two files, or of one file that holds both.

The module imports no client packages, so responses can be read where none are installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from eclose.errors import SettingError, UserError
from eclose.files.growth import read_growth
from eclose.files.json_reader import require_regular_file
from eclose.files.outcome_counts import RecordCounts
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep, run_pipeline_steps
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.load import holds_responses, resolve_import_settings, scan_cases


@dataclass(frozen=True)
class JudgeInputFiles:
    """The files of questions and responses."""

    instances: Path
    responses: Path
    counts: Mapping[str, RecordCounts] = field(default_factory=dict, compare=False)
    """Record counts of another tool's file, where both files were written from it."""
    origin: Mapping[str, str] | None = None
    """Hashes that stand for the files in the identity of a run that grows; None for any other run."""
    added: Mapping[str, RecordCounts] = field(default_factory=dict, compare=False)
    """Counts of what a run was given this time: files, questions and responses."""


def find_judge_inputs(
    path: Path,
    out: Path,
    instances: Path | None = None,
    settings: ImportSettings | None = None,
    *,
    force: bool = False,
    scratch: Path | None = None,
) -> JudgeInputFiles:
    """Return the files of a run's folder, of a file of responses, or written from another tool's file.

    Args:
        path: A run's folder, a file of responses, or a file of another tool with questions and responses side by side.
        out: Folder for the two files that are written from another tool's file.
        instances: File of the questions; needed for a file of responses.
        settings: Settings of reading another tool's file.
        force: Whether to write the two files anew where they were made from another file, or from an earlier state of
            this one.
        scratch: Folder for the two files in place of ``out``, for a forecast that leaves ``out`` as it is.

    Raises:
        SettingError: ``path`` is a file of responses, and ``instances`` is missing; or ``settings`` do nothing there.
        UserError: There is no response, so a run over it would look complete and say nothing.
    """
    settings = settings or ImportSettings()
    if path.is_dir():
        _refuse_settings(path, settings)
        inputs = JudgeInputFiles(instances or path / INSTANCES_FILE, path / RESPONSES_FILE)
        growth = read_growth(path) if instances is None and path.resolve() == out.resolve() else None
        # A changed record is judged as it is now only under an identity of its own.
        if growth is not None and not (force and growth.list_changed_files(path)):
            growth.refuse_changed_files(path)
            inputs = replace(inputs, origin=growth.identity)
        return _require_files(inputs)
    require_regular_file(path)
    # A mapping says what is where, whatever the keys of the records.
    if settings.columns or not holds_responses(path):
        return _split_file(path, out, resolve_import_settings(path, settings), force, scratch)
    _refuse_settings(path, settings)
    if instances is None:
        raise SettingError(f"{path}: the questions of these responses are missing. Name their file with --instances.")
    return _require_files(JudgeInputFiles(instances, path))


def _refuse_settings(path: Path, settings: ImportSettings) -> None:
    """Raise where settings of reading another tool's file are given for files of this package."""
    if replace(settings, format=RecordLayout.AUTO).identity:
        raise SettingError(
            f"{path}: holds questions and responses as eclose writes them, so --map, --trace, model, dataset "
            "and case do nothing. Leave them out, or name the file that they were read from."
        )


def _require_files(inputs: JudgeInputFiles) -> JudgeInputFiles:
    require_regular_file(inputs.instances)
    require_regular_file(inputs.responses)
    if inputs.responses.stat().st_size == 0:
        raise UserError(f"{inputs.responses}: holds no response. Let a model answer the questions: eclose generate.")
    return inputs


def _split_file(path: Path, out: Path, imported: ImportSettings, force: bool, scratch: Path | None) -> JudgeInputFiles:
    """Write the questions and the responses of one file into two, and count its records."""
    steps = (
        PipelineStep("judge instances", imported.identity, (path,), out / INSTANCES_FILE),
        PipelineStep("judge responses", imported.identity, (path,), out / RESPONSES_FILE, explains_rejected=True),
    )
    questions, responses = run_pipeline_steps(steps, scan_cases(path, settings=imported), force=force, scratch=scratch)
    if not responses.counts.accepted:
        raise UserError(
            f"{path}: holds no response to judge. Questions: {questions.counts}. Responses: {responses.counts}. "
            "Let a model answer the questions (eclose generate), or name the column of the response with --map."
        )
    counts = {f"questions in {path.name}": questions.counts, f"responses in {path.name}": responses.counts}
    return JudgeInputFiles(questions.step.out, responses.step.out, counts)
