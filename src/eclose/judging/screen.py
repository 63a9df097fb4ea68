"""Screen questions: can they be used to study reasoning? Asked of a model once for each question, no response shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.benchmarks.layouts import RecordLayout
from eclose.benchmarks.load import detect_layout, scan_instances
from eclose.calls.client import CallSettings
from eclose.calls.run import ModelRun, RunObserver, RunResult, observe_nothing, run_models
from eclose.calls.structured import ask_structured, build_request
from eclose.core.instance import Instance
from eclose.core.judgment import NO_REFERENCE, Ineligibility, Screening
from eclose.judging.settings import JudgeSettings
from eclose.models.resolve import ModelRef, resolve_model
from eclose.protocol.disclosure import eligibility
from eclose.protocol.judging import Question, asked, guideline_hash
from eclose.protocol.structured import UnreadableReplyError
from eclose.store.records.sorted_spool import SortedSpool
from eclose.store.runs.folder import SCREENING
from eclose.store.runs.runner import Job, Rejection
from eclose.store.runs.step import RunStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eclose.models.interface import ChatModel, Request

JOB = "screen"


async def screen(instance: Instance, model: ChatModel, settings: JudgeSettings | None = None) -> Screening | Rejection:
    """What the model says of a question. Without a reference answer there is nothing to screen."""
    shown = eligibility(instance)
    if shown is None:
        return Rejection(NO_REFERENCE)
    settings = settings or JudgeSettings()
    said = await ask_structured(model, asked(shown), _read, decoding=settings.decoding, attempts=settings.attempts)
    if said.reason is not None:
        return Screening(instance.id, model.name, reason=said.reason)
    eligible, code, reason = said.value
    return Screening(instance.id, model.name, eligible, code, reason)


def _read(told: Mapping[str, Any]) -> tuple[bool, Ineligibility | None, str | None]:
    code = None if told["code"] is None else Ineligibility(told["code"])
    if (code is None) != told["eligible"]:
        problem = f"eligible={told['eligible']} with the code {code}: exactly what is not eligible has one."
        raise UnreadableReplyError("contradictory", problem)
    return told["eligible"], code, told["reason"] or None


async def screen_questions(
    instances: Path,
    model: ModelRef | str,
    out: Path,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
    ledger: Path | str | None = None,
    retry: bool = False,
    replay: bool = False,
    force: bool = False,
    watch: RunObserver = observe_nothing,
) -> RunResult:
    """Write ``screening.jsonl`` into a folder; see ``chat.inquiry`` for what the flags mean."""
    settings, calls = settings or JudgeSettings(), calls or CallSettings()
    named = await resolve_model(model, calls.deadline)
    layout = detect_layout(instances) if layout is RecordLayout.AUTO else layout
    how = {"attempts": settings.attempts, **settings.decoding.plain}
    told = {**named.identity, **how, "format": layout.value, "guideline": guideline_hash(Question.ELIGIBILITY)}
    stage = RunStep("screen", told, (instances,), out / SCREENING)

    def jobs(judge: ChatModel) -> list[Job[Instance, Screening]]:
        async def work(instance: Instance) -> Screening | Rejection:
            return await screen(instance, judge, settings)

        return [Job(JOB, work, Screening)]

    def records() -> SortedSpool[Instance]:
        return SortedSpool(Instance, scan_instances(instances, layout=layout))

    inquiry = ModelRun(stage, records, lambda instance: instance.id, jobs)
    return await run_models(inquiry, [named], calls, ledger=ledger, retry=retry, replay=replay, force=force, watch=watch)


def requests(
    instances: Path, settings: JudgeSettings | None = None, *, layout: RecordLayout = RecordLayout.AUTO
) -> Iterator[Request]:
    """Everything a judge is asked about a file's questions, if it answers at the first attempt."""
    for record in scan_instances(instances, layout=layout):
        shown = None if record.value is None else eligibility(record.value)
        if shown is not None:
            yield build_request(asked(shown), (settings or JudgeSettings()).decoding)
