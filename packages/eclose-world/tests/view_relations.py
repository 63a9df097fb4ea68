"""The relations W, U, A, C and J between the views of a family (appendix B), each a function of its permitted inputs.

Families are built with the fuller conditions of the oracle; tests and measurements compare these with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose_world.language.questions import parse_question
from eclose_world.language.steps import parse_trace_claims
from eclose_world.oracle.answer_equality import is_same_answer
from eclose_world.oracle.closure import AlignmentTracer, TracePremises
from eclose_world.oracle.evidence import find_warranted_answers, parse_evidence_facts
from eclose_world.oracle.soundness import judge_step_soundness

if TYPE_CHECKING:
    from eclose.values.instance import Passage
    from eclose.values.response import Trace
    from eclose.values.three_valued import Label

Passages = tuple["Passage", ...]


def warrants_answer(question: str, passages: Passages, answer: str) -> Label:
    """Return W: whether the passages warrant the answer."""
    warranted = find_warranted_answers(question, passages)
    return None if warranted is None else any(is_same_answer(answer, value) for value in warranted)


def warrants_only_answer(question: str, passages: Passages, answer: str) -> Label:
    """Return U: whether the passages warrant the answer and no other."""
    warranted = find_warranted_answers(question, passages)
    return None if warranted is None else len(warranted) == 1 and is_same_answer(answer, warranted[0])


def find_minimal_support(question: str, passages: Passages, answer: str) -> frozenset[int] | None:
    """Return the smallest set of passages that warrants the answer, None where none does."""
    target = parse_question(question)
    if target is None:
        return None
    derivations = parse_evidence_facts(passages).find_answers(target)
    return next((derivation.support for derivation in derivations if is_same_answer(answer, derivation.value)), None)


def trace_pursues_question(question: str, trace: Trace) -> Label:
    """Return A: whether the trace pursues what the question asks for."""
    target, claims = parse_question(question), parse_trace_claims(trace)
    if target is None or claims is None:
        return None
    main_line = AlignmentTracer(target).find_main_line(claims)
    return main_line[0] if main_line else None


def trace_establishes_answer(question: str, trace: Trace, answer: str) -> Label:
    """Return C for an aligned trace: whether its claims establish the answer."""
    target, claims = parse_question(question), parse_trace_claims(trace)
    if target is None or claims is None:
        return None
    established = TracePremises(claims).derive_answers(target)
    return len(established) == 1 and is_same_answer(answer, established[0])


def label_step_soundness(passages: Passages, trace: Trace) -> list[Label]:
    """Return J: whether each step is warranted by these passages."""
    steps, _, _ = judge_step_soundness(passages, trace)
    return [step.sound for step in steps]
