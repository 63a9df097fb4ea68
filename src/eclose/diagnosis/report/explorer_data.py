"""The data of the explorer: an index of all responses, and their details in chunks that are unpacked when needed.

Each text that several responses share (question, passages) is stored once. A block is JSON, deflated, in base 64: it
can say nothing to a browser but letters and digits.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from eclose.core.judgment import Criterion
from eclose.diagnosis.diagnose import broken_link
from eclose.diagnosis.report.filters import (
    OUTCOMES,
    ResponseFacts,
    derive_facts,
    differing_votes,
    facet_columns,
    group_value,
)
from eclose.diagnosis.report.format import CODE_WORDS, CRITERION_WORDS
from eclose.protocol import disclosure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.core.instance import Instance, Passage
    from eclose.core.judgment import StepJudgment
    from eclose.core.three_valued import Label
    from eclose.diagnosis.diagnose import Case

RESPONSES_A_CHUNK = 128
EVIDENCE_A_CHUNK = 16

_SHOWN: Mapping[str, type[Any]] = {
    "evidence": disclosure.Sufficiency,
    Criterion.LOCAL_SOUNDNESS.value: disclosure.Soundness,
    Criterion.ALIGNMENT.value: disclosure.Alignment,
    Criterion.CLOSURE.value: disclosure.Closure,
    Criterion.COMPLETENESS.value: disclosure.Completeness,
    Criterion.CORRECTNESS.value: disclosure.Correctness,
}
_FIELD_WORDS = {
    "question": "question",
    "evidence": "passages",
    "steps": "reasoning",
    "answer": "submitted answer",
    "reference": "reference answer",
}


@dataclass(frozen=True, slots=True)
class ExplorerPayload:
    """Blocks of letters and digits for a page."""

    index: str
    details: tuple[str, ...]
    evidence: tuple[str, ...]


def make_payload(cases: Sequence[Case], before: Mapping[str, str] | None = None) -> ExplorerPayload:
    """Everything the explorer shows; ``before`` tells by id what a response's partner in another run is."""
    shared = _Shared()
    places = [shared.question(case.instance) for case in cases]
    return ExplorerPayload(
        pack(_index([derive_facts(case, (before or {}).get(case.response.id, "")) for case in cases], places, shared)),
        tuple(pack([_detail(case) for case in chunk]) for chunk in _chunks(cases, RESPONSES_A_CHUNK)),
        tuple(pack([_passages(one) for one in chunk]) for chunk in _chunks(list(shared.evidences), EVIDENCE_A_CHUNK)),
    )


def pack(value: object) -> str:
    """JSON, deflated, in base 64. A lone surrogate has no bytes of its own and stays an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "backslashreplace"), 9)).decode("ascii")


class _Shared:
    """Questions and sets of passages, each once, numbered as they come."""

    def __init__(self) -> None:
        self.evidences: dict[tuple[Passage, ...], int] = {}
        self.questions: dict[Instance, int] = {}

    def question(self, instance: Instance) -> int:
        self.evidences.setdefault(instance.evidence, len(self.evidences))
        return self.questions.setdefault(instance, len(self.questions))


def _index(looked: Sequence[ResponseFacts], places: Sequence[int], shared: _Shared) -> dict[str, Any]:
    cases = [one.case for one in looked]
    benchmarks, models = (_Names(group_value(case, by) for case in cases) for by in ("benchmark", "model"))
    judges = _Names(case.judgment.judge for case in cases)
    outcomes = list(OUTCOMES)
    return {
        "chunks": {"details": RESPONSES_A_CHUNK, "evidence": EVIDENCE_A_CHUNK},
        "ids": [case.response.id for case in cases],
        "answers": [case.response.answer for case in cases],
        "steps": [len(case.response.trace) for case in cases],
        "outcome": [outcomes.index(one.outcome) for one in looked],
        "outcomes": list(OUTCOMES.items()),
        "question": list(places),
        "questions": [_question(instance, shared) for instance in shared.questions],
        "benchmark": benchmarks.column,
        "benchmarks": benchmarks.names,
        "model": models.column,
        "models": models.names,
        "judge": judges.column,
        "judges": judges.names,
        "facets": facet_columns(looked),
        "criteria": _criteria(),
        "codes": {code.value: name for code, (name, _) in CODE_WORDS.items()},
    }


class _Names:
    """A column of names as numbers into a sorted list."""

    def __init__(self, values: Iterable[str]) -> None:
        given = list(values)
        self.names = sorted(set(given))
        place = {name: number for number, name in enumerate(self.names)}
        self.column = [place[name] for name in given]


def _question(instance: Instance, shared: _Shared) -> list[Any]:
    supporting = instance.support_ids
    marked = None if supporting is None else [n for n, one in enumerate(instance.evidence) if one.id in supporting]
    evidence = shared.evidences[instance.evidence]
    return [instance.question, instance.reference_answer, list(instance.aliases), instance.id, evidence, marked]


def _criteria() -> list[list[Any]]:
    """What each criterion asks, and what its judge was shown and was not."""
    words = {"evidence": "the passages settle the question"} | {
        one.value: told for one, told in CRITERION_WORDS.items()
    }
    made: list[list[Any]] = []
    for name, kind in _SHOWN.items():
        fields_shown = {field.name for field in fields(kind)}
        shown = [told for field, told in _FIELD_WORDS.items() if field in fields_shown]
        hidden = [told for field, told in _FIELD_WORDS.items() if field not in fields_shown]
        made.append([name, words[name], shown, hidden])
    return made


def _passages(evidence: tuple[Passage, ...]) -> list[list[str]]:
    return [[passage.title, passage.text] for passage in evidence]


def _detail(case: Case) -> dict[str, Any]:
    """One response as the page shows it; what is empty is left out."""
    judgment, response = case.judgment, case.response
    steps = judgment.steps if judgment.stepwise else ()
    judged = [*steps, *[None] * (len(response.trace) - len(steps))]
    verdict = case.verdict
    labels = (judgment.evidence_sufficient, verdict.locally_sound, verdict.aligned, verdict.closed)
    made = {
        "broken": broken_link(case),
        "steps": [_step(text, step, case) for text, step in zip(response.trace.texts, judged, strict=False)],
        "labels": [_number(label) for label in (*labels, verdict.complete, verdict.correct)],
        "reasons": {criterion.value: reason for criterion, reason in judgment.reasons.items()},
        "unjudged": {criterion.value: reason for criterion, reason in judgment.unjudged.items()},
        "pursued": judgment.pursued,
        "established": judgment.established,
        "missing": judgment.missing_evidence,
        "incomplete": response.incomplete and str(response.incomplete).replace("_", " "),
        "votes": {name: [_number(vote) for vote in said] for name, said in differing_votes(judgment).items()},
        "raw": response.completion if response.answer is None or response.answer_lines > 1 else None,
    }
    return {name: value for name, value in made.items() if value or name == "steps"}


def _number(label: Label) -> int:
    return 2 if label is None else int(label)


def _step(text: str, step: StepJudgment | None, case: Case) -> list[Any]:
    """Text, substantive, sound, code, reason, and the place of its quote or the quote itself."""
    if step is None:
        return [text, 2, 2, None, None, None]
    code = step.failure and step.failure.value
    return [text, _number(step.substantive), _number(step.sound), code, step.reason, _quote(step, case)]


def _quote(step: StepJudgment, case: Case) -> list[Any] | None:
    """``[passage, start, end]`` in the page's own counting, or ``[passage, quote]`` where it does not stand there."""
    if step.support is None:
        return None
    index, quote = step.support.passage_index, step.support.quote
    evidence = case.instance.evidence
    text = evidence[index].text if 0 <= index < len(evidence) else ""
    start = text.find(quote) if quote else -1
    if start < 0:
        return [index, quote]
    return [index, _units(text[:start]), _units(text[: start + len(quote)])]


def _units(text: str) -> int:
    """How long a browser takes a text to be: it counts UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _chunks(values: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))
