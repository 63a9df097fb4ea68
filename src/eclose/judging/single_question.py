"""Runs that ask a judge one question about every record: their identity, their job and their forecast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from eclose.calls.forecast import UsageForecast, drop_repeated_requests, find_writing_habits, forecast_usage
from eclose.calls.run import ModelJob, ModelRun, find_model_price
from eclose.calls.structured import build_structured_request
from eclose.judging.settings import JudgeSettings
from eclose.models.resolve import ModelRef
from eclose.protocol.judging import JudgeQuestion, judge_guideline_hash
from eclose.store.records.jsonl import ReadRecord
from eclose.store.records.sorted_spool import HasId, SortedSpool
from eclose.store.runs.runner import RecordRejection

if TYPE_CHECKING:
    from eclose.calls.client import CallSettings
    from eclose.models.interface import ChatModel
    from eclose.protocol.structured import PromptWithSchema

T = TypeVar("T", bound=HasId)


@dataclass(frozen=True)
class SingleQuestionRun(ModelRun[T]):
    """A run that asks a judge one question about every record."""

    scan: Callable[[], Iterable[ReadRecord[T]]]
    """Returns the records, with those that cannot be read."""
    judge: ModelRef
    settings: JudgeSettings

    job: ClassVar[str]
    """Name of the job in the ledger."""
    record_type: ClassVar[type]
    result_type: ClassVar[type]

    async def ask(self, record: T, judge: ChatModel) -> Any:
        """Return the result of a record, or its rejection."""
        raise NotImplementedError

    @property
    def model_refs(self) -> tuple[ModelRef]:
        """The judge."""
        return (self.judge,)

    @property
    def jobs(self) -> list[ModelJob]:
        """The question as the only job."""
        return [ModelJob(self.job, self.ask, self.result_type)]

    def open_records(self) -> SortedSpool[T]:
        """Open the records in the order of their ids."""
        return SortedSpool(self.record_type, self.scan())


def identify_single_question(judge: ModelRef, settings: JudgeSettings, question: JudgeQuestion) -> dict[str, Any]:
    """Return all that decides the replies to a question: a run with other values is other work."""
    decoding = {"attempts": settings.attempts, **settings.decoding.plain}
    return {**judge.identity, **decoding, "guideline": judge_guideline_hash(question)}


def forecast_single_question(
    records: Iterable[ReadRecord[T]],
    build_prompt: Callable[[T], PromptWithSchema | RecordRejection],
    model: ModelRef,
    settings: JudgeSettings,
    calls: CallSettings,
) -> UsageForecast:
    """Return calls, tokens and cost, supposing that the first attempt of each call succeeds."""
    prompts = (build_prompt(record.value) for record in records if record.value is not None)
    requests = (
        build_structured_request(prompt, settings.decoding)
        for prompt in prompts
        if not isinstance(prompt, RecordRejection)
    )
    # Equal requests are sent once; the ledger answers the others.
    distinct = drop_repeated_requests(requests, model.name)
    return forecast_usage(distinct, find_model_price(model, calls), find_writing_habits(model.name))
