"""Correction of the rates of judged runs by the validation of their judge.

``diagnose``, ``report`` and ``gate`` share this lookup, so that all of them use the same corrected rates or give the
same reason for having none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.files.run_folder import VALIDATION_FILE
from eclose.judging.validation_file import (
    JudgedRun,
    ValidationRecord,
    correct_rates_by_validation,
    read_judge_settings,
    read_validation,
    require_validated_judge,
)
from eclose.metrics.judge_against_people import LABEL_METRICS
from eclose.metrics.rates import Metric
from eclose.stats.rate_correction import CorrectedRate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from eclose.values.verdict import SettledVerdict

MIN_PEOPLE_LABELS = 30
"""Fewest responses with a label of both people and judge that give a corrected rate or count as a validation."""

NO_VALIDATION = "the judge was not validated against people"
NO_LABEL_REASON = "rates among some of the responses, which labels of people do not correct"
UNINFORMATIVE_LABELS_REASON = "the labelled responses do not tell the judge's labels apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCorrection:
    """The corrected rates of judged runs; every metric is either in ``rates`` or in ``reasons``."""

    rates: Mapping[Metric, CorrectedRate] = field(default_factory=dict)
    """Corrected rates with a value; each rests on ``labelled`` labels, at least ``MIN_PEOPLE_LABELS``."""
    reasons: Mapping[Metric, str] = field(default_factory=dict)
    """Reason for each metric without a corrected rate."""
    validation: ValidationRecord | None = None
    """Validation in use; None without one."""
    carried_over: bool = False
    """Whether the validation was made on other responses, which supposes the same error rates of the judge here."""

    @property
    def enough(self) -> bool:
        """Whether the judge counts as validated: people labelled at least ``MIN_PEOPLE_LABELS`` of its responses."""
        return self.validation is not None and self.validation.labelled >= MIN_PEOPLE_LABELS


def correct_run_rates(
    runs: Sequence[Path],
    verdicts: Sequence[SettledVerdict],
    judges: Sequence[str],
    validation: Path | None = None,
    *,
    rng: np.random.Generator,
) -> RateCorrection:
    """Return the corrected rates of judged runs, and for every metric without one the reason.

    Without ``validation``, a single run is corrected by the ``validation.json`` in its folder. Several runs are
    corrected only by a file that is named.

    Args:
        runs: Folders of the judged runs.
        verdicts: The verdicts of the judge, of all runs together, one for each response.
        judges: Judges of the runs, in the order of their first judgments.
        validation: A file that ``eclose judge validate`` wrote.
        rng: Random generator of the intervals.

    Raises:
        SettingError: The validation is of another judge, of other settings or of other judgments.
    """
    path = validation
    # Of several runs each may have a validation of its own, and none is more right than the others.
    if path is None and len(runs) == 1 and (runs[0] / VALIDATION_FILE).exists():
        path = runs[0] / VALIDATION_FILE
    if path is None or not verdicts:
        return RateCorrection(reasons=dict.fromkeys(Metric, NO_VALIDATION))
    judge_validation = read_validation(path)
    # Every run is checked, because one of them may have been judged with other settings.
    for run in runs:
        settings = read_judge_settings(run)
        require_validated_judge(judge_validation, judges[0], settings)
    run_verdicts = JudgedRun.of_verdicts(verdicts, judges)
    corrected = correct_rates_by_validation(judge_validation, run_verdicts, settings=settings, rng=rng)
    by_metric = {LABEL_METRICS[label]: rate for label, rate in corrected.rates.items()}
    reasons = {metric: explain_unusable_rate(by_metric.get(metric)) for metric in Metric}
    return RateCorrection(
        rates={metric: rate for metric, rate in by_metric.items() if reasons[metric] is None},
        reasons={metric: reason for metric, reason in reasons.items() if reason is not None},
        validation=judge_validation,
        carried_over=corrected.carried_over,
    )


def explain_unusable_rate(rate: CorrectedRate | None) -> str | None:
    """Return why a corrected rate cannot be used; None where it can."""
    if rate is None:
        return NO_LABEL_REASON
    if rate.labelled < MIN_PEOPLE_LABELS:
        return f"{rate.labelled:,} of at least {MIN_PEOPLE_LABELS} labels"
    return UNINFORMATIVE_LABELS_REASON if rate.value is None else None
