"""A scorer of MLflow: the verdict on each answer as feedback on its trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlflow.entities import AssessmentError, AssessmentSource, Feedback, Trace
from mlflow.entities.span import SpanType
from mlflow.genai.scorers import Scorer

from eclose.calls.client import CallSettings
from eclose.calls.sync import run_coroutine
from eclose.errors import UserError
from eclose.integrations.judged_answers import build_instance, judge_answer
from eclose.integrations.scores import score_case
from eclose.judging.settings import JudgeSettings

_QUESTION_KEYS = ("question", "query", "input", "prompt")
_ANSWER_KEYS = ("response", "answer", "output", "text")
_PASSAGE_KEYS = ("contexts", "retrieval_context", "documents", "passages", "context")
_REFERENCE_KEYS = ("expected_response", "expected_output", "reference", "answer")
_TEXT_KEYS = ("page_content", "content", "text")


class ReliabilityScorer(Scorer):
    """A scorer whose feedback are the labels of a response, its reliability and its failure class.

    Passages come from the trace's retriever spans, or from ``inputs`` under ``contexts`` or ``documents``. A label that
    was not judged is a feedback with an error and without a value.
    """

    name: str = "eclose"
    judge: str
    """Model that judges: ``provider/model``, a base URL, or ``inspect/PROVIDER/MODEL``."""
    settings: JudgeSettings | None = None
    calls: CallSettings | None = None

    def __call__(
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        expectations: dict[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> list[Feedback]:
        """Return one feedback for each score."""
        # The documents of all retriever spans, in order, each once.
        spans = [] if trace is None else trace.search_spans(span_type=SpanType.RETRIEVER)
        retrieved = list(dict.fromkeys(text for span in spans for text in _read_texts(span.outputs)))
        passages = retrieved or _read_texts(_find(inputs, _PASSAGE_KEYS))
        question, answer = _find_text(inputs, _QUESTION_KEYS), _find_text(outputs, _ANSWER_KEYS)
        if not (question and answer and passages):
            raise UserError(
                "the scorer needs a question in inputs, the answer in outputs, and passages in a retriever span or in "
                "inputs['contexts']."
            )
        instance = build_instance(question, passages, _find_text(expectations or {}, _REFERENCE_KEYS))
        case = run_coroutine(judge_answer(instance, answer, self.judge, self.settings, self.calls))
        source = AssessmentSource(source_type="LLM_JUDGE", source_id=case.judgment.judge)
        return [
            Feedback(
                name=str(score.name),
                value=score.label if score.unjudged is None and score.value is None else score.value,
                error=None if score.unjudged is None else AssessmentError("UNJUDGED", score.unjudged),
                rationale=score.explanation or score.unjudged,
                source=source,
            )
            for score in score_case(case)
        ]


def _find(values: Any, keys: tuple[str, ...]) -> Any:
    """Return the first value under one of the keys; None where there is none."""
    if not isinstance(values, Mapping):
        return None
    return next((values[key] for key in keys if values.get(key) is not None), None)


def _find_text(values: Any, keys: tuple[str, ...]) -> str | None:
    text = values if isinstance(values, str) else _find(values, keys)
    return text if isinstance(text, str) else None


def _read_texts(documents: Any) -> list[str]:
    """Return the texts of documents: texts themselves, or objects with a text."""
    items = [documents] if isinstance(documents, str) else documents if isinstance(documents, list) else []
    texts = (item if isinstance(item, str) else _find_text(item, _TEXT_KEYS) for item in items)
    return [text for text in texts if text]
