"""A small experiment whose responses are judged, written without training anything."""

from __future__ import annotations

from eclose.files.jsonl import write_records
from eclose.files.manifest import Manifest, hash_file
from eclose.files.outcome_counts import RecordCounts
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment, StepJudgment
from eclose.values.response import Response, Trace
from eclose_train.experiment.cells import ResolvedBackbone, Stage
from eclose_train.experiment.folder import Experiment, write_experiment_plan
from eclose_train.experiment.plan import parse_plan
from tests.experiment.plans import plan_values

TRAINING = {"demonstrations": 0, "order": "evidence_first", "max_length": 8_192}
BENCHMARKS = {"wiki": 6, "hotpot": 4}


def make_questions():
    """Return questions of two benchmarks."""
    return [
        Instance(f"{name}-{number}", "Who?", (Passage("p", "T", "Ada is it."),), "Ada", benchmark=name)
        for name, size in BENCHMARKS.items()
        for number in range(size)
    ]


def write_judged_experiment(folder, *, skip=(), **more):
    """Write an experiment of two backbones, two methods and two seeds with judged responses.

    Closure fails for every third question, counted from the number of the cell, so that methods differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_records(folder / "questions.jsonl", make_questions())
    names = ("Small", "Large")
    values = {
        "backbones": [{"name": name, "weights": name, "learning_rate": 0.01} for name in names],
        "questions": str(folder / "questions.jsonl"),
    }
    plan = parse_plan(
        plan_values(**{**values, **{key: str(item) if key.endswith("labels") else item for key, item in more.items()}})
    )
    resolved = {name: ResolvedBackbone(f"sha256:{name}", TRAINING) for name in names}
    experiment = Experiment(folder / "exp", plan, resolved, {}, {"effort": "high"})
    write_experiment_plan(experiment)
    judged = [task for task in experiment.tasks if task.stage is Stage.JUDGE]
    for number, task in enumerate(judged):
        if str(task.cell) not in skip:
            write_judged_cell(task.folder(experiment.folder), number)
    return experiment


def write_judged_cell(folder, number):
    """Write responses of one cell with their judgments."""
    folder.mkdir(parents=True)
    questions = make_questions()
    responses = [Response(f"r-{question.id}", question.id, Trace.of("Ada is it."), "Ada") for question in questions]
    judgments = [
        Judgment(
            response.id,
            "world",
            (StepJudgment(substantive=True, sound=True),),
            aligned=True,
            closed=(at + number) % 3 > 0,
            complete=True,
            correct=True,
        )
        for at, response in enumerate(responses)
    ]
    inputs = {"instances.jsonl": questions, "responses.jsonl": responses}
    for name, records in {**inputs, "judgments.jsonl": judgments}.items():
        write_records(folder / name, records)
    Manifest(
        "judge",
        {},
        {name: hash_file(folder / name) for name in inputs},
        {"judgments.jsonl": hash_file(folder / "judgments.jsonl")},
        RecordCounts(len(judgments), len(judgments)),
    ).write(folder / "judgments.jsonl.manifest.json")
