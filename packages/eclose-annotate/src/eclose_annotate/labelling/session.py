"""Labelling of a run by one person: open the project of a sample, then write its labels and correct the run's rates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from eclose.files.jsonl import ReadRecord
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE, VALIDATION_FILE, VERDICTS_FILE
from eclose.files.step import PipelineStep
from eclose.judging.validate import find_larger_validation, validate_on_sample
from eclose.judging.validation_file import write_validation
from eclose.readers.judged_run import describe_rejects, read_judged_cases, read_run_records
from eclose_annotate.labelling.sample import (
    LabelSample,
    begin_label_project,
    draw_label_sample,
    find_label_sample,
    read_labelled_verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eclose.judging.validation_file import ValidationRecord
    from eclose_annotate.project import AnnotationProject

LABELS_FOLDER = "labels"
"""Folder of the project and its labels in the folder of a run."""
DEFAULT_SAMPLE_SIZE, DEFAULT_SAMPLE_SEED = 100, 42


class LabelSession(NamedTuple):
    """An open project for the sample of a run."""

    run: Path
    step: PipelineStep
    """The step that writes the verdicts."""
    project: AnnotationProject
    sample: LabelSample


class LabelSessionResult(NamedTuple):
    """The labels that were written, and the validation of the judge by them."""

    path: Path
    labelled: int
    is_judged: bool
    """Whether the run has judgments, whose rates can be corrected."""
    empty_strata: tuple[str, ...] = ()
    """Strata without a label; rates are corrected once there are none."""
    validation: ValidationRecord | None = None
    validation_path: Path | None = None
    """File of the validation: ``validation.json`` in the run, or in the folder of the labels where one is kept."""
    kept_validation: ValidationRecord | None = None
    """The validation from more labels, or more of a criterion, that stays in the run; None where there is none, or it
    was replaced."""


def open_label_session(
    run: Path,
    *,
    n: int | None = None,
    seed: int | None = None,
    steps: bool | None = None,
    allow_stale: bool = False,
    notify: Callable[[str], None] = lambda _sentence: None,
) -> LabelSession:
    """Draw a sample of a run, and create its project or open the existing one.

    An existing sample keeps its settings where they are not named, and grows to a larger ``n``; labels are kept.

    Args:
        run: Folder of a run, judged or not.
        n: Number of responses to label; by default 100, or the size of the existing sample.
        seed: Seed of the sample; by default 42, or that of the existing sample.
        steps: Label every step, as the full protocol does; by default false, or as the existing sample does.
        allow_stale: Use judgments although the files they were made from have changed.
        notify: Gets a sentence for each stale file and for records that cannot be labelled.

    Raises:
        UserError: The existing sample has another seed, labels steps otherwise, is larger, or is of other files.
    """
    existing = find_label_sample(run / LABELS_FOLDER)
    if existing is not None:
        n, seed = existing.n if n is None else n, existing.seed if seed is None else seed
        steps = existing.steps if steps is None else steps
    n, seed = DEFAULT_SAMPLE_SIZE if n is None else n, DEFAULT_SAMPLE_SEED if seed is None else seed
    settings = {"n": n, "seed": seed, "steps": bool(steps)}
    step = PipelineStep(
        "label", settings, (run / INSTANCES_FILE, run / RESPONSES_FILE), run / LABELS_FOLDER / VERDICTS_FILE
    )
    # The inputs are hashed now; where they differ when the labels are written, the labels are refused.
    step.require_inputs()
    files = read_run_records(run)
    judgments = []
    if (run / JUDGMENTS_FILE).exists():
        cases = read_judged_cases(run, allow_stale=allow_stale)
        # The notices begin with the stale files.
        sentences = [f"STALE: {sentence}" for sentence in cases.stale] + list(cases.notices[len(cases.stale) :])
        judgments = [case.judgment for case in cases.cases]
    else:
        sentences = [explain_missing_judgments(run), *describe_rejects(files.rejected)]
    # A response without its question cannot be shown, so it is counted and left out of the sample.
    responses = [response for response in files.responses if response.instance_id in files.instances]
    if unusable := len(files.responses) - len(responses) + len(files.left_out):
        noun = "response" if unusable == 1 else "responses"
        sentences.append(f"{unusable:,} {noun} cannot be labelled: unreadable, or without a question in {run}.")
    for sentence in sentences:
        notify(sentence)
    sample = draw_label_sample(
        (response.id for response in responses), judgments, n=min(n, len(responses)), seed=seed, steps=bool(steps)
    )
    project = begin_label_project(run / LABELS_FOLDER, files.instances, responses, sample, datetime.now(UTC))
    return LabelSession(run, step, project, sample)


def explain_missing_judgments(run: Path) -> str:
    """Return why the responses of a run without ``judgments.jsonl`` are drawn with equal probability."""
    if (run / VERDICTS_FILE).exists():
        return (
            f"{run} has {VERDICTS_FILE} but no {JUDGMENTS_FILE}: verdicts do not name the judge that gave them, so"
            " they cannot be validated or corrected. Responses are drawn with equal probability; to have a judge"
            f" corrected, judge the run first: eclose judge {run} --judge MODEL"
        )
    return f"{run} is not judged: responses are drawn with equal probability, and there are no rates to correct."


def find_threatened_validation(session: LabelSession) -> ValidationRecord | None:
    """Return the validation of the run where it rests on more labels than this sample can give; None otherwise."""
    return find_larger_validation(session.run / VALIDATION_FILE, len(session.sample.chosen))


def save_session_labels(
    session: LabelSession, *, replace_validation: bool = False, allow_stale: bool = False
) -> LabelSessionResult:
    """Write the labels so far as verdicts, and validate the judge of the run where every stratum has a label.

    A validation of the same judge from more labels, or more of a criterion, is replaced only with
    ``replace_validation``; without, the new one is written beside the labels.
    """
    run, sample = session.run, session.sample
    # All labels so far, also those of earlier sessions of the same sample.
    labels = read_labelled_verdicts(session.project)
    # Raises where questions or responses changed since the session was opened: the labels would belong to other texts.
    session.step.write(ReadRecord(verdict.response_id, value=verdict) for verdict in labels)
    result = LabelSessionResult(session.step.out, len(labels), is_judged=(run / JUDGMENTS_FILE).exists())
    if not result.is_judged:
        return result
    labelled = {sample.strata[verdict.response_id] for verdict in labels}
    # A stratum without a label has no weight, so the rates of the run cannot be corrected.
    if empty := sorted(set(sample.sizes) - labelled):
        return result._replace(empty_strata=tuple(empty))
    validation = validate_on_sample(run, labels, sample.strata, seed=sample.seed, allow_stale=allow_stale)
    path = run / VALIDATION_FILE
    larger = None if replace_validation else find_larger_validation(path, validation.labelled, of=validation)
    path = path if larger is None else run / LABELS_FOLDER / VALIDATION_FILE
    write_validation(path, validation)
    return result._replace(validation=validation, validation_path=path, kept_validation=larger)
