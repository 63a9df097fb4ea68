"""What a person is shown, pass by pass. A page is rendered from one of these values and from nothing else.

Each pass shows one thing more than the one before it (appendix A.3.2): first the steps with the evidence, then the
trace as a whole, then the submitted answer, last the reference. Whoever is in pass B cannot be sent the answer, because
there is no answer in what the page is made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.protocol.auditing import ShownFamily
from eclose.protocol.disclosure import Eligibility, Soundness
from eclose.protocol.material_json import ShownPassage, shown_passages

if TYPE_CHECKING:
    from eclose.core.instance import Instance
    from eclose.core.response import Response


@dataclass(frozen=True, slots=True)
class WholeTrace:
    """The trace as one block, with the question (q, r, and D where it stays in sight): no answer, no reference."""

    question: str
    evidence: tuple[ShownPassage, ...]
    """Empty where a project hides it after the first pass."""
    trace: str


@dataclass(frozen=True, slots=True)
class WithAnswer:
    """The same with the submitted answer: no reference."""

    question: str
    evidence: tuple[ShownPassage, ...]
    trace: str
    answer: str | None
    """None where nothing was submitted."""


@dataclass(frozen=True, slots=True)
class WithReference:
    """The same with the reference."""

    question: str
    evidence: tuple[ShownPassage, ...]
    trace: str
    answer: str | None
    reference: str
    aliases: tuple[str, ...] = ()


Shown: TypeAlias = Eligibility | Soundness | WholeTrace | WithAnswer | WithReference | ShownFamily
"""Screening and pass A show what a judge of eligibility and of soundness is shown; see ``disclosure``."""


def whole_trace(instance: Instance, response: Response, *, hide_evidence: bool = False) -> WholeTrace:
    """Pass B."""
    return WholeTrace(instance.question, _evidence(instance, hide=hide_evidence), _block(response))


def with_answer(instance: Instance, response: Response, *, hide_evidence: bool = False) -> WithAnswer:
    """Pass C."""
    evidence = _evidence(instance, hide=hide_evidence)
    return WithAnswer(instance.question, evidence, _block(response), response.answer)


def with_reference(instance: Instance, response: Response, *, hide_evidence: bool = False) -> WithReference | None:
    """Pass D; None where there is no reference."""
    if instance.reference_answer is None:
        return None
    return WithReference(
        instance.question,
        _evidence(instance, hide=hide_evidence),
        _block(response),
        response.answer,
        instance.reference_answer,
        instance.aliases,
    )


def _evidence(instance: Instance, *, hide: bool) -> tuple[ShownPassage, ...]:
    return () if hide else shown_passages(instance.evidence)


def _block(response: Response) -> str:
    """Without numbers: nothing here is decided step by step. The answer line is no part of a trace."""
    return "\n".join(response.trace.texts)
