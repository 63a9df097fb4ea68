"""Screen questions with a model: whether each can be used to study reasoning, judged without any response."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from eclose.calls.client import CallSettings
from eclose.calls.forecast import UsageForecast, drop_repeated_requests, find_writing_habits, forecast_usage
from eclose.calls.record_loop import RecordJob, RecordRejection
from eclose.calls.resolve import ModelRef, find_model_ref, resolve_model_ref
from eclose.calls.run import ModelRun, RunOptions, RunResult, find_forecast_price, run_models_on_records
from eclose.calls.structured import ask_structured, build_structured_request
from eclose.files.id_set import SortedSpool
from eclose.files.jsonl import ReadRecord
from eclose.files.run_folder import SCREENING_FILE
from eclose.files.step import PipelineStep
from eclose.judging.settings import JudgeSettings
from eclose.prompts.disclosure import disclose_for_eligibility
from eclose.prompts.judge_questions import JudgeQuestion, build_judge_prompt, judge_guideline_hash
from eclose.prompts.structured import InconsistentReplyError
from eclose.readers.load import resolve_import_settings, scan_instances
from eclose.values.instance import Instance
from eclose.values.judgment import NO_REFERENCE_REASON, Ineligibility, QuestionScreening

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.model import ChatModel
    from eclose.prompts.structured import PromptWithSchema
    from eclose.readers.import_settings import ImportSettings

SCREENING_JOB = "screen"


def build_screening_prompt(instance: Instance) -> PromptWithSchema | RecordRejection:
    """Return the question about eligibility; a rejection where there is no reference answer."""
    # Question, evidence and reference only, as for the human screeners (appendix A.3.1).
    material = disclose_for_eligibility(instance)
    return RecordRejection(NO_REFERENCE_REASON) if material is None else build_judge_prompt(material)


async def screen_question(
    instance: Instance, model: ChatModel, settings: JudgeSettings | None = None
) -> QuestionScreening | RecordRejection:
    """Return the screening of a question; a rejection where it has no reference answer."""
    prompt = build_screening_prompt(instance)
    if isinstance(prompt, RecordRejection):
        return prompt
    settings = settings or JudgeSettings()
    answer = await ask_structured(model, prompt, _parse_reply, decoding=settings.decoding, attempts=settings.attempts)
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
    imported: ImportSettings | None = None,
) -> RunResult:
    """Ask a model whether each question is eligible, and write ``screening.jsonl`` into a folder."""
    settings, calls = settings or JudgeSettings(), calls or CallSettings()
    run = await plan_screening(instances, model, out, settings, deadline=calls.deadline, imported=imported)
    return await run_models_on_records(run, calls, options)


async def plan_screening(
    instances: Path,
    model: ModelRef | str,
    out: Path,
    settings: JudgeSettings,
    *,
    deadline: float,
    imported: ImportSettings | None = None,
) -> ScreeningRun:
    """Return the run that screens a file of questions; nothing is sent but a request for the server's models."""
    judge = await resolve_model_ref(model, deadline)
    imported = resolve_import_settings(instances, imported)
    # All that decides the replies: a run with other values is other work.
    identity = {
        **judge.identity,
        "attempts": settings.attempts,
        **settings.decoding.plain,
        "guideline": judge_guideline_hash(JudgeQuestion.ELIGIBILITY),
        **imported.identity,
    }
    stage = PipelineStep(SCREENING_JOB, identity, (instances,), out / SCREENING_FILE)
    scan = partial(scan_instances, instances, settings=imported)
    return ScreeningRun(stage, scan, judge, settings)


async def build_screening_run(
    instances: Path,
    model: str,
    base_url: str | ServerAddress | None,
    out: Path,
    settings: JudgeSettings,
    deadline: float,
    imported: ImportSettings | None = None,
) -> ScreeningRun:
    """Build the run from values that can be sent to a worker on another machine."""
    judge = find_model_ref(model, base_url=base_url)
    return await plan_screening(instances, judge, out, settings, deadline=deadline, imported=imported)


@dataclass(frozen=True)
class ScreeningRun(ModelRun[Instance]):
    """A run that screens every question of a file."""

    scan: Callable[[], Iterable[ReadRecord[Instance]]]
    """Returns the questions, with the records that cannot be read."""
    judge: ModelRef
    settings: JudgeSettings

    @property
    def model_refs(self) -> tuple[ModelRef]:
        """The judge."""
        return (self.judge,)

    @property
    def jobs(self) -> list[RecordJob]:
        """The screening as the only job."""
        return [RecordJob(SCREENING_JOB, partial(screen_question, settings=self.settings), QuestionScreening)]

    def open_records(self) -> SortedSpool:
        """Open the questions in the order of their ids."""
        return SortedSpool(self.scan())


def forecast_screening(
    instances: Path,
    model: ModelRef,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    *,
    imported: ImportSettings | None = None,
) -> UsageForecast:
    """Return calls, tokens and cost of a screening, supposing that the first attempt of each call succeeds."""
    settings, calls = settings or JudgeSettings(), calls or CallSettings()
    records = scan_instances(instances, settings=imported)
    prompts = (build_screening_prompt(record.value) for record in records if record.value is not None)
    requests = (
        build_structured_request(prompt, settings.decoding)
        for prompt in prompts
        if not isinstance(prompt, RecordRejection)
    )
    # Equal requests are sent once; the ledger answers the others.
    distinct = drop_repeated_requests(requests, model.name)
    return forecast_usage(distinct, find_forecast_price(model, calls), find_writing_habits(model.name))
