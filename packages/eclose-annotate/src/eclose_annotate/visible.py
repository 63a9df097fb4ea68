"""The material that each pass discloses, read with one query per pass that names no later field.

Each pass discloses more than the one before it (appendix A.3.2): the steps with the evidence (A), the trace as one
block (B), the submitted answer (C), the reference (D). A page of pass B cannot leak the answer, because its material
has no such field. Pages of work are built from these values alone. No query reads ids, origins or labels of others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import TextClause, text

from eclose.files.jsonl import parse_dataclass
from eclose.prompts.disclosure import EligibilityMaterial, SoundnessMaterial
from eclose.prompts.material_json import DisclosedPassage, DisclosedStep
from eclose_annotate.family_audit.material import AuditorMaterial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection, Row


@dataclass(frozen=True, slots=True)
class AnnotatorTraceMaterial:
    """Material of pass B: question and trace (q, r), and the evidence D unless hidden; no answer, no reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    """Empty where a project hides the evidence after the first pass."""
    trace: str
    """All steps as one block, one per line."""
    steps: tuple[str, ...] = ()
    """The steps of the trace, for short tasks, whose pages number them as reports do."""


@dataclass(frozen=True, slots=True)
class AnnotatorAnswerMaterial:
    """Material of pass C: as in pass B, with the submitted answer; no reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    trace: str
    answer: str | None
    """None where no answer was submitted."""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnotatorReferenceMaterial:
    """Material of pass D: as in pass C, with the reference."""

    question: str
    evidence: tuple[DisclosedPassage, ...]
    trace: str
    answer: str | None
    reference: str
    aliases: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


AnnotatorMaterial: TypeAlias = (
    EligibilityMaterial
    | SoundnessMaterial
    | AnnotatorTraceMaterial
    | AnnotatorAnswerMaterial
    | AnnotatorReferenceMaterial
    | AuditorMaterial
)
"""Material of any annotation task. Screening and pass A use the values that judging models get."""


# Passes A and B: neither answer nor reference is read.
_TRACE = (
    "SELECT q.question, q.evidence, r.steps FROM annotate_tasks t"
    " JOIN annotate_questions q ON q.id = t.question JOIN annotate_responses r ON r.id = t.response"
)
_QUERIES = {
    "S": (
        "SELECT q.question, q.evidence, k.reference, k.aliases FROM annotate_tasks t"
        " JOIN annotate_questions q ON q.id = t.question JOIN annotate_references k ON k.question = t.question"
    ),
    "A": _TRACE,
    "B": _TRACE,
    # Adds the answer.
    "C": (
        "SELECT q.question, q.evidence, r.steps, a.answer FROM annotate_tasks t"
        " JOIN annotate_questions q ON q.id = t.question JOIN annotate_responses r ON r.id = t.response"
        " LEFT JOIN annotate_answers a ON a.response = t.response"
    ),
    # Adds the reference.
    "D": (
        "SELECT q.question, q.evidence, r.steps, a.answer, k.reference, k.aliases FROM annotate_tasks t"
        " JOIN annotate_questions q ON q.id = t.question JOIN annotate_responses r ON r.id = t.response"
        " LEFT JOIN annotate_answers a ON a.response = t.response"
        " JOIN annotate_references k ON k.question = t.question"
    ),
    "F": "SELECT f.shown FROM annotate_tasks t JOIN annotate_families f ON f.id = t.family",
}
PASS_QUERIES: Mapping[str, TextClause] = {name: text(f"{query} WHERE t.id = :task") for name, query in _QUERIES.items()}
"""The query of each pass. Callers check beforehand that the person may open the pass."""


def count_response_steps(connection: Connection, task: str) -> int:
    """Return the number of steps of a task's response."""
    # The query of pass A, which reads neither answer nor reference.
    row = connection.execute(PASS_QUERIES["A"], {"task": task}).one()
    return len(json.loads(row.steps))


def read_visible_material(
    connection: Connection, task: str, name: str, *, hide_evidence: bool = False
) -> AnnotatorMaterial:
    """Return what a pass shows of a task; with ``hide_evidence``, passes B, C and D show no evidence."""
    row = connection.execute(PASS_QUERIES[name], {"task": task}).one()
    return _BUILDERS[name](row, () if hide_evidence and name in "BCD" else _evidence(row))


def _evidence(row: Row[Any]) -> tuple[DisclosedPassage, ...]:
    # Families carry their passages themselves.
    if not hasattr(row, "evidence"):
        return ()
    return tuple(DisclosedPassage(index, *passage) for index, passage in enumerate(json.loads(row.evidence)))


def _eligibility(row: Row[Any], evidence: tuple[DisclosedPassage, ...]) -> EligibilityMaterial:
    return EligibilityMaterial(
        json.loads(row.question), evidence, json.loads(row.reference), tuple(json.loads(row.aliases))
    )


def _soundness(row: Row[Any], evidence: tuple[DisclosedPassage, ...]) -> SoundnessMaterial:
    steps = tuple(DisclosedStep(number, step) for number, step in enumerate(json.loads(row.steps), start=1))
    return SoundnessMaterial(json.loads(row.question), evidence, steps)


def _trace(row: Row[Any], evidence: tuple[DisclosedPassage, ...]) -> AnnotatorTraceMaterial:
    return AnnotatorTraceMaterial(json.loads(row.question), evidence, _block(row), _steps(row))


def _with_answer(row: Row[Any], evidence: tuple[DisclosedPassage, ...]) -> AnnotatorAnswerMaterial:
    return AnnotatorAnswerMaterial(json.loads(row.question), evidence, _block(row), _answer(row), _steps(row))


def _with_reference(row: Row[Any], evidence: tuple[DisclosedPassage, ...]) -> AnnotatorReferenceMaterial:
    reference, aliases = json.loads(row.reference), tuple(json.loads(row.aliases))
    return AnnotatorReferenceMaterial(
        question=json.loads(row.question),
        evidence=evidence,
        trace=_block(row),
        answer=_answer(row),
        reference=reference,
        aliases=aliases,
        steps=_steps(row),
    )


def _family(row: Row[Any], _evidence: tuple[DisclosedPassage, ...]) -> AuditorMaterial:
    return parse_dataclass(AuditorMaterial, json.loads(row.shown))


def _block(row: Row[Any]) -> str:
    """Join the steps without numbers: passes B to D judge the trace as a whole."""
    return "\n".join(_steps(row))


def _steps(row: Row[Any]) -> tuple[str, ...]:
    return tuple(json.loads(row.steps))


def _answer(row: Row[Any]) -> str | None:
    return None if row.answer is None else json.loads(row.answer)


_BUILDERS: Mapping[str, Callable[[Row[Any], tuple[DisclosedPassage, ...]], AnnotatorMaterial]] = {
    "S": _eligibility,
    "A": _soundness,
    "B": _trace,
    "C": _with_answer,
    "D": _with_reference,
    "F": _family,
}
