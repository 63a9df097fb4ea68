"""Explanations of labels: the target a trace pursues, the answer it establishes, the sentence that supports a step.

The oracle decides labels; these functions add the reason that a human-readable judgment gives. Each returns None where
the reason would not support the label.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from eclose_world.language.claims import Claim, FactClaim
from eclose_world.language.phrases import verbalize_phrase
from eclose_world.language.questions import ComparisonQuestion, Target, parse_question
from eclose_world.language.values import parse_answer_value
from eclose_world.make.solve import verbalize_answer
from eclose_world.oracle.answer_equality import answer_matches_value
from eclose_world.oracle.closure import AlignmentTracer, TracePremises
from eclose_world.oracle.soundness import judge_step_soundness

if TYPE_CHECKING:
    from eclose.values.instance import Passage
    from eclose.values.response import Trace


def describe_pursued_target(question: str, trace: Trace) -> str | None:
    """Return the target that a misaligned trace pursues; None for an aligned or unreadable one."""
    target, claims = _read(question, trace)
    main_line = AlignmentTracer(target).find_main_line(claims) if target and claims else None
    if main_line is None or main_line[0]:
        return None
    claim = main_line[1]
    # Seeded by the question: equal cases get equal words.
    return verbalize_phrase(claim.phrase, Random(question)) if isinstance(claim, FactClaim) else f"“{trace.texts[-1]}”"


def describe_established_answer(question: str, trace: Trace, answer: str) -> str | None:
    """Return the one answer that a trace establishes; None where there is none, or it is the submitted one."""
    target, claims = _read(question, trace)
    if target is None or not claims:
        return None
    premises = TracePremises(claims)
    established = premises.derive_answers(target)
    if len(established) != 1 or answer_matches_value(premises.resolve_name(parse_answer_value(answer)), established[0]):
        return None
    return verbalize_answer(target, established[0], Random(question))


def find_supporting_quote(passage: Passage, trace: Trace, number: int) -> str:
    """Return the sentence of a passage that alone supports a step; the whole passage where it takes more."""
    # No name of the world contains a full stop, so every ". " ends a sentence.
    for sentence in passage.text.split(". "):
        quote = f"{sentence.removesuffix('.')}."
        # The step is judged again on the single sentence.
        steps, _, _ = judge_step_soundness((replace(passage, text=quote),), trace)
        if steps[number].sound:
            return quote
    return passage.text


def _read(question: str, trace: Trace) -> tuple[Target | None, list[Claim]]:
    """Return the question's target and the claims; no claims where a step cannot be read."""
    target = parse_question(question)
    options = target.options if isinstance(target, ComparisonQuestion) else ()
    _, claims, unread = judge_step_soundness((), trace, options)
    return target, [] if unread else claims
