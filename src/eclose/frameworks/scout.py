"""A scanner of Inspect Scout: whether the reasoning of an agent's transcript establishes its answer."""

from __future__ import annotations

from inspect_scout import Result, Scanner, Transcript, scanner

from eclose.core.parse_trace import parse_agent_log, parse_trace_and_answer
from eclose.diagnosis.diagnose import describe_response_failure
from eclose.errors import RecordError
from eclose.frameworks.judged_answers import build_instance, judge_answer
from eclose.integrations.export.scores import score_case

_READ_ROLES = ("assistant", "tool")


@scanner(messages="all", name="eclose_reliability")
def reliability(judge: str, unpriced: bool = False) -> Scanner[Transcript]:
    """Judge every transcript: the question is the first message of the user, tool results are the passages.

    Args:
        judge: Model that judges: ``provider/model``, a base URL, or ``inspect/PROVIDER/MODEL``.
        unpriced: Whether a model without a known price may be used.
    """
    from eclose.calls.client import CallSettings  # noqa: PLC0415 - scanners are built in worker processes

    async def scan(transcript: Transcript) -> Result:
        question = next((message.text for message in transcript.messages if message.role == "user"), "")
        log = [
            {"role": message.role, "content": message.text}
            for message in transcript.messages
            if message.role in _READ_ROLES and message.text.strip()
        ]
        if not question.strip() or not log:
            return Result(value=None, explanation="unjudged: the transcript has no question or no answer.")
        try:
            # The last message holds the answer, behind its own reasoning.
            final = parse_trace_and_answer(log[-1]["content"])
            steps = [{"role": "assistant", "content": text} for text in final.trace.texts]
            instance, response = parse_agent_log(build_instance(question, ()), [*log[:-1], *steps], final.answer)
        except RecordError as error:
            return Result(value=None, explanation=f"unjudged: {error}")
        case = await judge_answer(instance, response, judge, None, CallSettings(unpriced=unpriced))
        verdict, scores = case.verdict, score_case(case)
        return Result(
            value=verdict.reliable,
            answer=response.answer,
            explanation=describe_response_failure(case),
            label=None if verdict.trace_group is None else str(verdict.trace_group),
            metadata={str(score.name): score.label or f"unjudged: {score.unjudged}" for score in scores},
        )

    return scan
