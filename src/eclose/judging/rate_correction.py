"""Find the validation of a judged run and correct the judge's rates by it.

``diagnose``, ``report`` and ``gate`` share this lookup, so that all of them use the same corrected rates or give the
same reason for having none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eclose.judging.validate import Validation, correct, read, refuse_other_judge
from eclose.metrics.judge_agreement import LABEL_METRICS
from eclose.metrics.rates import Metric
from eclose.stats.rate_correction import CorrectedRate
from eclose.store.runs.folder import JUDGMENTS, VALIDATION
from eclose.store.runs.manifest import read_manifest
from eclose.store.runs.step import sibling_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    from eclose.core.judgment import Judgment
    from eclose.core.response import Response

MIN_LABELS = 30
"""Fewest responses with a label of both people and judge that give a corrected rate or count as a validation."""

NO_VALIDATION = "the judge was not validated against people"
NO_LABEL = "people's labels correct the rate of a label, not this rate"
UNINFORMATIVE = "the labelled responses do not tell the judge's labels apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The corrected rates of judged runs; every metric is either in ``rates`` or in ``reasons``."""

    rates: Mapping[Metric, CorrectedRate] = field(default_factory=dict)
    """Corrected rates with a value; ``labelled`` is how many labels each rests on, at least ``MIN_LABELS``."""
    reasons: Mapping[Metric, str] = field(default_factory=dict)
    """Why each of the other metrics has no corrected rate."""
    validation: Validation | None = None
    """The validation in use; None where there is none."""
    carried_over: bool = False
    """Whether the validation was made on other responses: then the judge is supposed to err here as it did there."""

    @property
    def enough(self) -> bool:
        """Whether the judge counts as validated: people labelled at least ``MIN_LABELS`` of its responses."""
        return self.validation is not None and self.validation.labelled >= MIN_LABELS


def correct_runs(
    runs: Sequence[Path],
    judgments: Sequence[Judgment],
    responses: Sequence[Response],
    validation: Path | None = None,
    *,
    rng: np.random.Generator,
) -> Correction:
    """Return the corrected rates of judged runs, and for every metric without one the reason.

    Without ``validation``, a single run is corrected by the ``validation.json`` in its folder. That file tells nothing
    of other runs unless it is named.

    Args:
        runs: Folders of the judged runs.
        judgments: The judgments in use, of all runs together.
        responses: The responses they are about; they tell which responses share a question.
        validation: A file that ``eclose judge validate`` wrote.
        rng: Draws the intervals.

    Raises:
        SettingError: The validation is of another judge, of other settings or of other judgments.
    """
    path = validation
    if path is None and len(runs) == 1 and (runs[0] / VALIDATION).exists():
        path = runs[0] / VALIDATION
    if path is None or not judgments:
        return Correction(reasons=dict.fromkeys(Metric, NO_VALIDATION))
    known = read(path)
    for run in runs:
        settings = read_manifest(sibling_path(run / JUDGMENTS, "manifest.json")).settings
        refuse_other_judge(known, judgments[0].judge, settings)
    corrected = correct(known, judgments, responses, settings=settings, rng=rng)
    by_metric = {LABEL_METRICS[label]: rate for label, rate in corrected.rates.items()}
    reasons = {metric: why_not(by_metric.get(metric)) for metric in Metric}
    return Correction(
        rates={metric: rate for metric, rate in by_metric.items() if reasons[metric] is None},
        reasons={metric: reason for metric, reason in reasons.items() if reason is not None},
        validation=known,
        carried_over=corrected.carried_over,
    )


def why_not(rate: CorrectedRate | None) -> str | None:
    """Return why a corrected rate cannot be used; None where it can."""
    if rate is None:
        return NO_LABEL
    if rate.labelled < MIN_LABELS:
        return f"{rate.labelled:,} of at least {MIN_LABELS} labels"
    return UNINFORMATIVE if rate.value is None else None
