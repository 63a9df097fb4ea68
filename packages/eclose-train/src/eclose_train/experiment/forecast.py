"""Expected size of an experiment: adapters, switch runs, responses, hours of training, calls and cost of judging."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from eclose.calls.client import CallSettings
from eclose.calls.forecast import drop_repeated_requests, find_writing_habits, forecast_usage
from eclose.calls.run import find_model_price
from eclose.files.jsonl import scan_records
from eclose.files.manifest import read_manifest
from eclose.files.run_folder import INSTANCES_FILE, RESPONSES_FILE
from eclose.judging.judge_response import build_judge_requests
from eclose.readers.response_tasks import ResponseTasks
from eclose.values.family import Family
from eclose.values.response import Response
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import Experiment, find_judge
from eclose_train.experiment.plan import count_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eclose.values.instance import Instance

TREE_SEQUENCES = MappingProxyType(
    {
        "sft": 1.01,
        "cf_sft": 1.61,
        "rm": 1.74,
        "e_closure": 1.70,
        "e_closure-S": 1.70,
        "e_closure-T": 1.65,
        "e_closure-C": 1.67,
        "e_closure-one_sided": 1.64,
    }
)
"""Tokens of a family on the prefix tree by objective, in sequences: a tree holds each shared token once. Measured by
``studies/campaigns/projection.py`` on families of the world in the paper's mix of benchmarks."""
_LEAST_SPREAD = 1.3
"""Ratio of the largest to the smallest count from which a line is fitted; nearer counts say nothing of its slope."""


@dataclass(frozen=True)
class HoursFit:
    """Hours of a training run as a line: a constant part, and a part for every sequence scored per family."""

    constant: float
    per_sequence: float

    @classmethod
    def of(cls, hours: Mapping[str, float], sequences: Mapping[str, float]) -> HoursFit | None:
        """Fit the line to hours by method, through the origin where counts are similar; return None without hours."""
        counts = [sequences[method] for method in hours]
        if not counts or max(counts) < _LEAST_SPREAD * min(counts):
            shares = [value / count for value, count in zip(hours.values(), counts, strict=True)]
            return cls(0.0, float(np.mean(shares))) if shares else None
        slope, constant = np.polyfit(counts, list(hours.values()), 1).tolist()
        return cls(constant, slope)

    def hours(self, sequences: float) -> float:
        """Return the hours of a run that scores this many sequences per family."""
        return self.constant + self.per_sequence * sequences


@dataclass(frozen=True)
class TrainingForecast:
    """Expected hours of the training runs of a method on a backbone."""

    backbone: str
    method: str
    runs: int
    sequences: int
    """Sequences that the objective scores per family."""
    fitted: float | None
    """Hours of a run by the fit; None without recorded hours."""
    recorded: float | None
    """Hours of a run as recorded; None where none are."""
    projected: float | None = None
    """Hours of a run by the fit, if a family costs what it costs on the prefix tree; None without recorded hours."""
    finished: int = 0
    """Runs that are finished."""
    piloted: float | None = None
    """Hours of a run as finished runs of this experiment took: the mean of the method, else by a fit through them, with
    the cost of a family on the prefix tree."""


@dataclass(frozen=True)
class ExperimentForecast:
    """Expected size of an experiment, as a whole and with what is left to do."""

    adapters: int
    switch_runs: int
    responses: int | None
    """Responses of the main comparison; None where the number of questions is unknown."""
    ablation_responses: int | None
    training: tuple[TrainingForecast, ...]

    def hours(self, methods: Sequence[str], *, recorded: bool = False) -> float | None:
        """Return the hours of all training runs of some methods; None where a method has none."""
        rows = [row for row in self.training if row.method in methods]
        return _sum_hours((row.runs, row.recorded if recorded else row.fitted) for row in rows)

    def hours_on_tree(self, methods: Sequence[str]) -> float | None:
        """Return the hours of all training runs of some methods on the prefix tree; None where a method has none."""
        return _sum_hours((row.runs, row.projected) for row in self.training if row.method in methods)

    def hours_left(self, methods: Sequence[str]) -> float | None:
        """Return the hours of the runs that are not finished, by those that are; None where there is no such run."""
        rows = [row for row in self.training if row.method in methods]
        return _sum_hours((row.runs - row.finished, row.piloted) for row in rows)


def _sum_hours(runs: Iterable[tuple[int, float | None]]) -> float | None:
    total = 0.0
    for count, hours in runs:
        if hours is None:
            return None
        total += count * hours
    return total


def forecast_experiment(experiment: Experiment) -> ExperimentForecast:
    """Forecast adapters, switch runs, responses and hours of the whole plan; finished runs serve as a pilot."""
    plan, questions = experiment.plan, _count_questions(experiment)
    generated = [task.cell for task in experiment.tasks if task.stage is Stage.GENERATE]
    ablations = sum(cell.method in plan.ablations for cell in generated)
    return ExperimentForecast(
        adapters=sum(task.stage is Stage.TRAIN for task in experiment.tasks),
        switch_runs=sum(task.stage is Stage.SWITCH for task in experiment.tasks),
        responses=None if questions is None else (len(generated) - ablations) * questions,
        ablation_responses=None if questions is None else ablations * questions,
        training=tuple(_forecast_training(experiment)),
    )


def _count_questions(experiment: Experiment) -> int | None:
    """Return the number of questions: that of the file, or the planned one where there is no file."""
    plan = experiment.plan
    return count_records("questions", plan.questions) if plan.questions.is_file() else plan.question_count


def _read_training_hours(experiment: Experiment) -> dict[tuple[str, str], list[float]]:
    hours: dict[tuple[str, str], list[float]] = {}
    for task in experiment.tasks:
        if task.stage is Stage.TRAIN and task.is_finished(experiment.folder):
            seconds = read_manifest(task.result_path(experiment.folder)).run["seconds"]
            hours.setdefault((task.cell.backbone, task.cell.method), []).append(seconds / 3_600)
    return hours


def _forecast_training(experiment: Experiment) -> Iterator[TrainingForecast]:
    plan, sequences, finished = experiment.plan, experiment.sequences, _read_training_hours(experiment)
    on_tree = {method: TREE_SEQUENCES.get(method, float(count)) for method, count in sequences.items()}
    trained = [task.cell for task in experiment.tasks if task.stage is Stage.TRAIN]
    for backbone in plan.backbones:
        # Ablations are left out of the fit, so that their recorded hours can be compared with it.
        main = {method: hours for method, hours in backbone.hours.items() if method in plan.methods}
        fit = HoursFit.of(main, sequences)
        pilot = {method: float(np.mean(hours)) for (name, method), hours in finished.items() if name == backbone.name}
        pilot_fit = HoursFit.of(pilot, on_tree)
        for method in (*plan.methods, *plan.ablations):
            runs = sum(cell.backbone == backbone.name and cell.method == method for cell in trained)
            if runs:
                count = sequences[method]
                yield TrainingForecast(
                    backbone.name,
                    method,
                    runs,
                    count,
                    fitted=None if fit is None else fit.hours(count),
                    recorded=backbone.hours.get(method),
                    projected=None if fit is None else fit.hours(on_tree[method]),
                    finished=len(finished.get((backbone.name, method), ())),
                    piloted=pilot.get(method, None if pilot_fit is None else pilot_fit.hours(on_tree[method])),
                )


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

    Returns None where the number of questions is unknown, or there is no response to start from.
    """
    plan, settings = experiment.plan, experiment.plan.judge.settings
    questions = _count_questions(experiment)
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
