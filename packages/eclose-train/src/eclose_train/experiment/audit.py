"""Audit of results: draw responses of tuned models for people to label, and report what they found (appendix D.5.2).

Each setting of a dataset and a backbone gets its own questions, no question is used with two backbones, and all tuned
methods answer the same questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.errors import SettingError, UserError
from eclose.files.atomic import write_files
from eclose.files.jsonl import encode_json_line
from eclose.files.manifest import Manifest, hash_file
from eclose.files.outcome_counts import RecordCounts
from eclose.files.run_folder import FOLDER_MANIFEST, INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.readers.judged_run import read_judged_cases
from eclose.values.identity import hash_sort_key
from eclose.values.instance import Instance
from eclose.values.response import Response
from eclose_train.experiment.cells import Stage
from eclose_train.experiment.folder import Experiment, load_experiment
from eclose_train.experiment.report.people import AuditResults, summarize_audit
from eclose_train.experiment.report.write import write_audit_report
from eclose_train.experiment.results import REPORT_FOLDER, collect_audit_labels, collect_results, name_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.readers.judged_run import JudgedCase
    from eclose_train.experiment.cells import StageTask

QUESTIONS_PER_SETTING = 10
"""Questions of each dataset and backbone, as in the paper."""
Setting = tuple[str, str]
"""Backbone and benchmark."""


@dataclass(frozen=True)
class AuditSample:
    """Responses for people to label, with their questions."""

    questions: Mapping[Setting, tuple[str, ...]]
    """Ids of the questions of each setting."""
    instances: tuple[Instance, ...]
    responses: tuple[Response, ...]
    """In an order that does not follow methods; ids are those of the experiment."""
    counts: RecordCounts
    """Judged responses of the audited methods: those drawn, and the others by reason."""


def sample_audit(
    folder: Path | str | Experiment,
    out: Path | str,
    *,
    questions: int = QUESTIONS_PER_SETTING,
    seed: int = 42,
    training_seed: int | None = None,
) -> AuditSample:
    """Draw responses of all tuned methods and write them as a folder that ``eclose annotate init`` takes.

    Args:
        folder: Folder of an experiment, or an experiment; all its tuned methods must be judged for the training seed.
        out: Folder of the sample.
        questions: Questions of each dataset and backbone.
        seed: Seed of the draw.
        training_seed: Training seed of the audited models; the first of the plan by default.

    Raises:
        UserError: Runs are missing, a setting has too few questions, or the folder holds another sample.
    """
    experiment = folder if isinstance(folder, Experiment) else load_experiment(folder)
    chosen = experiment.plan.seeds[0] if training_seed is None else training_seed
    if chosen not in experiment.plan.seeds:
        raise SettingError(f"--training-seed {chosen}: the plan has {', '.join(map(str, experiment.plan.seeds))}.")
    tasks = _find_audited_tasks(experiment, chosen)
    cases = {task: read_judged_cases(task.folder(experiment.folder)).cases for task in tasks}
    drawn = draw_audit_questions(_list_common_questions(cases), questions, seed)
    sample = _assemble_sample(cases, drawn, seed)
    settings = {"questions": questions, "seed": seed, "training_seed": chosen, "methods": experiment.plan.methods}
    inputs = {
        f"{task.id}/{JUDGMENTS_FILE}": hash_file(task.folder(experiment.folder) / JUDGMENTS_FILE) for task in tasks
    }
    _write_sample(Path(out), sample, Manifest("experiment audit sample", settings, inputs, {}, sample.counts))
    return sample


def _find_audited_tasks(experiment: Experiment, seed: int) -> list[StageTask]:
    """Return the judged stages of every tuned method; raise where one is not finished."""
    tasks = [
        task
        for task in experiment.tasks
        if task.stage is Stage.JUDGE and task.cell.method in experiment.plan.methods and task.cell.seed == seed
    ]
    missing = [str(task.cell) for task in tasks if not task.is_finished(experiment.folder)]
    if missing:
        raise UserError(f"these runs are not judged yet: {'; '.join(missing)}. Run eclose experiment run first.")
    return tasks


def _list_common_questions(cases: Mapping[StageTask, Sequence[JudgedCase]]) -> dict[Setting, set[str]]:
    common: dict[Setting, set[str]] = {}
    benchmarks = {case.instance.benchmark or "" for rows in cases.values() for case in rows}
    for task, rows in cases.items():
        for benchmark in benchmarks:
            answered = {case.instance.id for case in rows if (case.instance.benchmark or "") == benchmark}
            setting = (task.cell.backbone, benchmark)
            common[setting] = common[setting] & answered if setting in common else answered
    return common


def draw_audit_questions(
    available: Mapping[Setting, set[str]], count: int, seed: int
) -> dict[Setting, tuple[str, ...]]:
    """Draw questions of each setting in the order of their hashes; a question is drawn for one backbone only.

    Raises:
        UserError: Settings have too few questions; all of them are named.
    """
    drawn: dict[Setting, tuple[str, ...]] = {}
    used: set[tuple[str, str]] = set()
    for (backbone, benchmark), questions in available.items():
        free = [question for question in questions if (benchmark, question) not in used]
        # The order of a benchmark does not depend on the backbone, so that backbones take consecutive parts of it.
        ordered = sorted(free, key=lambda question: hash_sort_key(seed, benchmark, question))
        drawn[backbone, benchmark] = tuple(ordered[:count])
        used |= {(benchmark, question) for question in drawn[backbone, benchmark]}
    if short := {setting: len(questions) for setting, questions in drawn.items() if len(questions) < count}:
        listing = "; ".join(f"{benchmark} on {backbone}: {size}" for (backbone, benchmark), size in short.items())
        raise UserError(
            f"{count} questions of each setting are needed, each for one backbone alone, and these have fewer left: "
            f"{listing}. Lower --questions."
        )
    return drawn


def _assemble_sample(
    cases: Mapping[StageTask, Sequence[JudgedCase]], drawn: Mapping[Setting, tuple[str, ...]], seed: int
) -> AuditSample:
    instances: dict[str, Instance] = {}
    responses: list[Response] = []
    for task, rows in cases.items():
        for case in rows:
            if case.instance.id in drawn[task.cell.backbone, case.instance.benchmark or ""]:
                instances[case.instance.id] = case.instance
                id_ = name_response(task, case.response.id)
                responses.append(replace(case.response, id=id_, source=task.cell.source))
    responses.sort(key=lambda response: hash_sort_key(seed, response.id))
    received = sum(map(len, cases.values()))
    counts = RecordCounts(received, len(responses), {"not drawn": received - len(responses)})
    return AuditSample(drawn, tuple(instances.values()), tuple(responses), counts)


def _write_sample(folder: Path, sample: AuditSample, manifest: Manifest) -> None:
    """Write questions, responses and, last, the manifest; a sample that is there already is not replaced."""
    contents = {
        name: b"".join(encode_json_line(record) + b"\n" for record in records)
        for name, records in ((INSTANCES_FILE, sample.instances), (RESPONSES_FILE, sample.responses))
    }
    for name, data in contents.items():
        if (folder / name).exists() and (folder / name).read_bytes() != data:
            raise UserError(f"{folder / name}: belongs to another sample and may be in use. Write to another folder.")
    paths = write_files(folder, contents)
    manifest.with_outputs({name: hash_file(path) for name, path in paths.items()}).write(folder / FOLDER_MANIFEST)


def report_audit(
    folder: Path | str | Experiment, labels: Path | str, out: Path | str | None = None
) -> tuple[AuditResults, list[Path]]:
    """Compare the evaluator's labels with people's in the audit of an experiment; return the audit and its files.

    Args:
        folder: Folder of an experiment, or an experiment.
        labels: People's verdicts, as ``eclose annotate export`` writes them.
        out: Folder of the tables; ``report`` in that of the experiment by default.

    Raises:
        UserError: No verdict is on a response of the experiment.
    """
    experiment = folder if isinstance(folder, Experiment) else load_experiment(folder)
    draws = experiment.plan.bootstrap.audit
    results = summarize_audit(collect_audit_labels(collect_results(experiment).verdicts, Path(labels)), draws)
    return results, write_audit_report(results, draws, out or experiment.folder / REPORT_FOLDER)
