"""The scorer ``eclose/lgg``: judges the samples of an Inspect evaluation by the locked guidelines."""

from __future__ import annotations

import asyncio
from math import nan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from inspect_ai.model import Model, get_model, model_roles
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState

from eclose.calls.inspect_model import InspectModel
from eclose.diagnosis.diagnose import JudgedCase
from eclose.errors import SettingError
from eclose.integrations.inspect.samples import (
    SCORE_KEYS,
    build_empty_score,
    build_judged_score,
    explain_missing_response,
    instance_from_sample,
    parse_score_labels,
    response_from_output,
)
from eclose.judging.judge_response import judge_response
from eclose.judging.settings import JudgeSettings
from eclose.metrics import rates
from eclose.metrics.summary import summarize_verdicts
from eclose.stats.arrays import number_distinct_labels, sum_by_group
from eclose.stats.clustered_rates import clustered_rate
from eclose.stats.intervals import Interval
from eclose.stats.rates import Rate
from eclose.values.verdict import SettledVerdict

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from eclose.calls.model import ChatModel


# Metrics for Inspect: rates over the judged responses, with counts, standard errors and intervals.
#
# Epochs are not averaged: every response counts once, and intervals are over questions, as in the reports of eclose.
# Undefined values (a rate over no responses, the standard error of a single question) are NaN.


CONDITIONAL = (rates.Metric.GAP_SHARE, rates.Metric.GAP_RISK)
"""Rates whose denominator depends on labels, so that no single label gives them."""


@metric(name="judged", scores="unreduced")
def label_rate_metric() -> Metric:
    """Return the metric of one label: its rate among the responses that have it."""

    def compute(scores: list[SampleScore]) -> Value:
        hits = [bool(score.score.as_float()) for score in scores]
        questions = [str(score.sample_id) for score in scores]
        # hits and question codes: one entry per response; the question is the cluster.
        interval = clustered_rate(np.array(hits, np.intp), number_distinct_labels(questions)[0]).interval
        return {
            "rate": sum(hits) / len(hits) if hits else nan,
            "stderr": _stderr(hits, questions),
            "low": nan if interval is None else interval.low,
            "high": nan if interval is None else interval.high,
            "n": len(hits),
        }

    return compute


@metric(name="gap", scores="unreduced")
def gap_metric() -> Metric:
    """Return the metric of the gap: its share of insufficient responses and of wrong answers, with counts."""

    def compute(scores: list[SampleScore]) -> Value:
        rows = [
            SettledVerdict(str(number), str(score.sample_id), parse_score_labels(score.score.value))
            for number, score in enumerate(scores)
        ]
        values: dict[str, float] = {"responses": len(rows)}
        values["undecided"] = sum(row.verdict.trace_group is None for row in rows)
        for group in summarize_verdicts(rows):
            for name in CONDITIONAL:
                values |= _flatten(name, group.rates[name], group.estimates[name].interval)
        return values

    return compute


def _flatten(name: str, rate: Rate, interval: Interval | None) -> dict[str, float]:
    # Inspect shows a metric of several values only as a flat dictionary of numbers.
    return {
        name: nan if rate.value is None else rate.value,
        f"{name}_low": nan if interval is None else interval.low,
        f"{name}_high": nan if interval is None else interval.high,
        f"{name}_n": rate.n,
        f"{name}_unjudged": rate.unjudged,
    }


def _stderr(hits: Sequence[bool], questions: Sequence[Hashable]) -> float:
    """Return the cluster-robust standard error of the mean, with questions as clusters."""
    cluster, distinct = number_distinct_labels(questions)
    if len(distinct) < 2:
        return nan
    values = np.array(hits, float)
    # Residuals summed by question, because responses to one question err together; g / (g - 1) corrects the bias.
    sums = sum_by_group(cluster, values - values.mean(), len(distinct))
    return sqrt(float((sums**2).sum()) * len(distinct) / (len(distinct) - 1)) / len(values)


JUDGE_ROLE = "grader"
"""Role of the judge among the models of an evaluation, by the convention of Inspect."""
LGG_METRICS: list[Metric | dict[str, list[Metric]]] = [gap_metric(), {key: [label_rate_metric()] for key in SCORE_KEYS}]


@scorer(name="lgg", metrics=LGG_METRICS, guidelines=JudgeSettings(joint=True).identity["guidelines"])
def lgg_scorer(
    judge: str | Model | None = None,
    reference_free: bool = False,
    joint: bool = False,
    repeat: int = 1,
    effort: str | None = None,
    attempts: int = 2,
    max_tokens: int = 4096,
) -> Scorer:
    """Judge every response by L, A, C, K and Acc, and derive G, TRR and LGG; a missing label is NaN.

    The judge is passed here or bound to the role ``grader``. There is no default, so that a model never judges itself
    by accident.
    """
    settings = JudgeSettings(
        reference_free=reference_free,
        joint=joint,
        repeat=repeat,
        effort=effort,
        attempts=attempts,
        max_tokens=max_tokens,
    )

    async def score(state: TaskState, target: Target) -> Score:
        instance = instance_from_sample(state.sample_id, state.input_text, list(target), state.metadata)
        if (reason := explain_missing_response(state.output)) is not None:
            return build_empty_score(reason)
        response = response_from_output(instance, state.output, str(state.model), state.epoch)
        # Failures of the service are raised: Inspect counts an error, and its retry scores the sample again.
        judgment = await judge_response(instance, response, _resolve_judge(judge), settings)
        return build_judged_score(JudgedCase(instance, response, judgment))

    return score


def _resolve_judge(judge: str | Model | None) -> ChatModel:
    # Judging needs asyncio; Inspect can run on trio as well.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise SettingError("the judge needs the asyncio back end of Inspect. Unset INSPECT_ASYNC_BACKEND.") from None
    if judge is not None:
        return InspectModel(get_model(judge))
    if JUDGE_ROLE not in model_roles():
        raise SettingError(
            f"no judge is named. Pass -S judge=provider/model (-T in a task of eclose), or bind the role with "
            f"--model-role {JUDGE_ROLE}=provider/model."
        )
    return InspectModel(get_model(role=JUDGE_ROLE, required=True))
