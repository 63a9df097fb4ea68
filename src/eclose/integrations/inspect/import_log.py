"""A log of Inspect -> a run's folder: questions, responses and judgments, with every sample accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eclose.core.judgment import Judgment
from eclose.core.response import Response
from eclose.errors import RecordError, UserError
from eclose.integrations.inspect.cases import (
    JUDGMENT,
    RESPONSE,
    instance_of,
    kept,
    labels,
    response_of,
    unanswered,
    verdict_of,
)
from eclose.integrations.inspect.model import PROVIDER, require_inspect
from eclose.store.records.jsonl import DUPLICATE, ID_REUSED, WRONG_RECORD, ReadRecord, check_rules, encode
from eclose.store.runs.folder import INSTANCES, JUDGMENTS, RESPONSES
from eclose.store.runs.step import RunStep, write_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inspect_ai.log import EvalLog, EvalSample

    from eclose.core.instance import Instance
    from eclose.store.records.counts import Counts

SCORE = "lgg"
FAILED, INVALIDATED, MISSING, UNSCORED = "sample failed", "invalidated", "not in the log", "not scored"
_UNREAD = frozenset({"events", "events_data", "store", "timelines"})
"""What is large in a sample and not looked at."""


class Row(NamedTuple):
    """What became of one sample."""

    instance: ReadRecord[Instance]
    response: ReadRecord[Response]
    judgment: ReadRecord[Judgment]


class Written(NamedTuple):
    """One of the files, and where every sample went."""

    stage: RunStep
    counts: Counts
    again: bool
    """Whether it was there before, so that nothing was done."""


def import_log(log: Path, out: Path, *, score: str = SCORE, force: bool = False) -> list[Written]:
    """Write ``instances.jsonl``, ``responses.jsonl`` and ``judgments.jsonl`` into a folder.

    ``score`` is the name under which the log keeps our scorer's results.
    """
    require_inspect()
    names = (INSTANCES, RESPONSES, JUDGMENTS)
    stages = [RunStep("data from-inspect", {"part": name, "score": score}, (log,), out / name) for name in names]
    done = [stage.claim(force=force) for stage in stages]
    if all(manifest is not None for manifest in done):
        return [Written(stage, one.counts, again=True) for stage, one in zip(stages, done, strict=True) if one]
    counts = write_steps(stages, read_log(log, score=score))
    return [Written(stage, one, again=False) for stage, one in zip(stages, counts, strict=True)]


def read_log(log: Path, *, score: str = SCORE) -> Iterator[Row]:
    """Every sample of a log, and those that it should have and has not."""
    from inspect_ai.log import read_eval_log  # noqa: PLC0415 - optional

    try:
        header = read_eval_log(log, header_only=True)
    except (ValueError, KeyError) as error:
        raise UserError(f"{log}: this is no log of Inspect ({error}).") from error
    reader = _Reader(log, header.eval.model.removeprefix(f"{PROVIDER}/"), score)
    seen = set()
    for sample in _samples(log, header):
        seen.add((str(sample.id), sample.epoch))
        yield reader.row(sample)
    yield from _missing(header, seen)


def _samples(log: Path, header: EvalLog) -> Iterator[EvalSample]:
    """One at a time where the file allows it; a JSON log has to be read whole."""
    from inspect_ai.log import read_eval_log, read_eval_log_samples  # noqa: PLC0415 - optional

    if log.suffix == ".json" or header.eval.dataset.sample_ids is None:
        yield from read_eval_log(log, resolve_attachments="core").samples or ()
    else:
        yield from read_eval_log_samples(
            log, all_samples_required=False, resolve_attachments="core", exclude_fields=set(_UNREAD)
        )


def _missing(header: EvalLog, seen: set[tuple[str, int]]) -> Iterator[Row]:
    """Samples that an evaluation which did not come to its end never got to."""
    if header.status == "success":
        return
    for sample_id in header.eval.dataset.sample_ids or ():
        for epoch in range(1, (header.eval.config.epochs or 1) + 1):
            if (str(sample_id), epoch) not in seen:
                where = _where(sample_id, epoch)
                yield Row(*(ReadRecord(where, rejected=MISSING) for _ in Row._fields))


def _where(sample_id: str | int, epoch: int) -> str:
    return f"sample {sample_id!r} epoch {epoch}"


class _Reader:
    """Reads samples one after the other; remembers which questions there were."""

    def __init__(self, log: Path, model: str, score: str) -> None:
        self._log = log
        self._model = model
        self._score = score
        self._questions: dict[str, tuple[str, int]] = {}

    def row(self, sample: EvalSample) -> Row:
        where = _where(sample.id, sample.epoch)
        try:
            instance = _instance(sample)
        except RecordError as error:
            problem = error.at(self._log, where)
            return Row(*(ReadRecord(where, error=problem, error_kind=WRONG_RECORD) for _ in Row._fields))
        question = self._question(where, instance)
        if question.error is not None:
            spoilt = question.error
            return Row(question, *(ReadRecord(where, error=spoilt, error_kind=ID_REUSED) for _ in range(2)))
        return Row(question, *self._answered(where, instance, sample))

    def _question(self, where: str, instance: Instance) -> ReadRecord[Instance]:
        """Every epoch asks the same; two different questions under one id are an error."""
        content = hash(encode(instance))
        known = self._questions.setdefault(instance.id, (where, content))
        if known == (where, content):
            return ReadRecord(where, value=instance)
        if known[1] == content:
            return ReadRecord(where, rejected=DUPLICATE)
        problem = f"the id {instance.id!r} was used in {known[0]} for another question."
        return ReadRecord(where, error=RecordError(problem, path=self._log, record=where), error_kind=ID_REUSED)

    def _answered(
        self, where: str, instance: Instance, sample: EvalSample
    ) -> tuple[ReadRecord[Response], ReadRecord[Judgment]]:
        """The response and what was said of it; what is wrong with the one is wrong with the other."""
        try:
            response = self._said(instance, sample)
        except RecordError as error:
            spoilt = error.at(self._log, where)
            return (
                ReadRecord(where, error=spoilt, error_kind=WRONG_RECORD),
                ReadRecord(where, error=spoilt, error_kind=WRONG_RECORD),
            )
        if isinstance(response, str):
            return ReadRecord(where, rejected=response), ReadRecord(where, rejected=response)
        return ReadRecord(where, value=response), self._judgment(where, response, sample)

    def _judgment(self, where: str, response: Response, sample: EvalSample) -> ReadRecord[Judgment]:
        try:
            found = self._judged(response, sample)
        except RecordError as error:
            return ReadRecord(where, error=error.at(self._log, where), error_kind=WRONG_RECORD)
        return ReadRecord(where, rejected=found) if isinstance(found, str) else ReadRecord(where, value=found)

    def _said(self, instance: Instance, sample: EvalSample) -> Response | str:
        """The response; or why there is none."""
        if sample.invalidation is not None:
            return INVALIDATED
        if (exported := kept(Response, sample.metadata, RESPONSE)) is not None:
            return exported
        reason = unanswered(sample.output)
        if reason is not None:
            # A sample that failed before anything was said; one whose scoring failed has its response.
            return FAILED if sample.error is not None else reason
        return response_of(instance, sample.output, self._model, sample.epoch)

    def _judged(self, response: Response, sample: EvalSample) -> Judgment | str:
        """The judgment; or why there is none."""
        score = (sample.scores or {}).get(self._score)
        judgment = None if score is None else kept(Judgment, score.metadata, JUDGMENT)
        if score is None or judgment is None:
            return FAILED if sample.error is not None else UNSCORED
        if judgment.response_id != response.id:
            raise RecordError(f"the judgment is of {judgment.response_id!r}, not of {response.id!r}.")
        if labels(verdict_of(score.value)) != labels(judgment.verdict):
            raise RecordError("the score was changed by hand and is not what its judgment says.")
        return judgment


def _instance(sample: EvalSample) -> Instance:
    target = [sample.target] if isinstance(sample.target, str) else sample.target
    instance = instance_of(sample.id, _question_text(sample), target, sample.metadata)
    check_rules(instance)
    return instance


def _question_text(sample: EvalSample) -> str:
    """The input as the scorer saw it: the last thing the user said."""
    if isinstance(sample.input, str):
        return sample.input
    return next((message.text for message in reversed(sample.input) if message.role == "user"), "")
