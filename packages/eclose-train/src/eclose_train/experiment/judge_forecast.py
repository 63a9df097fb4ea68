"""Expected calls and cost of judging, from responses that are there already or from the gold responses of families."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from eclose.calls.client import CallSettings
from eclose.calls.forecast import drop_repeated_requests, find_writing_habits, forecast_usage
from eclose.calls.run import find_model_price
from eclose.files.jsonl import scan_records
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.judging.judge_response import build_judge_requests
from eclose.readers.response_tasks import ResponseTasks
from eclose.values.family import Family
from eclose.values.response import Response
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import Experiment, find_judge

if TYPE_CHECKING:
    from eclose.values.instance import Instance

SAMPLE_SIZE = 100
"""Responses that the mean cost of a response is taken from."""


@dataclass(frozen=True)
class JudgeForecast:
    """What judging the responses that are not judged yet takes."""

    responses: int
    calls: int
    cost: int | None
    """Expected cost in millionths; None where the judge has no known price."""
    currency: str
    basis: str
    """Responses that the forecast was made from."""


def forecast_judge_cost(experiment: Experiment) -> JudgeForecast | None:
    """Forecast the calls and the cost of judging all responses that are not judged yet.

    Args:
        experiment: The experiment.

    Returns:
        The forecast; None where the number of questions is unknown, or there is no response to start from.
    """
    plan, settings = experiment.plan, experiment.plan.judge.settings
    questions = experiment.count_questions()
    sample, basis = _sample_responses(experiment)
    if questions is None or not sample:
        return None
    open_stages = [task for task in experiment.tasks if task.stage is Stage.JUDGE]
    responses = questions * sum(not task.is_finished(experiment.folder) for task in open_stages)
    judge, calls = find_judge(plan, keyless=True), CallSettings(unpriced=True)
    requests = (
        request for instance, response in sample for request in build_judge_requests(instance, response, settings)
    )
    usage = forecast_usage(
        drop_repeated_requests(requests, judge.name), find_model_price(judge, calls), find_writing_habits(judge.name)
    )
    share = responses / len(sample)
    cost = None if usage.cost is None else round(usage.cost * share)
    return JudgeForecast(responses, round(usage.calls * share), cost, calls.currency, basis)


def _sample_responses(experiment: Experiment) -> tuple[list[tuple[Instance, Response]], str]:
    """Return some responses with their questions, and what they are."""
    for task in experiment.tasks:
        if task.stage is Stage.GENERATE and task.is_finished(experiment.folder):
            folder = task.folder(experiment.folder)
            tasks = ResponseTasks(folder / INSTANCES_FILE, folder / RESPONSES_FILE)
            pairs = ((record.value.instance, record.value.response) for record in tasks if record.value is not None)
            return list(islice(pairs, SAMPLE_SIZE)), f"responses of {task.cell}"
    path = experiment.plan.development_families
    families = (record.value for record in scan_records(path, Family)) if path.is_file() else iter(())
    gold = (
        (family.source, Response(family.id, family.source.id, family.gold.trace, family.gold.answer))
        for family in families
        if family is not None
    )
    return list(islice(gold, SAMPLE_SIZE)), f"gold responses of {path.name}"
