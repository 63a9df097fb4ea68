"""The scorer ``eclose/lgg``: our judge, under the locked guidelines, on the samples of an Inspect evaluation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from inspect_ai.model import Model, get_model, model_roles
from inspect_ai.scorer import Metric, Score, Scorer, Target, scorer
from inspect_ai.solver import TaskState

from eclose.diagnosis.diagnose import Case
from eclose.errors import SettingError
from eclose.integrations.inspect.cases import (
    KEYS,
    instance_of,
    recorded_response,
    response_of,
    score_of,
    unanswered,
    unscored,
)
from eclose.integrations.inspect.metrics import gap, judged
from eclose.integrations.inspect.model import InspectModel
from eclose.judging.judge_response import judge_response
from eclose.judging.settings import JudgeSettings

if TYPE_CHECKING:
    from eclose.models.interface import ChatModel

ROLE = "grader"
"""The role of the judge among the models of an evaluation, by Inspect's custom."""
METRICS: list[Metric | dict[str, list[Metric]]] = [gap(), {key: [judged()] for key in KEYS}]


@scorer(metrics=METRICS, guidelines=JudgeSettings(joint=True).identity["guidelines"])
def lgg(
    judge: str | Model | None = None,
    reference_free: bool = False,
    joint: bool = False,
    repeat: int = 1,
    effort: str | None = None,
    attempts: int = 2,
    max_tokens: int = 4096,
) -> Scorer:
    """Judge every response: L, A, C, K and Acc, and what follows from them. What was not judged is NaN.

    The judge is named here or bound to the role ``grader``; the model under test never judges itself by default.
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
        instance = instance_of(state.sample_id, state.input_text, list(target), state.metadata)
        if (reason := unanswered(state.output)) is not None:
            return unscored(reason)
        response = recorded_response(state.metadata, state.output)
        if response is None:
            response = response_of(instance, state.output, str(state.model), state.epoch)
        # What is not the judge's doing is raised: Inspect then counts an error, and a retry asks again.
        return score_of(Case(instance, response, await judge_response(instance, response, _model(judge), settings)))

    return score


def _model(judge: str | Model | None) -> ChatModel:
    """Who judges."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise SettingError("the judge needs Inspect's usual back end. Unset INSPECT_ASYNC_BACKEND.") from None
    if judge is not None:
        return InspectModel(get_model(judge))
    if ROLE not in model_roles():
        raise SettingError(
            f"who judges? Name a model with -S judge=provider/model (-T in a task of ours), or bind the role with "
            f"--model-role {ROLE}=provider/model."
        )
    return InspectModel(get_model(role=ROLE, required=True))
