"""What is wrong with a judged response: in a sentence, and field by field for tables and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eclose.diagnosis.label_table import CONTEXT_COLUMNS, OWN_PREFIX
from eclose.files.tables import name_own_columns
from eclose.readers.readings import find_rule
from eclose.values.judgment import Criterion
from eclose.values.verdict import AbstentionOutcome, FailureClass, FailureKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eclose.readers.judged_run import JudgedCase
    from eclose.values.judgment import Judgment
    from eclose.values.response import Response
    from eclose.values.verdict import Verdict

_KINDS = {
    FailureClass.PATH_DEVIATION: FailureKind.PATH,
    FailureClass.INCOMPLETE_REASONING: FailureKind.INCOMPLETE,
    FailureClass.ANSWER_DECOUPLING: FailureKind.DECOUPLING,
    FailureClass.CLOSURE_FAILURE: FailureKind.CLOSURE,
    FailureClass.UNDETERMINED: FailureKind.CLOSURE,
}


def find_failure_kind(case: JudgedCase) -> FailureKind | None:
    """Return what to mend of a response; None unless it is known to be unreliable."""
    if case.verdict.reliable is not False:
        return None
    # The order of mending: without the evidence nothing that follows can be right.
    if case.judgment.evidence_sufficient is False:
        return FailureKind.RETRIEVAL
    if case.abstains:
        return FailureKind.ABSTAINED
    failure = case.verdict.failure_class
    # Without an unsound step, a response is unreliable because it fails as a whole.
    return FailureKind.UNSOUND if case.verdict.locally_sound is False or failure is None else _KINDS[failure]


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


_ABSTENTIONS = {
    AbstentionOutcome.RIGHT: "The answer is an abstention, and the passages do not settle the question.",
    AbstentionOutcome.WRONG: "The answer is an abstention, although the passages settle the question.",
    AbstentionOutcome.UNKNOWN: "The answer is an abstention; whether the passages settle the question was not judged.",
}


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
    if (abstention := case.abstention) is not None:
        sentences = sentences if verdict.locally_sound is False else []
        sentences.append(_ABSTENTIONS[abstention])
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
    texts, abstention = case.response.trace.texts, case.abstention
    return {
        "reliable": verdict.reliable,
        "in_gap": verdict.in_gap,
        "failure_class": None if verdict.failure_class is None else str(verdict.failure_class),
        "failure": describe_response_failure(case) if verdict.reliable is False or abstention is not None else None,
        "broken_link": None if link is None else link.name.lower(),
        "judge_sentence": _quote_judge(case),
        "first_unsound_step": step,
        "first_unsound_text": None if step is None or step > len(texts) else texts[step - 1],
        "pursued": judgment.pursued,
        "established": judgment.established,
        "missing_evidence": judgment.missing_evidence,
        "abstention": None if abstention is None else str(abstention),
        "cost": None,
    }


def describe_response(case: JudgedCase) -> dict[str, Any]:
    """Return the row of a response in tables and lists, without the user's own columns."""
    instance, response, judgment, verdict = case.instance, case.response, case.judgment, case.verdict
    failure = derive_failure_fields(case)
    step = failure["first_unsound_step"]
    first = None if step is None else judgment.steps[step - 1]
    return {
        "response_id": response.id,
        "instance_id": instance.id,
        "benchmark": instance.benchmark,
        "model": None if response.source is None else response.source.model,
        "question": instance.question,
        "answer": response.answer,
        "reference_answer": instance.reference_answer,
        "judge": judgment.judge,
        "locally_sound": verdict.locally_sound,
        "aligned": verdict.aligned,
        "closed": verdict.closed,
        "complete": verdict.complete,
        "correct": verdict.correct,
        "globally_sufficient": verdict.globally_sufficient,
        "reliable": verdict.reliable,
        "in_gap": verdict.in_gap,
        "evidence_sufficient": judgment.evidence_sufficient,
        "trace_group": None if verdict.trace_group is None else str(verdict.trace_group),
        "kind": None if (kind := find_failure_kind(case)) is None else str(kind),
        **failure,
        "step_failure": None if first is None or first.failure is None else str(first.failure),
        "quote": None if first is None or first.support is None else first.support.quote,
        "reading": name_reading(response),
        "unjudged": ", ".join(f"{label}: {reason}" for label, reason in judgment.missing_reasons.items()) or None,
    }


COLUMN_TYPES: dict[str, type] = {
    **dict.fromkeys(("locally_sound", "aligned", "closed", "complete", "correct", "globally_sufficient"), bool),
    **dict.fromkeys(("reliable", "in_gap", "evidence_sufficient"), bool),
    "first_unsound_step": int,
    **dict.fromkeys(("cost", *CONTEXT_COLUMNS), float),
}
"""Type of each column of ``describe_response`` that holds no text."""


def describe_responses(cases: Iterable[JudgedCase]) -> list[dict[str, Any]]:
    """Return the rows of responses, with what judges gave on request and the user's own columns, the same in all."""
    cases = list(cases)
    additions = [_describe_requested(case.judgment) for case in cases]
    requested = dict.fromkeys(name for row in additions for name in row)
    rows = [describe_response(case) | requested | row for case, row in zip(cases, additions, strict=True)]
    names = name_own_columns((case.response.columns for case in cases), rows[0] if rows else ())
    return [
        row | {name: case.response.columns.get(column) for column, name in names.items()}
        for row, case in zip(rows, cases, strict=True)
    ]


def _describe_requested(judgment: Judgment) -> dict[str, Any]:
    row: dict[str, Any] = {f"{OWN_PREFIX}{name}": label.label for name, label in judgment.own.items()}
    if (passages := judgment.passages) is not None:
        # One text a response, as a table of any kind can hold it.
        row["passages"] = ", ".join(label.use for label in passages.labels) or None
        row |= dict(zip(CONTEXT_COLUMNS, (passages.precision, passages.recall), strict=True))
    return row


def name_reading(response: Response) -> str:
    """Return how a response was read, as ``trace/prose/conclusion word``: status, origin of the trace, and rule."""
    return "/".join(part or "" for part in find_rule(response.reading, response.trace, response.answer))


def count_false_labels(verdict: Verdict) -> int:
    """Count the five labels that are false."""
    labels = (verdict.locally_sound, verdict.aligned, verdict.closed, verdict.complete, verdict.correct)
    return sum(label is False for label in labels)


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
