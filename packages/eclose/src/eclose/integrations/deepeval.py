"""A metric of DeepEval: whether every step of an answer holds and the whole establishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepeval.metrics import BaseMetric

from eclose.calls.sync import run_coroutine
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.errors import UserError
from eclose.integrations.judged_answers import build_instance, judge_answer
from eclose.integrations.scores import ScoreName, score_case

if TYPE_CHECKING:
    from deepeval.test_case import LLMTestCase

    from eclose.calls.client import CallSettings
    from eclose.judging.settings import JudgeSettings
    from eclose.readers.judged_run import JudgedCase
    from eclose.values.instance import Instance


class ReliabilityMetric(BaseMetric):
    """A metric that is 1 for a reliable response and 0 for an unreliable one.

    Where the judge gave no label, measuring raises, which DeepEval records as an error of the metric: an unjudged
    response gets no score.
    """

    def __init__(self, judge: str, settings: JudgeSettings | None = None, calls: CallSettings | None = None) -> None:
        self.judge = judge
        self.threshold = 1.0
        self.evaluation_model = judge
        # DeepEval copies a metric for every test case, from the attributes that are named as the parameters here.
        self.settings = settings
        self.calls = calls

    @property
    def __name__(self) -> str:
        return "Reliability (eclose)"

    def measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
        """Return the score of a test case."""
        instance, answer = _read_case(test_case)
        return self._record(run_coroutine(judge_answer(instance, answer, self.judge, self.settings, self.calls)))

    async def a_measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
        """Return the score of a test case."""
        instance, answer = _read_case(test_case)
        return self._record(await judge_answer(instance, answer, self.judge, self.settings, self.calls))

    def is_successful(self) -> bool:
        """Return whether the last test case was judged reliable."""
        return bool(self.success)

    def _record(self, case: JudgedCase) -> float:
        self.score, self.success, self.reason = None, False, describe_response_failure(case)
        scores = score_case(case)
        self.score_breakdown = {str(score.name): score.label for score in scores}
        whole = next(score for score in scores if score.name is ScoreName.RELIABILITY)
        if whole.number is None:
            raise UserError(f"unjudged: {whole.unjudged}")
        self.score, self.success = float(whole.number), bool(whole.value)
        return self.score


def _read_case(test_case: LLMTestCase) -> tuple[Instance, str]:
    if not test_case.actual_output:
        raise UserError("actual_output: is empty. Give the reasoning and the answer of the model.")
    passages = test_case.retrieval_context or test_case.context
    if not passages:
        raise UserError("retrieval_context: is empty. Give the passages that the model saw.")
    return build_instance(test_case.input, list(passages), test_case.expected_output), test_case.actual_output
