"""Judge of replies during training: TRR and LGG of an evaluation, at a bounded cost and without stopping training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.calls.client import CallSettings
from eclose.calls.coroutines import run_coroutine
from eclose.calls.run import RunOptions
from eclose.errors import EcloseError
from eclose.judged_cases import read_judged_cases
from eclose.judging.find_inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.metrics.rates import Metric, compute_metric_rates
from eclose.models.resolve import ModelRef, find_model_ref

if TYPE_CHECKING:
    from pathlib import Path

_LEDGER_FILE = "judge.sqlite"
_METRICS = (Metric.TRACE_RELIABILITY_RATE, Metric.GAP_RATE)


@dataclass(frozen=True)
class ReplyJudge:
    """Judge of replies, and the most that its calls may cost over the run, in USD."""

    model: ModelRef
    budget: float | None = None

    @classmethod
    def named(cls, name: str, budget: float | None = None) -> ReplyJudge:
        """Return the judge of a name or address; nothing is sent yet."""
        return cls(find_model_ref(name), budget)

    def judge(self, run: Path, replies: int) -> dict[str, float]:
        """Return TRR and LGG of a folder's replies, each with the numbers of judged and of undecided replies.

        Args:
            run: Folder with questions and responses; the judgments are written into it.
            replies: Number of replies.
        """
        calls = CallSettings(budget=self.budget, unpriced=self.budget is None)
        # One ledger for all evaluations: the budget holds for the run, and a repeated epoch pays for no call again.
        # Judgments of an evaluation that was killed are replaced.
        options = RunOptions(ledger=run.parent / _LEDGER_FILE, retry=True, force=True)
        try:
            run_coroutine(judge_responses(find_judge_inputs(run, run), self.model, run, calls=calls, options=options))
            verdicts = [case.verdict for case in read_judged_cases(run).cases]
        except EcloseError as error:
            # The epoch has been trained; a server that is down must not cost it.
            warnings.warn(f"evaluate_judge: the replies of {run.name} were not judged: {error}", stacklevel=2)
            verdicts = []
        figures: dict[str, float] = {}
        for metric, rate in compute_metric_rates(verdicts, _METRICS).items():
            # A rate of no judged reply is undefined, so it is left out; the counts say so.
            figures |= {} if rate.value is None else {str(metric): rate.value}
            figures |= {f"{metric}_n": rate.n, f"{metric}_undecided": replies - rate.n}
        return figures
