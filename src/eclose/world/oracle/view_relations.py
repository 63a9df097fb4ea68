"""The relations between the views of a family, decided from words: warrant, support, alignment, closure, soundness.

W, U, A, C and J of appendix B, each a function of exactly what it may rest on. Families are built on the fuller ones of
``switching``; these are what tests and figures hold them against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.world.language.claims import Claim, Discourse
from eclose.world.language.questions import read_question
from eclose.world.language.steps import read_step
from eclose.world.oracle.alignment import AlignmentTracer
from eclose.world.oracle.answer_equality import is_same_answer
from eclose.world.oracle.closure import TracePremises
from eclose.world.oracle.evidence import read_evidence
from eclose.world.oracle.soundness import judge_steps

if TYPE_CHECKING:
    from eclose.core.instance import Passage
    from eclose.core.response import Trace
    from eclose.core.three_valued import Label

Passages = tuple["Passage", ...]


def find_answers(question: str, passages: Passages) -> list[str] | None:
    """Every answer the passages warrant; None when the question cannot be read."""
    target = read_question(question)
    return None if target is None else [way.value for way in read_evidence(passages).answers(target)]


def warrants(question: str, passages: Passages, answer: str) -> Label:
    """W: the passages warrant the answer."""
    found = find_answers(question, passages)
    return None if found is None else any(is_same_answer(answer, one) for one in found)


def warrants_uniquely(question: str, passages: Passages, answer: str) -> Label:
    """U: they warrant it, and nothing else."""
    found = find_answers(question, passages)
    return None if found is None else len(found) == 1 and is_same_answer(answer, found[0])


def find_minimal_support(question: str, passages: Passages, answer: str) -> frozenset[int] | None:
    """The fewest passages that warrant the answer; None when none do."""
    target = read_question(question)
    if target is None:
        return None
    ways = read_evidence(passages).answers(target)
    return next((way.support for way in ways if is_same_answer(answer, way.value)), None)


def read_trace(trace: Trace) -> list[Claim] | None:
    """All claims of a trace; None when a step cannot be read."""
    discourse = Discourse()
    claims: list[Claim] = []
    for text in trace.texts:
        found = read_step(text, discourse)
        if found is None:
            return None
        claims += found
    return claims


def is_aligned(question: str, trace: Trace) -> Label:
    """A: the trace pursues what the question asks for."""
    target, claims = read_question(question), read_trace(trace)
    if target is None or claims is None:
        return None
    pursued = AlignmentTracer(target).follow(claims)
    return pursued[0] if pursued else None


def closes(question: str, trace: Trace, answer: str) -> Label:
    """C for an aligned trace: its claims establish the answer."""
    target, claims = read_question(question), read_trace(trace)
    if target is None or claims is None:
        return None
    found = TracePremises(claims).established(target)
    return len(found) == 1 and is_same_answer(answer, found[0])


def label_step_soundness(passages: Passages, trace: Trace) -> list[Label]:
    """J: whether each step is warranted by these passages."""
    steps, _, _ = judge_steps(passages, trace)
    return [step.sound for step in steps]
