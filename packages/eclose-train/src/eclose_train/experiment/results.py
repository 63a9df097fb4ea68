"""Results of an experiment, from the folders of its finished stages and people's verdicts, and its report."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eclose.calls.adapters import read_adapter_recipe
from eclose.errors import RecordError, UserError
from eclose.files.jsonl import read_records
from eclose.files.manifest import hash_file, read_manifest
from eclose.files.run_folder import FOLDER_MANIFEST
from eclose.files.verify import check_verdicts_provenance
from eclose.judging.validation_file import read_judgments, read_people_verdicts
from eclose.metrics.judge_against_people import ValidationCase
from eclose.metrics.summary import UNKNOWN_GROUP
from eclose.readers.judged_run import read_judged_cases
from eclose.readers.load import scan_instances
from eclose.values.identity import content_hash
from eclose.values.response import UNTUNED_METHOD, ResponseSource
from eclose.values.three_valued import Label
from eclose.values.verdict import SettledVerdict, Verdict
from eclose_train.experiment.cells import SWITCHES_FILE, Stage
from eclose_train.experiment.folder import Experiment, load_experiment
from eclose_train.experiment.report.build import ExperimentReport, build_experiment_report
from eclose_train.experiment.report.grid import REFERENCE_METHOD, ExperimentGrid, name_method
from eclose_train.experiment.report.inputs import ExperimentResults, RunProvenance, TrainingTime
from eclose_train.experiment.report.people import AuditedResponse, AuditLabels, EvaluatorLabels
from eclose_train.experiment.report.write import write_experiment_report
from eclose_train.pooling import locate_response
from eclose_train.training.switch_test import FamilySwitchScores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eclose_train.experiment.cells import StageTask
    from eclose_train.experiment.plan import Plan


def read_people_labels(
    path: Path, judged: Sequence[SettledVerdict]
) -> tuple[list[tuple[SettledVerdict, SettledVerdict]], int]:
    """Read people's verdicts and find the response of each.

    A verdict names its response by the id in the experiment, which ``audit sample`` writes, or by the id in the file
    of responses together with its source; the source may be left out where only one cell has the id.

    Returns:
        The judged responses, each with people's verdict, and the number of labels of responses outside the experiment.

    Raises:
        UserError: No verdict is on a response of the experiment, or a verdict fits responses of several cells.
        RecordError: A response has two verdicts, or a verdict is on another question.
    """
    check_verdicts_provenance(path)
    by_id = {row.response_id: row for row in judged}
    by_short_id: defaultdict[str, list[SettledVerdict]] = defaultdict(list)
    for row in judged:
        by_short_id[row.response_id.partition("/")[2]].append(row)
    pairs: dict[str, tuple[SettledVerdict, SettledVerdict]] = {}
    not_in_runs = 0
    for people in read_people_verdicts(path):
        same_id = [by_id[people.response_id]] if people.response_id in by_id else by_short_id[people.response_id]
        rows = [row for row in same_id if people.source is None or row.source == people.source]
        record = f"response {people.response_id}"
        if len(rows) > 1:
            raise UserError(f"{path}: {record} is in {len(rows)} cells. Name the source of the response in its row.")
        if not rows:
            not_in_runs += 1
            continue
        if rows[0].instance_id != people.instance_id:
            raise RecordError(f"the verdict is on question {people.instance_id!r}, not on its own.", record=record)
        if pairs.setdefault(rows[0].response_id, (rows[0], people))[1] != people:
            raise RecordError("has two different verdicts. Adjudicate them.", record=record)
    if not pairs:
        raise UserError(f"{path}: no verdict is on a judged response of this experiment. Check that it belongs here.")
    return list(pairs.values()), not_in_runs


REPORT_FOLDER = "report"


def report_experiment(
    folder: Path | str | Experiment,
    out: Path | str | None = None,
    judgments: Mapping[str, Path | str] | None = None,
) -> tuple[ExperimentReport, list[Path]]:
    """Write the report of everything that is finished in an experiment, and return it with its files.

    Args:
        folder: Folder of an experiment, or an experiment.
        out: Folder of the report; ``report`` in that of the experiment by default.
        judgments: Files of judgments of the same responses by other judges or efforts, by their names in tables. They
            are compared with people where the plan has labels.

    Raises:
        UserError: No response of the main comparison is judged, or people's labels cannot be assigned to responses.
    """
    experiment = folder if isinstance(folder, Experiment) else load_experiment(folder)
    report = build_experiment_report(collect_results(experiment, judgments), experiment.plan.bootstrap)
    return report, write_experiment_report(report, out or experiment.folder / REPORT_FOLDER)


def collect_results(experiment: Experiment, judgments: Mapping[str, Path | str] | None = None) -> ExperimentResults:
    """Collect verdicts, answer matches, switch scores, times and recipes of the finished stages, and people's labels.

    ``judgments`` are files of other judges or efforts, by their names in tables.
    """
    parts = _CollectedParts(experiment)
    for task in experiment.tasks:
        if task.is_finished(experiment.folder):
            parts.add(task)
    judged = [*parts.verdicts, *parts.ablations]
    grid = _plan_grid(experiment.plan)
    results = ExperimentResults(
        verdicts=parts.verdicts,
        ablations=parts.ablations,
        matches=parts.matches,
        switches=parts.switches,
        times=parts.times,
        recipes=parts.recipes,
        evaluator=_collect_evaluator_labels(experiment, judged, judgments or {}),
        label_source="Labels by the judge of the plan",
        provenance=_describe_runs(experiment),
        grid=grid,
        ablation_grid=_plan_ablation_grid(experiment.plan, grid),
        # The parts of the study without any result; grids list the missing runs of the other parts.
        unfinished=(
            *(["Ablations: no run is judged."] if experiment.plan.ablations and not parts.ablations else []),
            *([] if parts.switches else ["Switch test: no run is finished."]),
        ),
        left_out=dict(parts.left_out),
    )
    if experiment.plan.audit_labels is None:
        return results
    return replace(results, audit=collect_audit_labels(results.verdicts, experiment.plan.audit_labels))


def _describe_runs(experiment: Experiment) -> dict[str, RunProvenance]:
    """Return how the runs of each backbone were made and judged.

    Stages of other judges or data have other folders, so all runs of a plan agree in them; a prompt belongs to the
    settings of a backbone.
    """
    plan, guidelines = experiment.plan, experiment.judge.get("guidelines")
    hashes = {key: hash_file(path) for key, path in plan.inputs.items() if path.is_file()}
    families = [value for key, value in hashes.items() if key.endswith("_families")]
    shared = RunProvenance(
        evaluator=plan.judge.model,
        effort=experiment.judge.get("effort"),
        guidelines=None if guidelines is None else _shorten(content_hash(guidelines)),
        pool=_shorten(hashes["questions"]) if "questions" in hashes else None,
        families=_shorten(content_hash(families)) if families else None,
    )
    return {
        name: replace(shared, prompt=_shorten(backbone.prompt.hash)) for name, backbone in experiment.resolved.items()
    }


def _shorten(digest: str) -> str:
    """Return ``sha256:`` and twelve digits, which tell hashes apart in a table."""
    return digest[:19]


def collect_audit_labels(verdicts: Sequence[SettledVerdict], labels: Path) -> AuditLabels:
    """Read people's verdicts of an audit and join them with those of the judge, in the order of the methods."""
    people, not_in_runs = read_people_labels(labels, verdicts)
    order = {row.response_id: number for number, row in enumerate(verdicts)}
    pairs = sorted(people, key=lambda pair: order[pair[0].response_id])
    responses = []
    for row, human in pairs:
        unit = locate_response(row)
        unit = unit._replace(method=name_method(unit.method))
        responses.append(AuditedResponse(unit, row.verdict, human.verdict))
    return AuditLabels(responses=responses, not_in_runs=not_in_runs)


def name_response(task: StageTask, id_: str) -> str:
    """Return the id of a response in the experiment: responses of several cells to a question may have one id."""
    return f"{task.id}/{id_}"


def _collect_evaluator_labels(
    experiment: Experiment, judged: Sequence[SettledVerdict], judgments: Mapping[str, Path | str]
) -> EvaluatorLabels | None:
    if experiment.plan.labels is None:
        return None
    labels, not_in_runs = read_people_labels(experiment.plan.labels, judged)
    others = {name: {row.response_id: row.verdict for row in read_judgments(path)} for name, path in judgments.items()}
    judge = experiment.plan.judge
    return EvaluatorLabels(
        name=experiment.judge.get("effort") or judge.model,
        cases=[
            ValidationCase(row.instance_id, row.benchmark or UNKNOWN_GROUP, row.verdict, people.verdict)
            for row, people in labels
        ],
        # Files of other judges name responses as people's labels do, or by their ids in the experiment.
        others={
            name: [
                verdicts.get(people.response_id) or verdicts.get(row.response_id) or Verdict() for row, people in labels
            ]
            for name, verdicts in others.items()
        },
        not_in_runs=not_in_runs,
    )


def _plan_grid(plan: Plan) -> ExperimentGrid:
    records = scan_instances(plan.questions)
    questions = Counter(record.value.benchmark or "" for record in records if record.value is not None)
    methods = tuple(name_method(method) for method in (UNTUNED_METHOD, *plan.methods))
    return ExperimentGrid(
        methods, tuple(item.name for item in plan.backbones), tuple(sorted(plan.seeds)), dict(questions)
    )


def _plan_ablation_grid(plan: Plan, main: ExperimentGrid) -> ExperimentGrid | None:
    """Return the planned ablations, with the full method of the main comparison."""
    if not plan.ablations or plan.ablation_backbone is None:
        return None
    variants = tuple(name_method(method) for method in plan.ablations)
    full = (REFERENCE_METHOD,) if REFERENCE_METHOD in main.methods else ()
    return replace(main, methods=(*variants, *full), backbones=(plan.ablation_backbone,))


@dataclass
class _CollectedParts:
    """Records of the stages that were read so far."""

    experiment: Experiment
    verdicts: list[SettledVerdict] = field(default_factory=list)
    ablations: list[SettledVerdict] = field(default_factory=list)
    matches: dict[str, Label] = field(default_factory=dict)
    switches: list[FamilySwitchScores] = field(default_factory=list)
    times: list[TrainingTime] = field(default_factory=list)
    recipes: dict[ResponseSource, dict[str, Any]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, task: StageTask) -> None:
        """Read the results of a stage."""
        match task.stage:
            case Stage.TRAIN:
                self._add_training(task)
            case Stage.JUDGE:
                self._add_verdicts(task)
            case Stage.SWITCH:
                self._add_switches(task)
            case _:
                pass  # selected checkpoints and responses are in the stages after them

    def _add_training(self, task: StageTask) -> None:
        folder, cell = task.folder(self.experiment.folder), task.cell
        run = read_manifest(folder / FOLDER_MANIFEST).run
        assert cell.seed is not None
        self.times.append(
            TrainingTime(
                backbone=cell.backbone,
                method=cell.method,
                seed=cell.seed,
                seconds=run["seconds"],
                processes=run["processes"],
                device=run["device"],
            )
        )
        self.recipes[cell.source] = read_adapter_recipe(folder)

    def _add_verdicts(self, task: StageTask) -> None:
        case_set = read_judged_cases(task.folder(self.experiment.folder))
        rows = self.ablations if task.cell.method in self.experiment.plan.ablations else self.verdicts
        for case in case_set.cases:
            row = replace(case.row, response_id=name_response(task, case.response.id), source=task.cell.source)
            rows.append(row)
            self.matches[row.response_id] = case.matched
        self.left_out.update(reason for _, reason in case_set.left_out)

    def _add_switches(self, task: StageTask) -> None:
        source = task.cell.source
        path = task.folder(self.experiment.folder) / SWITCHES_FILE
        # Rows name the weights; tables name backbones as the plan does.
        self.switches += [
            replace(row, model=source.model, method=source.method, seed=source.seed)
            for row in read_records(path, FamilySwitchScores)
        ]
