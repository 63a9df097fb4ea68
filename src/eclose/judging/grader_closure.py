"""Closure of graders: whether the explanation of a score establishes the score that was recorded.

The explanation of a grader is a trace, and its score is an answer. They are judged by the question about closure that
responses are judged by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.calls.structured import ask_structured
from eclose.core.judgment import NO_TRACE_REASON, Criterion, Judgment
from eclose.core.parse_trace import parse_response
from eclose.core.three_valued import Label
from eclose.errors import RecordError
from eclose.judged_cases import read_judged_cases
from eclose.judging.single_question import SingleQuestionRun, identify_single_question
from eclose.protocol.disclosure import ClosureMaterial
from eclose.protocol.judging import JudgeQuestion, build_judge_prompt
from eclose.protocol.material_json import disclose_steps
from eclose.store.records.jsonl import ReadRecord
from eclose.store.runs.runner import RecordRejection
from eclose.store.runs.step import PipelineStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from eclose.judged_cases import JudgedCase
    from eclose.judging.settings import JudgeSettings
    from eclose.models.interface import ChatModel
    from eclose.models.resolve import ModelRef
    from eclose.protocol.structured import PromptWithSchema

GRADER_JOB = "judge-log"
GRADER_FILE = "grader-closure.jsonl"
"""Name of the result in the folder of a run."""
NO_EXPLANATION, UNSCORED = "no explanation", "no score"


@dataclass(frozen=True, slots=True)
class GraderStatement:
    """A score that a grader recorded, with its explanation."""

    id: str
    """Sample and name of the score."""
    grader: str
    """Name of the scorer or the judging model."""
    question: str
    """Question that the score answers."""
    score: str
    """The recorded score in words, such as ``correct`` or ``0.5``."""
    explanation: str


@dataclass(frozen=True, slots=True)
class GraderClosure:
    """Whether the explanation of a grader establishes the score that it recorded."""

    id: str
    grader: str
    score: str
    judge: str
    closed: Label = None
    """None where the judge gave no usable reply."""
    established: str | None = None
    """Score that the explanation establishes, in the judge's words."""
    reason: str | None = None
    """Reason in the judge's words, or why the label is missing."""


_LABEL_QUESTIONS = {
    Criterion.ALIGNMENT: "Does the reasoning pursue the question “{question}”?",
    Criterion.CLOSURE: "Does the reasoning establish the submitted answer “{answer}”?",
    Criterion.COMPLETENESS: "Does the reasoning establish the reference answer “{reference}”?",
    Criterion.CORRECTNESS: "Is the answer “{answer}” correct, given the reference “{reference}”?",
}
"""Question that each label with a reason answers; soundness has a reason for each step, and none for the trace."""


def scan_judgment_statements(run: Path, *, allow_stale: bool = False) -> Iterator[ReadRecord[GraderStatement]]:
    """Yield a record for each label of the judgments in a run's folder; labels without a reason are rejected."""
    for case in read_judged_cases(run, allow_stale=allow_stale).cases:
        for criterion in _LABEL_QUESTIONS:
            yield _read_label(case, criterion)


def _read_label(case: JudgedCase, criterion: Criterion) -> ReadRecord[GraderStatement]:
    judgment: Judgment = case.judgment
    where = f"{judgment.response_id} {criterion}"
    label, explanation = judgment.label(criterion), judgment.reasons.get(criterion)
    if label is None or not explanation:
        return ReadRecord(where, rejected=UNSCORED if label is None else NO_EXPLANATION)
    question = _LABEL_QUESTIONS[criterion].format(
        question=case.instance.question, answer=case.response.answer, reference=case.instance.reference_answer
    )
    statement = GraderStatement(where, judgment.judge, question, "yes" if label else "no", explanation)
    return ReadRecord(where, value=statement)


def build_grader_prompt(statement: GraderStatement) -> PromptWithSchema | RecordRejection:
    """Return the question about closure of an explanation and its score; a rejection where it has no step."""
    try:
        trace = parse_response(statement.id, statement.explanation, statement.score).trace
    except RecordError as error:
        return RecordRejection(str(error))
    if not trace.steps:
        return RecordRejection(NO_TRACE_REASON)
    return build_judge_prompt(ClosureMaterial(statement.question, disclose_steps(trace), statement.score))


async def judge_grader_statement(
    statement: GraderStatement, model: ChatModel, settings: JudgeSettings
) -> GraderClosure | RecordRejection:
    """Return whether the explanation establishes the score; a rejection where it has no step."""
    prompt = build_grader_prompt(statement)
    if isinstance(prompt, RecordRejection):
        return prompt
    answer = await ask_structured(model, prompt, _parse_reply, decoding=settings.decoding, attempts=settings.attempts)
    if answer.reason is not None:
        return GraderClosure(statement.id, statement.grader, statement.score, model.name, reason=answer.reason)
    return GraderClosure(statement.id, statement.grader, statement.score, model.name, *answer.value)


def _parse_reply(reply: Mapping[str, Any]) -> tuple[bool, str | None, str | None]:
    return reply["closed"], reply["established"] or None, reply["reason"] or None


@dataclass(frozen=True)
class GraderRun(SingleQuestionRun[GraderStatement]):
    """A run that judges every score of a log."""

    job, record_type, result_type = GRADER_JOB, GraderStatement, GraderClosure

    async def ask(self, record: GraderStatement, judge: ChatModel) -> GraderClosure | RecordRejection:
        """Return whether the explanation of a score establishes it."""
        return await judge_grader_statement(record, judge, self.settings)


def plan_grader_run(
    scan: Callable[[], Iterable[ReadRecord[GraderStatement]]],
    inputs: tuple[Path, ...],
    judge: ModelRef,
    out: Path,
    settings: JudgeSettings,
) -> GraderRun:
    """Return the run that judges the scores of a log."""
    identity = identify_single_question(judge, settings, JudgeQuestion.CLOSURE)
    return GraderRun(PipelineStep(GRADER_JOB, identity, inputs, out / GRADER_FILE), scan, judge, settings)
