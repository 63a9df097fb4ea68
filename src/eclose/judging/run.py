"""Judge every response of a file: where questions and responses come from, and where judgments go.

A run's folder holds ``instances.jsonl``, ``responses.jsonl`` and, after this, ``judgments.jsonl``. Files of other tools
that have question, passages and response side by side are taken apart into the first two.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eclose.calls.cache import compute_call_key
from eclose.calls.client import CallSettings
from eclose.calls.forecast import UsageForecast, find_habits, forecast_usage
from eclose.calls.run import ModelRun, RunObserver, RunResult, find_model_price, observe_nothing, run_models
from eclose.cases import QUESTION_REMEDY
from eclose.core.instance import Instance
from eclose.core.judgment import Judgment
from eclose.core.model_family import same_family
from eclose.core.response import Response
from eclose.errors import RecordError, SettingError
from eclose.judging.judge_response import judge_response, requests
from eclose.judging.settings import JudgeSettings
from eclose.models.resolve import LocalModelRef, ModelRef, resolve_model
from eclose.store.records.indexed import index_file
from eclose.store.records.jsonl import ID_REUSED, ReadRecord, scan_records
from eclose.store.records.seen_ids import SeenIds
from eclose.store.runs.folder import JUDGMENTS
from eclose.store.runs.runner import Job
from eclose.store.runs.step import RunStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eclose.judging.inputs import Sources
    from eclose.models.interface import ChatModel, Request
    from eclose.store.records.counts import Counts

JOB = "judge"
HOMELESS = "no such question"


@dataclass(frozen=True)
class Pair:
    """A response and its question."""

    id: str
    instance: Instance
    response: Response


class Pairs:
    """Responses with their questions, read from disk as they are needed.

    Raises where one id stands for two questions: responses name their question by its id alone.
    """

    def __init__(self, sources: Sources) -> None:
        self._questions, questions, rejects = index_file(sources.instances, Instance)
        if reused := next((record.error for record in rejects if record.error_kind == ID_REUSED), None):
            raise RecordError(f"{reused.problem}. {QUESTION_REMEDY}", path=reused.path, record=reused.record)
        self._responses, _, self._left_out = index_file(sources.responses, Response)
        self._indices = {instance_id: index for index, instance_id in enumerate(self._questions.ids)}
        self._path = sources.responses
        self.counts = {**sources.counts, f"questions of {sources.instances.name}": questions.counts()}
        """The records of the questions' file, and of the file that both were taken from."""

    def __len__(self) -> int:
        """How many responses there are, with those that cannot be judged."""
        return len(self._responses) + len(self._left_out)

    def __iter__(self) -> Iterator[ReadRecord[Pair]]:
        """What could not be read, then every response."""
        for record in self._left_out:
            yield ReadRecord(record.where, rejected=record.rejected, error=record.error, error_kind=record.error_kind)
        for index in range(len(self._responses)):
            yield self._pair(self._responses[index])

    def _pair(self, response: Response) -> ReadRecord[Pair]:
        index = self._indices.get(response.instance_id)
        if index is None:
            problem = f"answers {response.instance_id!r}, which is not among the questions. Give their file."
            error = RecordError(problem, path=self._path, record=repr(response.id))
            return ReadRecord(repr(response.id), error=error, error_kind=HOMELESS)
        return ReadRecord(repr(response.id), value=Pair(response.id, self._questions[index], response))


async def judge_responses(
    sources: Sources,
    model: ModelRef | str,
    out: Path | str,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    *,
    ledger: Path | str | None = None,
    retry: bool = False,
    replay: bool = False,
    force: bool = False,
    watch: RunObserver | None = None,
) -> RunResult:
    """Write ``judgments.jsonl`` into a folder; see ``chat.inquiry`` for what the flags mean."""
    settings, calls = settings or JudgeSettings(), calls or CallSettings()
    named = await resolve_model(model, calls.deadline)
    if settings.effort is not None and isinstance(named, LocalModelRef):
        raise SettingError("effort: a model in this process is asked without. Use a server for it.")
    inquiry = _inquiry(sources, named, Path(out), settings)
    return await run_models(
        inquiry, [named], calls, ledger=ledger, retry=retry, replay=replay, force=force, watch=watch or observe_nothing
    )


def _inquiry(sources: Sources, named: ModelRef, out: Path, settings: JudgeSettings) -> ModelRun[Pair]:
    identity = {**named.identity, **settings.identity}
    stage = RunStep("judge", identity, (sources.instances, sources.responses), out / JUDGMENTS)
    counts: dict[str, Counts] = {}

    def jobs(model: ChatModel) -> list[Job[Pair, Judgment]]:
        async def work(pair: Pair) -> Judgment:
            return await judge_response(pair.instance, pair.response, model, settings)

        return [Job(JOB, work, Judgment)]

    @contextmanager
    def records() -> Iterator[Pairs]:
        pairs = Pairs(sources)
        counts.update(pairs.counts)
        yield pairs

    return ModelRun(stage, records, lambda pair: pair.id, jobs, sources=counts)


def kin(sources: Sources, judge_name: str) -> list[str]:
    """The models of the judge's own family among those whose responses it is to judge."""
    responses = (record.value for record in scan_records(sources.responses, Response))
    models = {response.source.model for response in responses if response is not None and response.source is not None}
    return sorted(model for model in models if same_family(judge_name, model))


def forecast(sources: Sources, model: ModelRef, settings: JudgeSettings, calls: CallSettings) -> UsageForecast:
    """Calls, tokens and cost, before anything is sent: every question to the judge once, each different one once."""
    messages = (
        request
        for record in Pairs(sources)
        if record.value is not None
        for request in requests(record.value.instance, record.value.response, settings)
    )
    return forecast_usage(_different(messages, model.name), find_model_price(model, calls), find_habits(model.name))


def _different(requests: Iterable[Request], name: str) -> Iterator[Request]:
    """What several responses share, such as the question about their evidence, is asked once."""
    seen = SeenIds()
    for number, request in enumerate(requests):
        if seen.add(compute_call_key(name, request), b"", number) is None:
            yield request
