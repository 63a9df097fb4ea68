"""Validation of a run's judge against people's verdicts, with the judges of other runs compared beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.errors import UserError
from eclose.files.json_reader import require_regular_file
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE, VALIDATION_FILE
from eclose.files.verify import check_result_provenance, check_verdicts_provenance
from eclose.judging.validation_file import (
    ValidationRecord,
    compare_judge_runs,
    name_verdict_benchmarks,
    read_judgments,
    read_people_verdicts,
    read_validation,
    validate_judgments_file,
    validate_run,
    write_validation,
)
from eclose.metrics.judge_against_people import JudgedLabel
from eclose.readers.judged_run import name_run_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from eclose.metrics.repeats import JudgeComparison
    from eclose.values.verdict import SettledVerdict

_DOUBTFUL_DEVIATIONS = 4
"""Standard deviations from the run at which a sample is doubted; with equal chances one in 16,000 is so far off."""


class JudgeValidationResult(NamedTuple):
    """The outcome of ``validate_judges``."""

    path: Path
    """The validation file that was written."""
    validation: ValidationRecord
    comparisons: Mapping[str, JudgeComparison]
    """The judge of the run compared with that of each other run, by the name of that run."""
    stale: tuple[str, ...]
    """One sentence for each changed file; only with ``allow_stale``."""


def validate_judges(
    run: Path,
    verdicts: Path,
    *,
    against: Sequence[Path] = (),
    out: Path | None = None,
    seed: int = 42,
    resamples: int = 2_000,
    replace_validation: bool = False,
    allow_stale: bool = False,
) -> JudgeValidationResult:
    """Compare the judge of a run with people, and with the judges of other runs on the same responses.

    Args:
        run: Folder of a judged run.
        verdicts: File of people's verdicts on a random sample of its responses.
        against: Folders with judgments of the same responses by other judges.
        out: File of the validation; ``validation.json`` in the run by default.
        seed: Seed of the intervals.
        resamples: Number of bootstrap resamples.
        replace_validation: Replace a validation of the same judge that has more labels, or more of a criterion.
        allow_stale: Go on although files have changed since they were judged or labelled.

    Raises:
        UserError: The file holds a validation of the same judge from more labels, in all or of one criterion, and
            ``replace_validation`` is false.
    """
    rng = np.random.default_rng(seed)
    labels = check_verdicts_provenance(verdicts, allow_stale=allow_stale)
    people = name_verdict_benchmarks(run, read_people_verdicts(verdicts))
    others = dict(zip(name_run_folders([run, *against])[1:], against, strict=True))
    # All refusals come before the bootstrap, which takes the longest.
    stale = [sentence for folder in against for sentence in _check_same_responses(run, folder, allow_stale=allow_stale)]
    validation = validate_run(run, people, rng=rng, resamples=resamples, allow_stale=allow_stale)
    validated = {
        # Without responses: the verdicts name the questions that form the clusters.
        name: validate_judgments_file(folder, people, rng=rng, resamples=resamples)
        for name, folder in others.items()
    }
    validation = replace(
        validation,
        stale=(*validation.stale, *labels.stale),
        others={name: other.overall for name, other in validated.items()},
    )
    path = out or run / VALIDATION_FILE
    if not replace_validation:
        _refuse_larger_validation(path, validation)
    write_validation(path, validation)
    comparisons = {
        name: compare_judge_runs(
            read_judgments(run / JUDGMENTS_FILE),
            read_judgments(folder / JUDGMENTS_FILE),
            people,
            rng=rng,
            resamples=resamples,
        )
        for name, folder in others.items()
    }
    return JudgeValidationResult(path, validation, comparisons, (*stale, *validation.stale))


def validate_on_sample(
    run: Path,
    verdicts: Iterable[SettledVerdict],
    strata: Mapping[str, str],
    *,
    seed: int,
    allow_stale: bool = False,
) -> ValidationRecord:
    """Compare the judge of a run with a stratified sample of labels."""
    return validate_run(run, verdicts, rng=np.random.default_rng(seed), strata=strata, allow_stale=allow_stale)


def _refuse_larger_validation(path: Path, validation: ValidationRecord) -> None:
    larger = find_larger_validation(path, validation.labelled, of=validation)
    if larger is not None:
        raise UserError(
            f"{path}: {describe_larger_validation(larger, validation, 'these verdicts')}. Pass --replace-validation to"
            " replace it, or write to another file with --out."
        )


def find_larger_validation(path: Path, labelled: int, *, of: ValidationRecord | None = None) -> ValidationRecord | None:
    """Return the validation in a file where it rests on more than ``labelled`` labels; None otherwise.

    With ``of``, also one with more labels of any criterion than ``of``. A validation of another judge, of other
    settings, or of other judgments of the same responses then does not count: the judge that ``of`` is about cannot be
    corrected by it.
    """
    if not path.is_file():
        return None
    try:
        stored = read_validation(path)
    except UserError:
        # Of another version: no report can use it.
        return None
    if of is None:
        return stored if stored.labelled > labelled else None
    is_larger = stored.labelled > labelled or bool(_fewer_labels(stored, of))
    return stored if is_larger and _validates_same_judge(stored, of) else None


def describe_larger_validation(stored: ValidationRecord, validation: ValidationRecord, name: str) -> str:
    """Return which labels the stored validation has more of than a new one, which is called ``name``."""
    if stored.labelled > validation.labelled:
        return f"rests on {stored.labelled:,} labels, {name} on {validation.labelled:,}"
    parts = (
        f"{more:,} labels of {label}, {name} {fewer:,}" for label, more, fewer in _fewer_labels(stored, validation)
    )
    return f"has {'; '.join(parts)}"


def list_label_doubts(validation: ValidationRecord) -> Iterator[str]:
    """Yield signs that people's labels are not what they are taken for: exchanged, or no sample with equal chances."""
    rows = validation.overall.rows.values()
    below_chance = [
        str(row.label) for row in rows if row.scores.kappa.interval is not None and row.scores.kappa.interval.high < 0
    ]
    if below_chance:
        yield (
            f"{', '.join(below_chance)}: judge and people agree less than by chance. "
            "Check that neither yes and no nor two columns are exchanged in the labels."
        )
    row = validation.overall.rows[JudgedLabel.RELIABILITY]
    rate = validation.corrected[row.label].judge
    # A sample by strata is weighed, so it may differ from the run.
    if validation.stratified or rate is None or not row.n:
        return
    # Failures to the judge in a draw without replacement: mean and variance of the hypergeometric distribution.
    failing, share, unlabelled = row.found + row.false_alarms, 1 - rate, max(validation.judged - row.n, 0)
    spread = (row.n * share * rate * unlabelled / max(validation.judged - 1, 1)) ** 0.5
    if abs(failing - row.n * share) > _DOUBTFUL_DEVIATIONS * max(spread, 1):
        yield (
            f"To the judge, {100 * failing / row.n:.1f} % of the labelled responses are unreliable, and "
            f"{100 * share:.1f} % of all: labels chosen otherwise than with equal chances correct no rate."
        )


def _fewer_labels(stored: ValidationRecord, validation: ValidationRecord) -> list[tuple[JudgedLabel, int, int]]:
    """Return each label that people gave to fewer responses than before, with both numbers."""
    # A validation of as many responses may lack a criterion, whose rate could then not be corrected any more.
    counts = (
        (label, row.labelled, validation.overall.rows[label].labelled) for label, row in stored.overall.rows.items()
    )
    return [(label, more, fewer) for label, more, fewer in counts if fewer < more]


def _validates_same_judge(stored: ValidationRecord, other: ValidationRecord) -> bool:
    if (stored.judge, stored.settings) != (other.judge, other.settings):
        return False
    # A validation of other responses may be carried over, so it counts whatever its rates are.
    return stored.run != other.run or _judge_rates(stored) == _judge_rates(other)


def _judge_rates(validation: ValidationRecord) -> dict[str, tuple[float | None, int]]:
    return {label: (rate.judge, rate.judged) for label, rate in validation.corrected.items()}


def _check_same_responses(run: Path, other: Path, *, allow_stale: bool) -> list[str]:
    """Return the stale sentences of another judge's run; raise unless it judged the responses of this run."""
    require_regular_file(other / JUDGMENTS_FILE)
    provenance = check_result_provenance(other / JUDGMENTS_FILE, (run / INSTANCES_FILE, run / RESPONSES_FILE))
    remedy = f"Let the other judge judge the responses of {run}"
    return [
        f"{other}: {sentence}" for sentence in provenance.refuse_stale(other, remedy, allow_stale=allow_stale).stale
    ]
