"""Import of an Inspect log into a run's folder: questions, responses and judgments, with every sample counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.calls.inspect_model import require_inspect
from eclose.errors import RecordError, UserError
from eclose.files.jsonl import DUPLICATE, ID_REUSED, WRONG_RECORD, ReadRecord, check_core_rules, encode_json_line
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.files.step import PipelineStep, PipelineStepResult, write_step_files
from eclose.integrations.inspect.samples import (
    JUDGMENT,
    explain_missing_response,
    get_verdict_labels,
    instance_from_sample,
    parse_score_labels,
    read_metadata_record,
    response_from_output,
)
from eclose.values.judgment import Judgment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from inspect_ai.log import EvalLog, EvalSample

    from eclose.values.instance import Instance
    from eclose.values.response import Response

FAILED, INVALIDATED, MISSING, UNSCORED = "sample failed", "invalidated", "not in the log", "not scored"
# Large fields of a sample that are not needed.
_SKIPPED_FIELDS = frozenset({"events", "events_data", "store", "timelines"})


SampleRecords: TypeAlias = tuple[ReadRecord[Any], ReadRecord[Any], ReadRecord[Any]]
"""Instance, response and judgment of one sample, each with a value, a rejection or an error."""


def import_inspect_log(log: Path, out: Path, *, score: str = "lgg", force: bool = False) -> list[PipelineStepResult]:
    """Write ``instances.jsonl``, ``responses.jsonl`` and ``judgments.jsonl`` into a folder.

    ``score`` is the name of the scorer's results in the log.
    """
    require_inspect()
    names = (INSTANCES_FILE, RESPONSES_FILE, JUDGMENTS_FILE)
    steps = [
        # Rejected samples are lost responses, which a gate counts and a report lists by name.
        PipelineStep(
            "data from-inspect",
            {"part": name, "score": score},
            (log,),
            out / name,
            explains_rejected=name == RESPONSES_FILE,
        )
        for name in names
    ]
    manifests = [step.claim(force=force) for step in steps]
    # The three files come from one pass over the log, so all are written unless all exist.
    if all(manifest is not None for manifest in manifests):
        pairs = zip(steps, manifests, strict=True)
        return [PipelineStepResult(step, manifest.counts, again=True) for step, manifest in pairs if manifest]
    all_counts = write_step_files(steps, _read_log_samples(log, score=score))
    return [PipelineStepResult(step, counts, again=False) for step, counts in zip(steps, all_counts, strict=True)]


def _read_log_samples(log: Path, *, score: str) -> Iterator[SampleRecords]:
    """Yield the records of every sample in a log, then of the samples that are missing from it."""
    from inspect_ai.log import read_eval_log  # noqa: PLC0415 - optional

    try:
        header = read_eval_log(log, header_only=True)
    except (ValueError, KeyError) as error:
        raise UserError(f"{log}: is no log of Inspect ({error}).") from error
    reader = _SampleReader(log, header.eval.model, score)
    present = set()
    for sample in _iterate_samples(log, header):
        present.add((str(sample.id), sample.epoch))
        yield reader.read(sample)
    yield from _report_missing(header, present)


def _iterate_samples(log: Path, header: EvalLog) -> Iterator[EvalSample]:
    """Yield the samples one at a time; a JSON log is read into memory."""
    from inspect_ai.log import read_eval_log, read_eval_log_samples  # noqa: PLC0415 - optional

    # Samples are read one by one by the ids in the header.
    if log.suffix == ".json" or header.eval.dataset.sample_ids is None:
        yield from read_eval_log(log, resolve_attachments="core").samples or ()
    else:
        yield from read_eval_log_samples(
            log, all_samples_required=False, resolve_attachments="core", exclude_fields=set(_SKIPPED_FIELDS)
        )


def _report_missing(header: EvalLog, present: set[tuple[str, int]]) -> Iterator[SampleRecords]:
    if header.status == "success":
        return
    for sample_id in header.eval.dataset.sample_ids or ():
        for epoch in range(1, (header.eval.config.epochs or 1) + 1):
            if (str(sample_id), epoch) not in present:
                where = _format_sample(sample_id, epoch)
                missing: ReadRecord[Any] = ReadRecord(where, rejected=MISSING)
                yield missing, missing, missing


def _format_sample(sample_id: str | int, epoch: int) -> str:
    return f"sample {sample_id!r} epoch {epoch}"


class _SampleReader:
    """Reader of the samples of one log, which recognises repeated questions."""

    def __init__(self, log: Path, model: str, score: str) -> None:
        self._log = log
        self._model = model
        self._score = score
        # By instance id: the first sample, and a hash of the instance instead of its full text.
        self._questions: dict[str, tuple[str, int]] = {}

    def read(self, sample: EvalSample) -> SampleRecords:
        where = _format_sample(sample.id, sample.epoch)
        parsed = self._record(where, lambda: _parse_instance(sample))
        if (instance := parsed.value) is None:
            return parsed, parsed, parsed
        question: ReadRecord[Any] = self._check_question(where, instance)
        if question.error is not None:
            return question, question, question
        answer = self._record(where, lambda: self._find_response(instance, sample))
        if (response := answer.value) is None:
            # A problem of the response counts for both.
            return question, answer, answer
        judgment = self._record(where, lambda: self._find_judgment(response, sample))
        return question, answer, judgment

    def _record(self, where: str, find: Callable[[], Any]) -> ReadRecord[Any]:
        """Return the outcome of ``find``: a value, the reason why it is missing, or an error."""
        try:
            outcome = find()
        except RecordError as error:
            return ReadRecord(where, error=error.at(self._log, where), error_kind=WRONG_RECORD)
        return ReadRecord(where, rejected=outcome) if isinstance(outcome, str) else ReadRecord(where, value=outcome)

    def _check_question(self, where: str, instance: Instance) -> ReadRecord[Instance]:
        """Return the question at its first occurrence, a rejection at further epochs, an error for a reused id."""
        content = hash(encode_json_line(instance))
        first = self._questions.setdefault(instance.id, (where, content))
        if first == (where, content):
            return ReadRecord(where, value=instance)
        if first[1] == content:
            return ReadRecord(where, rejected=DUPLICATE)
        problem = f"the id {instance.id!r} was used in {first[0]} for another question."
        return ReadRecord(where, error=RecordError(problem, path=self._log, record=where), error_kind=ID_REUSED)

    def _find_response(self, instance: Instance, sample: EvalSample) -> Response | str:
        """Return the response, or the reason for which it is missing."""
        if sample.invalidation is not None:
            return INVALIDATED
        reason = explain_missing_response(sample.output)
        if reason is not None:
            # A sample with a response can have an error too: that of its scoring.
            return FAILED if sample.error is not None else reason
        return response_from_output(instance, sample.output, self._model, sample.epoch)

    def _find_judgment(self, response: Response, sample: EvalSample) -> Judgment | str:
        """Return the judgment, or the reason for which it is missing."""
        score = (sample.scores or {}).get(self._score)
        judgment = None if score is None else read_metadata_record(Judgment, score.metadata, JUDGMENT)
        if score is None or judgment is None:
            return FAILED if sample.error is not None else UNSCORED
        if judgment.response_id != response.id:
            raise RecordError(f"the judgment is of {judgment.response_id!r}, not of {response.id!r}.")
        if get_verdict_labels(parse_score_labels(score.value)) != get_verdict_labels(judgment.verdict):
            # Inspect lets people edit scores; the judgment in the metadata would then contradict the labels.
            raise RecordError("the score was edited and contradicts its judgment. Score the sample again.")
        return judgment


def _parse_instance(sample: EvalSample) -> Instance:
    target = [sample.target] if isinstance(sample.target, str) else sample.target
    # A scorer sees the last message of the user.
    messages = [] if isinstance(sample.input, str) else sample.input
    asked = next((message.text for message in reversed(messages) if message.role == "user"), "")
    question = sample.input if isinstance(sample.input, str) else asked
    instance = instance_from_sample(sample.id, question, target, sample.metadata)
    check_core_rules(instance)
    return instance
