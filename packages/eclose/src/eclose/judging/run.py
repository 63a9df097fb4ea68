"""Judge all responses of a run, and forecast the cost of doing so.

A run's folder holds ``instances.jsonl`` and ``responses.jsonl``; judging adds ``judgments.jsonl``.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any

from eclose.calls.client import CallSettings
from eclose.calls.forecast import UsageForecast, drop_repeated_requests, find_writing_habits, forecast_usage
from eclose.calls.record_loop import RecordJob
from eclose.calls.resolve import LocalModelRef, ModelRef, find_model_ref, resolve_model_ref
from eclose.calls.run import ModelRun, RunOptions, RunResult, find_forecast_price, run_models_on_records
from eclose.errors import SettingError
from eclose.files.atomic import AtomicFile
from eclose.files.growth import read_growth
from eclose.files.manifest import hash_file, hash_files
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep, companion_file_path
from eclose.files.verify import find_file_manifest
from eclose.judging.inputs import JudgeInputFiles
from eclose.judging.judge_response import build_judge_requests, judge_response
from eclose.judging.settings import JudgeSettings
from eclose.readers.judged_run import CONVERSION_STEPS
from eclose.readers.response_tasks import ResponseFilter, ResponseTask, ResponseTasks, find_related_models
from eclose.values.judgment import EVIDENCE, NEVER_ASKED_REASONS, Criterion, Judgment, missing_reason_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.model import ChatModel


JUDGE_JOB = "judge"


async def judge_responses(
    inputs: JudgeInputFiles,
    model: ModelRef | str,
    out: Path | str,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    options: RunOptions | None = None,
    *,
    only: ResponseFilter | None = None,
) -> RunResult:
    """Judge every response of a run with a model, and write ``judgments.jsonl`` into a folder.

    With ``only``, the responses that it leaves out are not judged; the manifest counts them by reason.
    """
    calls = calls or CallSettings()
    run = await plan_judging(inputs, model, out, settings or JudgeSettings(), deadline=calls.deadline, only=only)
    return await run_models_on_records(run, calls, options)


async def plan_judging(
    inputs: JudgeInputFiles,
    model: ModelRef | str,
    out: Path | str,
    settings: JudgeSettings,
    *,
    deadline: float,
    only: ResponseFilter | None = None,
) -> JudgeRun:
    """Return the run that ``judge_responses`` makes; the server of the model is asked for its name."""
    judge = await resolve_judge(model, settings, deadline)
    identity = describe_judge(judge, settings)
    # The result depends on both files, so a change of either makes the judgments stale.
    files: tuple[Path, ...] = (inputs.instances, inputs.responses)
    if only is not None:
        identity, files = identity | {"only": only.identity}, files + only.inputs
    stage = PipelineStep("judge", identity, files, Path(out) / JUDGMENTS_FILE, origin=inputs.origin)
    return JudgeRun(stage, inputs, judge, settings, only)


async def resolve_judge(model: ModelRef | str, settings: JudgeSettings, deadline: float) -> ModelRef:
    """Return the model that judges; its server is asked for its name where that is empty."""
    judge = await resolve_model_ref(model, deadline)
    if settings.effort is not None and isinstance(judge, LocalModelRef):
        raise SettingError("effort: a local model has no reasoning effort. Leave it out, or use a server.")
    return judge


def describe_judge(judge: ModelRef, settings: JudgeSettings) -> dict[str, Any]:
    """Return what decides the judgments besides the responses, as manifests record it."""
    return {**judge.identity, **settings.identity}


async def build_judge_run(
    inputs: JudgeInputFiles,
    model: str,
    base_url: str | ServerAddress | None,
    out: Path,
    settings: JudgeSettings,
    deadline: float,
    only: ResponseFilter | None = None,
) -> JudgeRun:
    """Build the run from values that can be sent to a worker on another machine."""
    judge = find_model_ref(model, base_url=base_url)
    return await plan_judging(inputs, judge, out, settings, deadline=deadline, only=only)


@dataclass(frozen=True)
class JudgeRun(ModelRun[ResponseTask]):
    """A run that judges every response of a file."""

    inputs: JudgeInputFiles
    judge: ModelRef
    settings: JudgeSettings
    only: ResponseFilter | None = None
    """Choice of the responses to judge; None for all."""

    @property
    def model_refs(self) -> tuple[ModelRef]:
        """The judge."""
        return (self.judge,)

    @property
    def jobs(self) -> list[RecordJob]:
        """One job: all questions about a response."""
        return [RecordJob(JUDGE_JOB, self._judge, Judgment)]

    async def _judge(self, task: ResponseTask, judge: ChatModel) -> Judgment:
        return await judge_response(task.instance, task.response, judge, self.settings)

    def write_inputs(self, *, force: bool) -> None:
        """Copy questions and responses beside the judgments, so that the folder alone can be diagnosed.

        Unless forced, a file that is there already stays: reading the run compares its hash with that of the judged
        file.
        """
        for source, name in ((self.inputs.instances, INSTANCES_FILE), (self.inputs.responses, RESPONSES_FILE)):
            target = self.stage.out.with_name(name)
            if not target.exists() or (force and not target.samefile(source)):
                _copy_file(source, target)
                if name == RESPONSES_FILE:
                    _copy_conversion(source, target)
        if self.inputs.origin is not None and (growth := read_growth(self.stage.out.parent)) is not None:
            # Other settings come this far only when forced.
            replace(growth, settings=self.stage.settings).write(self.stage.out.parent)

    @contextmanager
    def open_records(self) -> Iterator[ResponseTasks]:
        """Open the responses with their questions."""
        tasks = ResponseTasks(self.inputs.instances, self.inputs.responses, self.only)
        # Known only once the files are indexed, which happens inside the run.
        self.source_counts.update({**self.inputs.counts, **tasks.counts})
        yield tasks


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as content, AtomicFile(target) as copy:
        copyfileobj(content, copy)


def _copy_conversion(source: Path, target: Path) -> None:
    """Copy what says which records of another tool's file were lost when the responses were converted from it."""
    manifest = find_file_manifest(source)
    if manifest is None or manifest.stage not in CONVERSION_STEPS:
        return
    if manifest.outputs.get(source.name) != hash_file(source):
        return
    copies = [target]
    for kind in ("quarantined.jsonl", "rejected.jsonl"):
        explanations = companion_file_path(source, kind)
        if explanations.name in manifest.outputs and explanations.is_file():
            copies.append(companion_file_path(target, kind))
            _copy_file(explanations, copies[-1])
    manifest.with_outputs(hash_files(copies)).write(companion_file_path(target, "manifest.json"))


def find_same_family_models(inputs: JudgeInputFiles, judge_name: str) -> list[str]:
    """Return the models of the judge's family among those that wrote the responses, sorted by name."""
    return find_related_models(inputs.responses, judge_name)


def forecast_judging(
    inputs: JudgeInputFiles,
    model: ModelRef,
    settings: JudgeSettings,
    calls: CallSettings,
    only: ResponseFilter | None = None,
) -> UsageForecast:
    """Return the calls, tokens and cost of judging, supposing that the first attempt of each call succeeds."""
    requests = (
        request
        for record in ResponseTasks(inputs.instances, inputs.responses, only)
        if record.value is not None
        for request in build_judge_requests(record.value.instance, record.value.response, settings)
    )
    return forecast_usage(
        drop_repeated_requests(requests, model.name), find_forecast_price(model, calls), find_writing_habits(model.name)
    )


# Counts of the labels that a judge did not give, by criterion and reason.


NO_USABLE_REPLY = "no usable reply"
"""Reason for a missing label on the evidence in files that record none."""


@dataclass(frozen=True, slots=True)
class MissingLabelCount:
    """The missing labels of one criterion for one kind of reason."""

    criterion: str
    """``L``, ``A``, ``C``, ``K``, ``Acc``, ``evidence``, ``criterion_NAME`` or ``passages``."""
    kind: str
    """Kind of the reason, without its details."""
    responses: int
    example: str
    """Most frequent details of the reason; empty where it has none."""

    @property
    def asked(self) -> bool:
        """Whether a label was requested; a question without a reference does not count against the judge."""
        return self.kind not in NEVER_ASKED_REASONS


@dataclass(frozen=True, slots=True)
class UnjudgedLabels:
    """The missing labels of a run."""

    responses: int
    """Number of judged responses."""
    missing: tuple[MissingLabelCount, ...]
    without_any: int = 0
    """Number of responses without any label, also on the evidence."""

    @property
    def shares(self) -> Mapping[Criterion, float]:
        """Share of responses without a requested label, by criterion."""
        return {
            criterion: sum(row.responses for row in self.missing if row.criterion == criterion and row.asked)
            / max(self.responses, 1)
            for criterion in Criterion
        }


def count_unjudged_labels(judgments: Iterable[Judgment]) -> UnjudgedLabels:
    """Count the missing labels of judgments by criterion and reason, with the most frequent details of each."""
    responses = without_any = 0
    reasons: Counter[tuple[str, str]] = Counter()
    for judgment in judgments:
        responses += 1
        without_any += all(judgment.label(name) is None for name in (EVIDENCE, *Criterion))
        missing = judgment.missing_reasons
        reasons.update(missing.items())
        if judgment.evidence_sufficient is None and EVIDENCE not in missing:
            reasons[EVIDENCE, NO_USABLE_REPLY] += 1
    return UnjudgedLabels(responses, tuple(_build_rows(reasons)), without_any)


def _build_rows(reasons: Counter[tuple[str, str]]) -> list[MissingLabelCount]:
    details: dict[tuple[str, str], Counter[str]] = {}
    # Sorted, so that of two equally frequent details the same one is the example in every run.
    for (criterion, reason), count in sorted(reasons.items()):
        kind = missing_reason_kind(reason)
        details.setdefault((criterion, kind), Counter())[reason.removeprefix(kind).removeprefix(": ")] += count
    # Evidence first, then the criteria in the order of the paper, then what was asked on request.
    order = [EVIDENCE, *map(str, Criterion)]
    order += sorted({criterion for criterion, _ in details}.difference(order))
    return [
        MissingLabelCount(criterion, kind, counts.total(), counts.most_common(1)[0][0])
        for (criterion, kind), counts in sorted(details.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]
