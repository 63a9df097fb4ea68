"""Screen questions with a model: whether each can be used to study reasoning, judged without any response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.benchmarks.layouts import RecordLayout
from eclose.benchmarks.load import detect_file_layout, scan_instances
from eclose.calls.client import CallSettings
from eclose.calls.forecast import UsageForecast, find_writing_habits, forecast_usage
from eclose.calls.run import ModelJob, ModelRun, RunOptions, RunResult, find_model_price, run_models_on_records
from eclose.calls.structured import ask_structured, build_structured_request
from eclose.core.instance import Instance
from eclose.core.judgment import NO_REFERENCE_REASON, Ineligibility, QuestionScreening
from eclose.judging.settings import JudgeSettings
from eclose.models.resolve import ModelRef, resolve_model_ref
from eclose.protocol.disclosure import disclose_for_eligibility
from eclose.protocol.judging import JudgeQuestion, build_judge_prompt, judge_guideline_hash
from eclose.protocol.structured import InconsistentReplyError
from eclose.store.records.sorted_spool import SortedSpool
from eclose.store.runs.folder import SCREENING_FILE
from eclose.store.runs.runner import RecordRejection
from eclose.store.runs.step import PipelineStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eclose.models.interface import ChatModel, Request

SCREENING_JOB = "screen"


async def screen_question(
    instance: Instance, model: ChatModel, settings: JudgeSettings | None = None
) -> QuestionScreening | RecordRejection:
    """Return the screening of a question; a rejection where it has no reference answer."""
    # Question, evidence and reference only, as for the human screeners (appendix A.3.1).
    material = disclose_for_eligibility(instance)
    if material is None:
        return RecordRejection(NO_REFERENCE_REASON)
    settings = settings or JudgeSettings()
    decoding, attempts = settings.decoding, settings.attempts
    answer = await ask_structured(
        model, build_judge_prompt(material), _parse_reply, decoding=decoding, attempts=attempts
    )
    # No label, with the reason: the question stays countable and does not enter the pool of eligible ones.
    if answer.reason is not None:
        return QuestionScreening(instance.id, model.name, reason=answer.reason)
    eligible, code, reason = answer.value
    return QuestionScreening(instance.id, model.name, eligible, code, reason)


def _parse_reply(reply: Mapping[str, Any]) -> tuple[bool, Ineligibility | None, str | None]:
    code = None if reply["code"] is None else Ineligibility(reply["code"])
    # A schema cannot state that the code belongs to ineligible questions and to those only.
    if (code is None) != reply["eligible"]:
        problem = f"eligible={reply['eligible']} with the code {code}: a code is given for ineligible questions only."
        raise InconsistentReplyError("contradictory", problem)
    return reply["eligible"], code, reply["reason"] or None


async def screen_question_eligibility(
    instances: Path,
    model: ModelRef | str,
    out: Path,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    options: RunOptions | None = None,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
) -> RunResult:
    """Ask a model whether each question is eligible, and write ``screening.jsonl`` into a folder."""
    settings, calls = settings or JudgeSettings(), calls or CallSettings()
    judge = await resolve_model_ref(model, calls.deadline)
    layout = detect_file_layout(instances) if layout is RecordLayout.AUTO else layout
    decoding = {"attempts": settings.attempts, **settings.decoding.plain}
    guideline = judge_guideline_hash(JudgeQuestion.ELIGIBILITY)
    # All that decides the replies: a run with other values is other work and needs another folder.
    identity = {**judge.identity, **decoding, "format": layout.value, "guideline": guideline}
    stage = PipelineStep("screen", identity, (instances,), out / SCREENING_FILE)
    return await run_models_on_records(ScreeningRun(stage, judge, settings), calls, options)


@dataclass(frozen=True)
class ScreeningRun(ModelRun[Instance]):
    """A run that screens every question of a file."""

    judge: ModelRef
    settings: JudgeSettings

    @property
    def model_refs(self) -> tuple[ModelRef]:
        """The judge."""
        return (self.judge,)

    @property
    def jobs(self) -> list[ModelJob]:
        """One job: the question about eligibility."""
        return [ModelJob(SCREENING_JOB, self._screen, QuestionScreening)]

    async def _screen(self, instance: Instance, judge: ChatModel) -> QuestionScreening | RecordRejection:
        return await screen_question(instance, judge, self.settings)

    def open_records(self) -> SortedSpool[Instance]:
        """Open the questions in the order of their ids."""
        layout = RecordLayout(self.stage.settings["format"])
        return SortedSpool(Instance, scan_instances(self.stage.inputs[0], layout=layout))


def _build_screening_requests(
    instances: Path, settings: JudgeSettings | None = None, *, layout: RecordLayout = RecordLayout.AUTO
) -> Iterator[Request]:
    """Yield every request about the questions of a file, supposing that the first attempt of each succeeds."""
    for record in scan_instances(instances, layout=layout):
        material = None if record.value is None else disclose_for_eligibility(record.value)
        if material is not None:
            yield build_structured_request(build_judge_prompt(material), (settings or JudgeSettings()).decoding)


def forecast_screening(
    instances: Path,
    model: ModelRef,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    *,
    layout: RecordLayout = RecordLayout.AUTO,
) -> UsageForecast:
    """Return the calls, tokens and cost of screening a file of questions, before a call is sent."""
    price = find_model_price(model, calls or CallSettings())
    return forecast_usage(
        _build_screening_requests(instances, settings, layout=layout), price, find_writing_habits(model.name)
    )
