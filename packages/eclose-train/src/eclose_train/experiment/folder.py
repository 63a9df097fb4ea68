"""Folder of an experiment: its plan with resolved settings, and the state of every stage, read from manifests.

::

    plan.json            the plan, and what it resolves to
    train/ID/            a training run; ID is the hash of what decides it; stage.log has the output of its process
    select/ID/           the selected checkpoint
    generate/ID/         responses to all questions
    judge/ID/            the same responses, judged
    switch/ID/           the switch test
    judge.sqlite         calls to the judge, shared by all cells
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError, UserError
from eclose.files.atomic import write_json
from eclose.files.json_reader import parse_json_object
from eclose.files.jsonl import parse_dataclass
from eclose.files.manifest import hash_file
from eclose_train.experiment.cells import FAILURE_FILE, Cell, ResolvedBackbone, Stage, StagePlanner, StageTask
from eclose_train.experiment.imports import ImportCheck, hash_imports, import_stage, list_imports
from eclose_train.experiment.plan import Plan, parse_plan, read_plan

if TYPE_CHECKING:
    from eclose.calls.resolve import ModelRef

PLAN_FILE = "plan.json"
STAGE_FILE = "stage.json"
"""Cell, stage and identity of a stage's folder, for readers of the folder."""
STAGE_LOG_FILE = "stage.log"
"""Output of the process of a stage, where stages run in processes of their own."""
JUDGE_LEDGER_FILE = "judge.sqlite"
FORMAT = "eclose-experiment-plan-1"


class StageState(StrEnum):
    """State of a stage, as its folder shows it."""

    FINISHED = "finished"
    FAILED = "failed"
    BEGUN = "begun"
    OPEN = "open"


@dataclass(frozen=True)
class Experiment:
    """An experiment in its folder."""

    folder: Path
    plan: Plan
    resolved: Mapping[str, ResolvedBackbone]
    """What decides the results of each backbone, by name."""
    sequences: Mapping[str, int]
    """Sequences that the objective of each method scores per family."""
    judge: Mapping[str, Any]
    """Identity of the judge: model, settings and guidelines."""
    imports: Mapping[str, str] = field(default_factory=dict)
    """Hash of every file that was made elsewhere, by its path."""

    @cached_property
    def tasks(self) -> list[StageTask]:
        """Stages of all cells, each after the stages that it needs."""
        # An input that does not exist yet has a hash of its own; run refuses to start without the file.
        inputs = {
            key: hash_file(path) if path.is_file() else f"missing {key}" for key, path in self.plan.inputs.items()
        }
        imports = {
            (Cell(run.backbone, run.method, run.seed), stage): (path, self.imports[str(path)])
            for run in self.plan.runs
            for stage, path in list_imports(run).items()
        }
        return StagePlanner(self.plan, self.resolved, inputs, self.judge, imports).tasks()

    @property
    def missing_inputs(self) -> list[str]:
        """Input files that do not exist, each with its key."""
        return [f"{key}: {path}" for key, path in self.plan.inputs.items() if not path.is_file()]

    @property
    def judge_ledger(self) -> Path | str:
        """Ledger of the judge: a file, which admits one process at a time, or the URL of a database."""
        ledger = self.plan.judge.ledger
        if ledger is None:
            return self.folder / JUDGE_LEDGER_FILE
        return ledger if "://" in ledger else Path(ledger)

    def state(self, task: StageTask) -> StageState:
        """Return the state of a stage."""
        if task.is_finished(self.folder):
            return StageState.FINISHED
        folder = task.folder(self.folder)
        if (folder / FAILURE_FILE).is_file():
            return StageState.FAILED
        return StageState.BEGUN if folder.is_dir() else StageState.OPEN

    def read_failure(self, task: StageTask) -> str:
        """Return the reason why a failed stage failed."""
        return str(parse_json_object((task.folder(self.folder) / FAILURE_FILE).read_bytes())["problem"])

    def find_other_stages(self) -> Iterator[tuple[Path, str]]:
        """Yield the folders of stages that the plan does not contain, such as those of earlier settings."""
        planned = {task.folder(self.folder) for task in self.tasks}
        for stage in Stage:
            for path in sorted((self.folder / stage.value).glob("*/" + STAGE_FILE)):
                if path.parent not in planned:
                    yield path.parent, str(parse_json_object(path.read_bytes())["cell"])


def init_experiment(plan: Path | str | Plan, out: Path | str) -> Experiment:
    """Check a plan and write it into the folder of an experiment; finished stages of an earlier plan are kept.

    Args:
        plan: File of the plan (YAML), or a plan.
        out: Folder of the experiment.

    Returns:
        The experiment; nothing has been run.

    Raises:
        SettingError: The plan has problems, or runs made elsewhere do not fit it; the message lists all of them.
    """
    from eclose.calls.resolve import find_model_ref  # noqa: PLC0415
    from eclose_train.training.objective import TrainingMethod, build_objective  # noqa: PLC0415 - imports torch
    from eclose_train.training.recipe import resolve_planned_settings  # noqa: PLC0415

    plan = plan if isinstance(plan, Plan) else read_plan(plan)
    resolved = {
        backbone.name: ResolvedBackbone(
            # Weights count by their content, wherever they are.
            getattr(find_model_ref(f"{plan.engine}:{backbone.weights}", revision=backbone.revision), "content"),  # noqa: B009
            resolve_planned_settings(plan.training_settings(backbone, plan.methods[0], plan.seeds[0])),
        )
        for backbone in plan.backbones
    }
    methods = map(TrainingMethod, (*plan.methods, *plan.ablations))
    sequences = {method.value: build_objective(method).sequences for method in methods}
    judge = {**find_judge(plan, keyless=True).identity, **plan.judge.settings.identity}
    if problems := list(ImportCheck(plan, resolved, judge).list_problems()):
        raise SettingError("runs made elsewhere do not fit the plan: " + "; ".join(problems))
    experiment = Experiment(
        folder=Path(out), plan=plan, resolved=resolved, sequences=sequences, judge=judge, imports=hash_imports(plan)
    )
    # Equal backbones are refused, because their cells would share folders.
    names: dict[str, str] = {}
    for task in experiment.tasks:
        if task.stage is Stage.TRAIN and names.setdefault(task.id, task.cell.backbone) != task.cell.backbone:
            raise SettingError(f"backbones: {names[task.id]} and {task.cell.backbone} have the same settings.")
    write_experiment_plan(experiment)
    for task in experiment.tasks:
        if task.source is not None and not task.is_finished(experiment.folder):
            write_stage_file(task, experiment.folder)
            import_stage(task, experiment.folder, plan.questions)
    return experiment


def write_experiment_plan(experiment: Experiment) -> None:
    """Write ``plan.json``: the plan, and what it resolves to."""
    write_json(
        experiment.folder / PLAN_FILE,
        {
            "format": FORMAT,
            "plan": experiment.plan.to_json(),
            "resolved": {name: asdict(backbone) for name, backbone in experiment.resolved.items()},
            "sequences": dict(experiment.sequences),
            "judge": dict(experiment.judge),
            "imports": dict(experiment.imports),
        },
    )


def load_experiment(folder: Path | str) -> Experiment:
    """Load an experiment from its folder, without torch.

    Raises:
        UserError: The folder holds no experiment.
    """
    path = Path(folder) / PLAN_FILE
    if not path.is_file():
        raise UserError(f"{path}: there is no plan. Run eclose experiment init PLAN --out {folder} first.")
    record = parse_json_object(path.read_bytes())
    if record.get("format") != FORMAT:
        raise UserError(f"{path}: is not a plan of this version ({FORMAT}). Run eclose experiment init again.")
    resolved = {name: parse_dataclass(ResolvedBackbone, values) for name, values in record["resolved"].items()}
    plan, imports = parse_plan(record["plan"]), record.get("imports", {})
    return Experiment(
        folder=Path(folder),
        plan=plan,
        resolved=resolved,
        sequences=record["sequences"],
        judge=record["judge"],
        imports=imports,
    )


def find_judge(plan: Plan, *, keyless: bool = False) -> ModelRef:
    """Return the judge of a plan; ``keyless`` where nothing will be sent."""
    from eclose.calls.http.endpoint import ServerAddress  # noqa: PLC0415 - comes with an extra
    from eclose.calls.resolve import find_model_ref  # noqa: PLC0415

    address = ServerAddress(plan.judge.base_url, plan.judge.server_name)
    return find_model_ref(plan.judge.model, base_url=address, keyless=keyless)


def write_stage_file(task: StageTask, root: Path) -> None:
    """Write cell, stage and identity into a stage's folder, before the stage begins."""
    stage = {"cell": str(task.cell), **asdict(task.cell), "stage": task.stage.value, "identity": dict(task.identity)}
    write_json(task.folder(root) / STAGE_FILE, stage)


def write_failure(task: StageTask, root: Path, problem: str, trace: str | None) -> None:
    """Write why a stage failed."""
    write_json(task.folder(root) / FAILURE_FILE, {"problem": problem, "traceback": trace})


def refuse_missing_inputs(experiment: Experiment) -> None:
    """Raise where a file of the plan is missing."""
    if experiment.missing_inputs:
        raise UserError(f"files of the plan do not exist: {'; '.join(experiment.missing_inputs)}.")
