"""Controls: features so simple that a detector must beat them to be worth its cost.

Words of the question and of the answer in the last step, the number of steps, and a word of conclusion. They are scored
like detectors, so that every evaluation reports them beside it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.values.answers import normalize_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eclose.values.instance import Instance
    from eclose.values.response import Response


class TextControl(StrEnum):
    """Features of a response that need no model; a low value is taken for failure."""

    WORD_OVERLAP = "word overlap"
    """The smaller of the two overlaps below."""
    QUESTION_WORDS = "question words"
    """Share of the question's words that the last step has."""
    ANSWER_WORDS = "answer words"
    """Share of the submitted answer's words that the last step has."""
    STEPS = "number of steps"
    """n / (n + 1) for n steps: a trace that stops early is short."""
    CONCLUSION = "conclusion word"
    """1 where the last step opens with a word such as "thus", else 0."""


CONCLUSION_WORDS = frozenset(
    {"thus", "hence", "therefore", "so", "consequently", "accordingly", "finally", "conclusion", "follows", "means"}
)
"""Words that mark a step as a conclusion."""
# Words of many questions that say nothing about what is asked.
_QUESTION_WORDS = frozenset(
    {"who", "whom", "whose", "what", "which", "when", "where", "why", "how", "many", "much"}
    | {"is", "are", "was", "were", "be", "been", "do", "does", "did", "has", "have", "had"}
    | {"of", "in", "on", "at", "by", "to", "for", "from", "with", "and", "or", "as", "that", "this", "it", "its", "s"}
)


def score_controls(instances: Mapping[str, Instance], responses: Iterable[Response]) -> Iterator[DetectorScore]:
    """Yield the score of every response by every control; a response without a known question has none."""
    for response in responses:
        if (instance := instances.get(response.instance_id)) is None:
            continue
        for control, value in measure_controls(instance.question, response).items():
            yield DetectorScore(
                response_id=response.id,
                detector=DetectorKind.CONTROL,
                model=control.value,
                score=None if isinstance(value, Unscored) else value,
                unscored=value if isinstance(value, Unscored) else None,
            )


def measure_controls(question: str, response: Response) -> dict[TextControl, float | Unscored]:
    """Return the value of every control, or the reason why it has none.

    >>> from eclose.values.response import Response, Trace
    >>> trace = Trace.of("Jewison directed Moonstruck.", "Thus Jewison, its director, was born in 1926.")
    >>> values = measure_controls("When was the director of Moonstruck born?", Response("r", "q", trace, "1926"))
    >>> values[TextControl.QUESTION_WORDS] == 2 / 3, values[TextControl.ANSWER_WORDS], values[TextControl.CONCLUSION]
    (True, 1.0, 1.0)
    """
    steps = response.trace.texts
    if not steps:
        return dict.fromkeys(TextControl, Unscored.NO_TRACE)
    last = normalize_answer(steps[-1])
    question_words = set(normalize_answer(question))
    # A question of such words alone keeps them.
    about_question = _share_words(question_words - _QUESTION_WORDS or question_words, last, Unscored.NO_STATEMENT)
    about_answer = _share_words(set(normalize_answer(response.answer or "")), last, Unscored.NO_ANSWER)
    overlaps = (about_question, about_answer)
    missing = next((value for value in overlaps if isinstance(value, Unscored)), None)
    return {
        TextControl.WORD_OVERLAP: missing or min(value for value in overlaps if not isinstance(value, Unscored)),
        TextControl.QUESTION_WORDS: about_question,
        TextControl.ANSWER_WORDS: about_answer,
        TextControl.STEPS: len(steps) / (len(steps) + 1),
        TextControl.CONCLUSION: float(any(word in CONCLUSION_WORDS for word in last[:2])),
    }


def _share_words(words: set[str], text: tuple[str, ...], undefined: Unscored) -> float | Unscored:
    """Return the share of words that a text has; ``undefined`` without words."""
    return len(words & set(text)) / len(words) if words else undefined
