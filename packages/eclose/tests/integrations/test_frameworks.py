"""Guests in other evaluation frameworks, with the real packages: equal labels, and an error where none was given."""

import asyncio
import importlib.util
import inspect
import json
import sys
import types

import pytest

import eclose
from eclose.prompts.judge_questions import JOINT_JUDGE_QUESTIONS
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FREE = eclose.CallSettings(unpriced=True)


QUESTION = "Where was the builder of the bridge born?"
PASSAGES = ["Ada Rowe built the bridge.", "Ada Rowe was born in Lund."]
STEPS = "1. Ada Rowe built the bridge.\n2. Ada Rowe was born in Lund.\nFinal answer: "
ANSWERS = {"Lund": True, "Malmo": False}
"""Submitted answers, and whether the steps establish them."""


def script(request):
    """Reply to each question of the judge by the words of its material."""
    material = json.loads(request.messages[-1]["content"])
    steps, answer = material.get("steps", ()), material.get("answer")
    entry = {"reason": "r", "verdict": "sound", "support": None}
    return ScriptedReply(
        {
            "judge_sufficiency": {"reason": "r", "missing": None, "sufficient": True, "answer": "Lund"},
            "judge_soundness": {"steps": {str(step["id"]): entry for step in steps}},
            "judge_alignment": {"reason": "r", "pursued": "q", "aligned": True},
            "judge_closure": {
                "reason": "r",
                "established": "Lund",
                "closed": answer is not None and any(answer in step["text"] for step in steps),
            },
            "judge_completeness": {"reason": "r", "missing": None, "complete": True},
            "judge_correctness": {"reason": "r", "correct": answer == material.get("reference")},
        }[request.schema_name]
    )


@pytest.fixture(scope="module")
def server():
    handlers = HandlerRegistry()
    for question in JOINT_JUDGE_QUESTIONS:
        handlers.register(str(question), script)
    with ModelServerThread(handlers) as thread:
        yield thread.base_url


def test_deepeval_metric(server):
    deepeval = pytest.importorskip("deepeval.test_case", reason="deepeval is not installed")
    from eclose.integrations.deepeval import ReliabilityMetric

    metric = ReliabilityMetric(server, calls=FREE)
    for answer, reliable in ANSWERS.items():
        test_case = deepeval.LLMTestCase(
            input=QUESTION,
            actual_output=STEPS + answer,
            expected_output="Lund",
            retrieval_context=PASSAGES,
        )
        score = metric.measure(test_case)
        assert score == float(reliable)
        assert metric.is_successful() is reliable
        assert asyncio.run(metric.a_measure(test_case)) == score
        assert metric.reason
    unanswered = deepeval.LLMTestCase(input="Who?", actual_output="Unreadable.", retrieval_context=["Nothing."])
    with pytest.raises(eclose.UserError, match="unjudged"):
        metric.measure(unanswered)
    assert metric.score is None
    with pytest.raises(eclose.UserError, match="retrieval_context"):
        metric.measure(deepeval.LLMTestCase(input="Who?", actual_output="Ada."))


def test_a_copied_deepeval_metric_keeps_its_settings(server, monkeypatch):
    """DeepEval's ``evaluate`` copies a metric for every test case, as its ``copy_metrics`` does in 4.3."""
    if importlib.util.find_spec("deepeval") is None:
        stand_in = types.ModuleType("deepeval.metrics")
        stand_in.BaseMetric = type("BaseMetric", (), {})
        monkeypatch.setitem(sys.modules, "deepeval", types.ModuleType("deepeval"))
        monkeypatch.setitem(sys.modules, "deepeval.metrics", stand_in)
        monkeypatch.delitem(sys.modules, "eclose.integrations.deepeval", raising=False)
    from eclose.integrations.deepeval import ReliabilityMetric

    metric = ReliabilityMetric(server, settings=eclose.JudgeSettings(attempts=3), calls=FREE)
    names = inspect.signature(ReliabilityMetric.__init__).parameters
    copy = ReliabilityMetric(**{name: value for name, value in vars(metric).items() if name in names})
    assert (copy.judge, copy.settings, copy.calls) == (server, eclose.JudgeSettings(attempts=3), FREE)
    test_case = types.SimpleNamespace(
        input=QUESTION, actual_output=STEPS + "Lund", expected_output="Lund", retrieval_context=PASSAGES, context=None
    )
    assert copy.measure(test_case) == 1
    monkeypatch.delitem(sys.modules, "eclose.integrations.deepeval")


def test_mlflow_scorer(server):
    pytest.importorskip("mlflow.genai", reason="mlflow is not installed")
    from eclose.integrations.mlflow import ReliabilityScorer

    scorer = ReliabilityScorer(judge=server, calls=FREE)
    for answer, reliable in ANSWERS.items():
        feedback = scorer(
            inputs={"question": QUESTION, "contexts": PASSAGES},
            outputs=STEPS + answer,
            expectations={"expected_response": "Lund"},
        )
        values = {item.name: item for item in feedback}
        assert values["eclose.reliability"].value is reliable
        assert values["eclose.accuracy"].value is reliable
        assert len(values) == 7
    feedback = scorer(inputs={"question": "Who?", "contexts": ["Nothing."]}, outputs="Unreadable.")
    accuracy = next(item for item in feedback if item.name == "eclose.accuracy")
    assert accuracy.value is None
    assert accuracy.error.error_code == "UNJUDGED"
    with pytest.raises(eclose.UserError, match="passages"):
        scorer(inputs={"question": "Who?"}, outputs="Ada.")
