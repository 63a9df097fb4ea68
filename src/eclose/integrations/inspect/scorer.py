"""The scorer ``eclose/lgg``: judges the samples of an Inspect evaluation by the locked guidelines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from inspect_ai.model import Model, get_model, model_roles
from inspect_ai.scorer import Metric, Score, Scorer, Target, scorer
from inspect_ai.solver import TaskState

from eclose.diagnosis.diagnose import JudgedCase
from eclose.errors import SettingError
from eclose.integrations.inspect.convert_samples import (
    SCORE_KEYS,
    build_empty_score,
    build_judged_score,
    explain_missing_response,
    instance_from_sample,
    response_from_output,
)
from eclose.integrations.inspect.metrics import gap_metric, label_rate_metric
from eclose.judging.judge_response import judge_response
from eclose.judging.settings import JudgeSettings
from eclose.models.inspect_model import InspectModel

if TYPE_CHECKING:
    from eclose.models.interface import ChatModel

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
    """Return the judge that was passed, or the model with the role ``grader``."""
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
