"""Runs made elsewhere: their check against the plan, and their copies in the folders of stages.

A stage that is taken in has the hash of the files it came from in its id, and is never run here. What made the files
is not known beyond what they record, so everything that they record must agree with the plan.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eclose.calls.adapters import ADAPTER_RECIPE_FILE, read_adapter_recipe, same_weights
from eclose.calls.local.weights import ADAPTER_WEIGHTS
from eclose.errors import UserError
from eclose.files.atomic import AtomicFile, write_json
from eclose.files.json_reader import read_json_objects
from eclose.files.jsonl import read_records, scan_records
from eclose.files.manifest import hash_file, read_manifest
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep, companion_file_path
from eclose.readers.load import scan_instances
from eclose.values.response import Response
from eclose_train.experiment.cells import SELECTION_FILE, SWITCHES_FILE, Cell, ResolvedBackbone, Stage, StageTask
from eclose_train.experiment.plan import Plan
from eclose_train.training.switch_test import FamilySwitchScores

if TYPE_CHECKING:
    from pathlib import Path

    from eclose_train.experiment.plan import ImportedRun

IMPORT_FILE = "imported.json"
"""Where the files of a stage came from, with their hashes."""
SELECTED_FOLDER = "selected"
_PROMPT_SETTINGS = ("demonstrations", "order", "max_length")
_MAIN_FILES = {
    Stage.SELECT: ADAPTER_WEIGHTS,
    Stage.GENERATE: RESPONSES_FILE,
    Stage.JUDGE: JUDGMENTS_FILE,
    Stage.SWITCH: SWITCHES_FILE,
}


def list_imports(run: ImportedRun) -> dict[Stage, Path]:
    """Return the file that decides each imported stage of a run."""
    paths = {
        Stage.SELECT: run.adapter,
        Stage.GENERATE: run.responses,
        Stage.JUDGE: run.judged,
        Stage.SWITCH: run.switches,
    }
    return {
        stage: path / _MAIN_FILES[stage] if path.is_dir() else path for stage, path in paths.items() if path is not None
    }


def hash_imports(plan: Plan) -> dict[str, str]:
    """Return the hash of every imported file by its path."""
    return {str(path): hash_file(path) for run in plan.runs for path in list_imports(run).values()}


@dataclass(frozen=True)
class ImportCheck:
    """Compares runs made elsewhere with a plan."""

    plan: Plan
    resolved: Mapping[str, ResolvedBackbone]
    judge: Mapping[str, Any]
    """Identity of the judge of the plan."""

    def list_problems(self) -> Iterator[str]:
        """Yield everything that does not fit, each with its key in the plan."""
        checks = {
            Stage.SELECT: self._check_adapter,
            Stage.GENERATE: self._check_responses,
            Stage.JUDGE: self._check_judged,
            Stage.SWITCH: self._check_switches,
        }
        for number, run in enumerate(self.plan.runs):
            cell = Cell(run.backbone, run.method, run.seed)
            for stage, path in list_imports(run).items():
                problems = checks[stage](path, cell) if path.is_file() else [f"{path} is not a file"]
                yield from (f"runs[{number}] ({cell}): {problem}" for problem in problems)

    def _check_adapter(self, path: Path, cell: Cell) -> Iterator[str]:
        recipe = read_adapter_recipe(path.parent)
        if not recipe:
            yield f"{path.parent} has no {ADAPTER_RECIPE_FILE}, which says how the adapter was trained"
            return
        training = self.resolved[cell.backbone].training
        planned = {"method": cell.method, "seed": cell.seed} | {name: training[name] for name in _PROMPT_SETTINGS}
        for name, value in planned.items():
            if recipe.get(name) != value:
                yield f"{path.parent} was trained with {name} {recipe.get(name)}, the plan has {value}"
        backbone = next(item for item in self.plan.backbones if item.name == cell.backbone)
        if not same_weights(str(recipe.get("model")), backbone.weights):
            yield f"{path.parent} was trained on {recipe.get('model')}, the plan has {backbone.weights}"
        hashes = {key: item.get("hash") for key, item in (recipe.get("inputs") or {}).items()}
        if hashes.get("families") != _hash_input(self.plan.train_families):
            yield f"{path.parent} was trained on other families than {self.plan.train_families}"

    def _check_responses(self, path: Path, _cell: Cell) -> Iterator[str]:
        planned = {record.value.id: record.value for record in scan_instances(self.plan.questions) if record.value}
        ids = [record.value.instance_id for record in scan_records(path, Response) if record.value]
        if other := set(ids) - planned.keys():
            yield f"{path} answers {len(other):,} questions that are not in {self.plan.questions}, such as {min(other)}"
        if missing := planned.keys() - set(ids):
            yield f"{path} answers {len(planned) - len(missing):,} of {len(planned):,} questions of the plan"
        # Another text under the id of a question is another question.
        instances = path.with_name(INSTANCES_FILE)
        if instances.is_file():
            records = [record.value for record in scan_instances(instances) if record.value]
            changed = [item.id for item in records if item.id in planned and item != planned[item.id]]
            if changed:
                yield f"{instances} has other questions or passages under {len(changed):,} ids, such as {changed[0]}"

    def _check_judged(self, path: Path, cell: Cell) -> Iterator[str]:
        for name in (RESPONSES_FILE, INSTANCES_FILE):
            if not path.with_name(name).is_file():
                yield f"{path.with_name(name)} is not a file"
                return
        yield from self._check_responses(path.with_name(RESPONSES_FILE), cell)
        manifest = companion_file_path(path, "manifest.json")
        if not manifest.is_file():
            yield f"{path} has no manifest, so its judge and guidelines are not known"
            return
        settings = read_manifest(manifest).settings
        for name, value in self.judge.items():
            if settings.get(name) != value:
                yield f"{path} was judged with another {name} than the plan's: {_shorten(settings.get(name))}"

    def _check_switches(self, path: Path, cell: Cell) -> Iterator[str]:
        manifest = companion_file_path(path, "manifest.json")
        families = self.plan.inputs[self.plan.switch_input]
        if manifest.is_file() and _hash_input(families) not in read_manifest(manifest).inputs.values():
            yield f"{path} was made from other families than {families}"
            return
        ids = {str(record.value["id"]) for record in read_json_objects(families) if record.value is not None}
        rows = [row for row in read_records(path, FamilySwitchScores) if _is_of_cell(row, cell)]
        if not rows:
            yield f"{path} has no row with method {cell.source.method} and seed {cell.seed}"
        if other := {row.family_id for row in rows} - ids:
            yield f"{path} has {len(other):,} families that are not in {families}, such as {min(other)}"


def import_stage(task: StageTask, root: Path, questions: Path) -> None:
    """Copy the files of a stage that was made elsewhere into its folder; the file that finishes it comes last.

    Raises:
        UserError: The files changed since the plan was written.
    """
    path, folder = task.source, task.folder(root)
    assert path is not None
    if not path.is_file() or hash_file(path) != task.identity["imported"]:
        raise UserError(f"{path}: is not the file that the plan was checked with. Run eclose experiment init again.")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"stage": task.stage.value, "from": str(path), "hash": task.identity["imported"]}
    write_json(folder / IMPORT_FILE, settings)
    match task.stage:
        case Stage.SELECT:
            _copy_adapter(path.parent, folder, settings)
        case Stage.GENERATE:
            instances = PipelineStep("import", settings, (questions,), folder / INSTANCES_FILE)
            instances.write(scan_instances(questions))
            PipelineStep("import", settings, (path,), folder / RESPONSES_FILE).write(scan_records(path, Response))
        case Stage.JUDGE:
            manifest = companion_file_path(path, "manifest.json")
            for source in (path.with_name(INSTANCES_FILE), path.with_name(RESPONSES_FILE), path, manifest):
                with source.open("rb") as original, AtomicFile(folder / source.name) as copy:
                    shutil.copyfileobj(original, copy)
        case _:
            step = PipelineStep("import", settings, (path,), folder / SWITCHES_FILE)
            step.write(
                record
                if record.value is None or _is_of_cell(record.value, task.cell)
                else replace(record, value=None, rejected="another system")
                for record in scan_records(path, FamilySwitchScores)
            )


def _is_of_cell(row: FamilySwitchScores, cell: Cell) -> bool:
    return (row.method, row.seed) == (cell.source.method, cell.seed)


def _copy_adapter(adapter: Path, folder: Path, settings: Mapping[str, Any]) -> None:
    target = folder / SELECTED_FOLDER
    # A copy that was interrupted is made again.
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in sorted(adapter.iterdir()):
        if path.is_file():
            shutil.copy2(path, target)
    # The recipe may be in the folder above, that of the training run.
    write_json(target / ADAPTER_RECIPE_FILE, read_adapter_recipe(adapter))
    selected = {"checkpoint": None, "adapter": settings["hash"], "folder": SELECTED_FOLDER}
    write_json(folder / SELECTION_FILE, {"selected": selected, "imported": dict(settings)})


def _hash_input(path: Path) -> str | None:
    return hash_file(path) if path.is_file() else None


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
