"""Cells of an experiment, the stages of each, the identity of every stage, and what became of the stages of a run.

A cell is a backbone, a method and a seed. Its stages form a chain, train -> select -> generate -> judge, and
select -> switch; an untuned backbone has generate -> judge, and switch. The id of a stage is a hash of its resolved
settings, of the files it reads and of the ids of the stages before it, so it is known before anything has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.errors import SettingError
from eclose.files.json_reader import parse_json_object
from eclose.files.run_folder import FOLDER_MANIFEST, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import companion_file_path
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose.values.identity import content_hash
from eclose.values.response import UNTUNED_METHOD, ResponseSource
from eclose_train.experiment.plan import Backbone, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

SWITCHES_FILE = "switches.jsonl"
"""Scores and margins of the development families."""
SELECTION_FILE = "selection.json"
"""Accuracy of every checkpoint, and the selected one."""
FAILURE_FILE = "failure.json"
"""Reason why the last attempt of a stage failed."""
_ID_DIGITS = 16


class Stage(StrEnum):
    """A step of a cell."""

    TRAIN = "train"
    SELECT = "select"
    GENERATE = "generate"
    JUDGE = "judge"
    SWITCH = "switch"


_RESULTS = {
    Stage.TRAIN: FOLDER_MANIFEST,
    Stage.SELECT: SELECTION_FILE,
    Stage.GENERATE: companion_file_path(Path(RESPONSES_FILE), FOLDER_MANIFEST).name,
    Stage.JUDGE: companion_file_path(Path(JUDGMENTS_FILE), FOLDER_MANIFEST).name,
    Stage.SWITCH: companion_file_path(Path(SWITCHES_FILE), FOLDER_MANIFEST).name,
}
"""File that the command of a stage writes last, which makes the stage finished."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A backbone, trained with a method and a seed, or untuned."""

    backbone: str
    method: str = UNTUNED_METHOD
    seed: int | None = None

    @property
    def is_tuned(self) -> bool:
        """Whether the cell has an adapter."""
        return self.method != UNTUNED_METHOD

    @property
    def source(self) -> ResponseSource:
        """Source that the responses of the cell name."""
        return ResponseSource(self.backbone, self.method if self.is_tuned else None, self.seed)

    def __str__(self) -> str:
        return " ".join([self.backbone, self.method, *([] if self.seed is None else [str(self.seed)])])


@dataclass(frozen=True)
class StageTask:
    """A stage of a cell with everything that decides its result."""

    cell: Cell
    stage: Stage
    identity: Mapping[str, Any] = field(compare=False)
    """Resolved settings, hashes of inputs, and ids of the stages before."""
    needs: tuple[StageTask, ...] = field(default=(), compare=False)
    """Stages that must be finished before."""
    source: Path | None = field(default=None, compare=False)
    """File that a stage made elsewhere is taken from; None for a stage that is run."""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        """Derive the id, which names the folder of the stage."""
        digest = content_hash([self.stage.value, dict(self.identity)]).removeprefix("sha256:")
        object.__setattr__(self, "id", digest[:_ID_DIGITS])

    def folder(self, root: Path) -> Path:
        """Return the folder of the stage below the folder of the experiment."""
        return root / self.stage.value / self.id

    def result_path(self, root: Path) -> Path:
        """Return the file that the command of the stage writes last."""
        return self.folder(root) / _RESULTS[self.stage]

    def find_missing_need(self, root: Path) -> StageTask | None:
        """Return the first stage that this one needs and that is not finished."""
        return next((need for need in self.needs if not need.is_finished(root)), None)

    def is_finished(self, root: Path) -> bool:
        """Return whether the command of the stage has written its last file, with a result in it."""
        path = self.result_path(root)
        if not path.is_file():
            return False
        if self.stage is Stage.TRAIN:
            return True
        record = parse_json_object(path.read_bytes())
        # Where no checkpoint submitted an answer, none is selected, and later stages have no adapter. A server that
        # refuses every request leaves a complete run without a single result.
        if self.stage is Stage.SELECT:
            return record.get("selected") is not None
        return bool(record["counts"]["accepted"])


@dataclass(frozen=True)
class ResolvedBackbone:
    """What decides the results of a backbone, apart from method, seed and data."""

    content: str
    """Hash of the weights; of their name where they are on the hub."""
    training: dict[str, Any]
    """Result-deciding settings of training with their defaults."""

    @property
    def prompt(self) -> ResponsePrompt:
        """The prompt of training, which all stages use."""
        return ResponsePrompt(self.training["demonstrations"], PromptOrder(self.training["order"]))


def list_cells(plan: Plan) -> list[Cell]:
    """Return all cells: each backbone untuned, then with every method and seed; ablations on one backbone."""
    cells = []
    for backbone in plan.backbones:
        ablations = plan.ablations if backbone.name == plan.ablation_backbone else []
        cells.append(Cell(backbone.name))
        cells += [Cell(backbone.name, method, seed) for method in (*plan.methods, *ablations) for seed in plan.seeds]
    return cells


@dataclass(frozen=True)
class StagePlanner:
    """Derives the stages of cells from a plan, its resolved backbones, and the hashes of its inputs."""

    plan: Plan
    resolved: Mapping[str, ResolvedBackbone]
    inputs: Mapping[str, str]
    """Hash of every input file by its key in the plan."""
    judge: Mapping[str, Any]
    """Identity of the judge: model, settings and guidelines."""
    imports: Mapping[tuple[Cell, Stage], tuple[Path, str]] = field(default_factory=dict)
    """File and hash of every stage that was made elsewhere."""

    def tasks(self) -> list[StageTask]:
        """Return the stages of all cells, each after the stages that it needs."""
        backbones = {backbone.name: backbone for backbone in self.plan.backbones}
        tasks = []
        for cell in list_cells(self.plan):
            stages = list(self._cell_tasks(cell, backbones[cell.backbone]))
            # What only stages made elsewhere would need is not run.
            needed = {task for task in stages if task.stage in (Stage.JUDGE, Stage.SWITCH)}
            for task in reversed(stages):
                needed.update(task.needs if task in needed else ())
            tasks += [task for task in stages if task in needed]
        return tasks

    def _plan_stage(
        self, cell: Cell, stage: Stage, identity: Mapping[str, Any], needs: tuple[StageTask, ...] = ()
    ) -> StageTask:
        """Return a stage that is run after others, or taken from a file."""
        if (cell, stage) not in self.imports:
            return StageTask(cell, stage, identity, needs)
        path, digest = self.imports[cell, stage]
        return StageTask(cell, stage, {**identity, "imported": digest}, source=path)

    def _cell_tasks(self, cell: Cell, backbone: Backbone) -> Iterator[StageTask]:
        resolved = self.resolved[backbone.name]
        weights = {"weights": resolved.content, "revision": backbone.revision, "dtype": backbone.dtype}
        adapter: tuple[StageTask, ...] = ()
        if cell.is_tuned:
            train = self._plan_stage(cell, Stage.TRAIN, self._train_identity(cell, resolved))
            select = self._plan_stage(
                cell,
                Stage.SELECT,
                {
                    "train": train.id,
                    "families": self.inputs["development_families"],
                    "engine": self.plan.engine,
                    "max_new_tokens": self.plan.selection_max_new_tokens,
                },
                (train,),
            )
            yield from (train, select)
            adapter = (select,)
        system = {
            **weights,
            "adapter": adapter[0].id if adapter else None,
            "prompt": resolved.prompt.hash,
            "max_length": resolved.training["max_length"],
        }
        generate = self._plan_stage(
            cell,
            Stage.GENERATE,
            {
                **system,
                "questions": self.inputs["questions"],
                "engine": self.plan.engine,
                "max_new_tokens": self.plan.max_new_tokens,
                # The name of a cell is written into its responses.
                "source": asdict(cell.source),
            },
            adapter,
        )
        yield generate
        yield self._plan_stage(cell, Stage.JUDGE, {"generate": generate.id, "judge": dict(self.judge)}, (generate,))
        if cell.method not in self.plan.ablations or self.plan.switch_ablations:
            families = {"families": self.inputs[self.plan.switch_input]}
            yield self._plan_stage(cell, Stage.SWITCH, system | families, adapter)

    def _train_identity(self, cell: Cell, resolved: ResolvedBackbone) -> dict[str, Any]:
        return {
            **resolved.training,
            "weights": resolved.content,
            "method": cell.method,
            "seed": cell.seed,
            "families": self.inputs["train_families"],
            "development": self.inputs["development_families"],
        }


_FILTER_KEYS = ("backbone", "method", "seed", "stage", "id")


def filter_tasks(tasks: Sequence[StageTask], filters: Sequence[str]) -> list[StageTask]:
    """Return the tasks that filters such as ``method=sft`` select: any value of a key, and all keys.

    Raises:
        SettingError: A key is unknown, or a value occurs in no task.
    """
    chosen: dict[str, set[str]] = {}
    for item in filters:
        key, equals, value = item.partition("=")
        if not equals or key not in _FILTER_KEYS:
            raise SettingError(f"--only {item}: write key=value with one of the keys {', '.join(_FILTER_KEYS)}.")
        values = {_filter_value(task, key) for task in tasks}
        if value not in values:
            # A large plan has thousands of ids.
            known = "no stage with this id" if key == "id" else ", ".join(sorted(values))
            raise SettingError(f"--only {item}: the plan has {known}.")
        chosen.setdefault(key, set()).add(value)
    return [task for task in tasks if all(_filter_value(task, key) in values for key, values in chosen.items())]


def _filter_value(task: StageTask, key: str) -> str:
    if key in ("stage", "id"):
        return str(getattr(task, key))
    # The seed of an untuned backbone is "None", which no plan lists.
    return str(getattr(task.cell, key))


@dataclass(frozen=True)
class StageProblem:
    """A stage that was not run to its end, with the reason."""

    task: StageTask
    problem: str

    @classmethod
    def of_missing(cls, task: StageTask, missing: StageTask) -> StageProblem:
        """Return the problem of a stage that needs another one."""
        return cls(task, f"{missing.stage} of this cell is not finished")


@dataclass
class ExperimentRun:
    """What a run of an experiment did. Every chosen stage is in exactly one of the lists."""

    on_result: Callable[[StageTask, str | None], None]
    """Called after a stage, with the reason where it failed."""
    finished: list[StageTask] = field(default_factory=list)
    """Stages that were run now."""
    before: list[StageTask] = field(default_factory=list)
    """Stages that had been finished before."""
    failed: list[StageProblem] = field(default_factory=list)
    """Stages that raised an error."""
    waiting: list[StageProblem] = field(default_factory=list)
    """Stages that need a stage that is not finished, or that another process is running."""

    def add(self, task: StageTask, problem: str | None) -> None:
        """Record a stage that was run, with the reason where it failed."""
        if problem is None:
            self.finished.append(task)
        else:
            self.failed.append(StageProblem(task, problem))
        self.on_result(task, problem)
