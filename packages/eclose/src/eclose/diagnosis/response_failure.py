"""What is wrong with a judged response: in a sentence, and field by field for tables and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.values.judgment import Criterion
from eclose.values.verdict import FailureClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.readers.judged_run import JudgedCase
    from eclose.values.judgment import Judgment

BROKEN_LINKS: dict[FailureClass, Criterion | None] = {
    FailureClass.PATH_DEVIATION: Criterion.ALIGNMENT,
    FailureClass.INCOMPLETE_REASONING: Criterion.COMPLETENESS,
    FailureClass.ANSWER_DECOUPLING: Criterion.CLOSURE,
    FailureClass.CLOSURE_FAILURE: Criterion.CLOSURE,
    FailureClass.UNDETERMINED: None,
}
"""The first criterion that fails of a response that fails as a whole; unknown where alignment was not judged."""

_BROKEN = {
    FailureClass.PATH_DEVIATION: "The reasoning pursues something other than the question{pursued}.",
    FailureClass.INCOMPLETE_REASONING: (
        "The reasoning establishes neither the reference answer nor the submitted one{instead}."
    ),
    FailureClass.ANSWER_DECOUPLING: (
        "The reasoning establishes the reference answer{established}, and another answer was submitted."
    ),
    FailureClass.CLOSURE_FAILURE: "The reasoning does not establish the submitted answer{instead}.",
    FailureClass.UNDETERMINED: "The reasoning does not establish the submitted answer; what it pursues was not judged.",
}
"""Sentence for each failure class, with optional parts from the judgment."""


def describe_response_failure(case: JudgedCase) -> str:
    """Return a sentence or two on what is wrong with a response."""
    judgment, verdict = case.judgment, case.verdict
    sentences = []
    # Both sentences where both apply: a response may fail step by step and as a whole.
    if verdict.locally_sound is False:
        sentences.append(_unsound(judgment))
    if (failure := verdict.failure_class) is not None:
        sentences.append(
            _BROKEN[failure].format(
                pursued=f": {judgment.pursued.rstrip(' .')}" if judgment.pursued else "",
                established=f", “{judgment.established}”" if judgment.established else "",
                instead=f", but “{judgment.established}”" if judgment.established else "",
            )
        )
    if not sentences:
        sentences.append(
            "Every step holds, and so does the whole." if verdict.reliable else "Not everything was judged."
        )
    if case.abstains:
        sentences.append("The answer is an abstention, although the passages settle the question.")
    return " ".join(sentences)


def _unsound(judgment: Judgment) -> str:
    if not judgment.stepwise:
        return "A step does not hold."
    # Steps are numbered from 1, as reports print them.
    numbers = [number for number, step in enumerate(judgment.steps, start=1) if step.sound is False]
    return f"Step {numbers[0]} does not hold." if len(numbers) == 1 else f"Steps {_join_numbers(numbers)} do not hold."


def _join_numbers(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def derive_failure_fields(case: JudgedCase) -> dict[str, Any]:
    """Return what tables and lists say about a failure, by column; None where there is nothing to say."""
    judgment, verdict = case.judgment, case.verdict
    step = find_first_unsound_step(judgment)
    link = None if verdict.failure_class is None else BROKEN_LINKS[verdict.failure_class]
    texts = case.response.trace.texts
    return {
        "reliable": verdict.reliable,
        "in_gap": verdict.in_gap,
        "failure_class": None if verdict.failure_class is None else str(verdict.failure_class),
        "failure": describe_response_failure(case) if verdict.reliable is False or case.abstains else None,
        "broken_link": None if link is None else link.name.lower(),
        "judge_sentence": _quote_judge(case),
        "first_unsound_step": step,
        "first_unsound_text": None if step is None or step > len(texts) else texts[step - 1],
        "pursued": judgment.pursued,
        "established": judgment.established,
        "missing_evidence": judgment.missing_evidence,
        "abstains": case.abstains,
    }


def find_first_unsound_step(judgment: Judgment) -> int | None:
    """Return the number of the first unsound step, from 1; None where no step has a label of its own that says so."""
    unsound = (number for number, step in enumerate(judgment.steps, start=1) if step.sound is False)
    return next(unsound, None) if judgment.stepwise else None


def _quote_judge(case: JudgedCase) -> str | None:
    """Return the judge's words on the first thing that is wrong: an unsound step, else what fails as a whole."""
    judgment, verdict = case.judgment, case.verdict
    if (step := find_first_unsound_step(judgment)) is not None and (reason := judgment.steps[step - 1].reason):
        return reason
    if verdict.locally_sound is False and (reason := judgment.reasons.get(Criterion.LOCAL_SOUNDNESS)):
        return reason
    if verdict.failure_class is None:
        return None
    # Without alignment, closure is the label that decided; a judge may also explain one of K and C alone.
    link = BROKEN_LINKS[verdict.failure_class] or Criterion.CLOSURE
    return judgment.reasons.get(link) or judgment.reasons.get(Criterion.CLOSURE)
