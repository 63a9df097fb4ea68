"""Labelling of a run by one person: open the project of a sample, then write its labels and correct the run's rates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from eclose.annotation.forms import AnnotationTaskKind
from eclose.annotation.label_sample import LabelSample, begin_label_project, draw_label_sample, read_labelled_verdicts
from eclose.judged_cases import describe_rejects, read_judged_cases, read_run_records
from eclose.judging.validate_judges import validate_on_sample
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.store.runs.step import PipelineStep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eclose.annotation.project import AnnotationProject
    from eclose.judging.validation_file import ValidationRecord

LABELS_FOLDER = "labels"
"""Folder of the project and its labels in the folder of a run."""


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


def open_label_session(
    run: Path,
    *,
    n: int = 100,
    seed: int = 42,
    steps: bool = False,
    allow_stale: bool = False,
    notify: Callable[[str], None] = lambda _sentence: None,
) -> LabelSession:
    """Draw a sample of a run, and create its project or open the existing one.

    Args:
        run: Folder of a run, judged or not.
        n: Number of responses to label.
        seed: Seed of the sample.
        steps: Label every step, as the full protocol does.
        allow_stale: Use judgments although the files they were made from have changed.
        notify: Gets a sentence for each stale file and for records that cannot be labelled.
    """
    settings = {"n": n, "seed": seed, "steps": steps}
    step = PipelineStep(
        "label", settings, (run / INSTANCES_FILE, run / RESPONSES_FILE), run / LABELS_FOLDER / "verdicts.jsonl"
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
        sentences = list(describe_rejects(files.rejected))
    # A response without its question cannot be shown, so it is counted and left out of the sample.
    responses = [response for response in files.responses if response.instance_id in files.instances]
    if unusable := len(files.responses) - len(responses) + len(files.left_out):
        noun = "response" if unusable == 1 else "responses"
        sentences.append(f"{unusable:,} {noun} cannot be labelled: unreadable, or without a question in {run}.")
    for sentence in sentences:
        notify(sentence)
    sample = draw_label_sample((response.id for response in responses), judgments, n=min(n, len(responses)), seed=seed)
    kind = AnnotationTaskKind.RESPONSE if steps else AnnotationTaskKind.SHORT
    project = begin_label_project(run / LABELS_FOLDER, files.instances, responses, sample, kind, datetime.now(UTC))
    return LabelSession(run, step, project, sample)


def save_session_labels(session: LabelSession, *, allow_stale: bool = False) -> LabelSessionResult:
    """Write the labels so far as verdicts, and validate the judge of the run where every stratum has a label."""
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
    return result._replace(validation=validation)
