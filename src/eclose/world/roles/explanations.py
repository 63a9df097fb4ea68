"""What is so of a trace, in words: the question it really pursues, the answer it really establishes, what it rests on.

The oracle decides labels; a judge that people read also says why. Here that is put into words, and only where it bears
the label out.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from eclose.world.language.claims import Claim, FactClaim
from eclose.world.language.phrases import write_phrase
from eclose.world.language.questions import ChoiceQuestion, Target, read_question
from eclose.world.language.values import read_answer_value
from eclose.world.make.solve import write_answer
from eclose.world.oracle.alignment import AlignmentTracer
from eclose.world.oracle.answer_equality import matches_value
from eclose.world.oracle.closure import TracePremises
from eclose.world.oracle.soundness import judge_steps

if TYPE_CHECKING:
    from eclose.core.instance import Passage
    from eclose.core.response import Trace


def explain_target(question: str, trace: Trace) -> str | None:
    """What a trace is after that does not pursue the question; None where it does, or cannot be read."""
    target, claims = _read(question, trace)
    found = AlignmentTracer(target).follow(claims) if target and claims else None
    if found is None or found[0]:
        return None
    claim = found[1]
    return write_phrase(claim.phrase, Random(question)) if isinstance(claim, FactClaim) else f"“{trace.texts[-1]}”"


def explain_answer(question: str, trace: Trace, answer: str) -> str | None:
    """The one answer to the question that follows from a trace; None where there is none, or it was submitted."""
    target, claims = _read(question, trace)
    if target is None or not claims:
        return None
    premises = TracePremises(claims)
    found = premises.established(target)
    if len(found) != 1 or matches_value(premises.name(read_answer_value(answer)), found[0]):
        return None
    return write_answer(target, found[0], Random(question))


def find_quote(passage: Passage, trace: Trace, number: int) -> str:
    """The sentence of a passage that bears a step out alone; the whole passage where it takes more of it."""
    # Names hold no full stops here, so this is where sentences end.
    for sentence in passage.text.split(". "):
        quote = f"{sentence.removesuffix('.')}."
        steps, _, _ = judge_steps((replace(passage, text=quote),), trace)
        if steps[number].sound:
            return quote
    return passage.text


def _read(question: str, trace: Trace) -> tuple[Target | None, list[Claim]]:
    """The question and the claims; no claims where a step cannot be read."""
    target = read_question(question)
    options = target.options if isinstance(target, ChoiceQuestion) else ()
    _, claims, unread = judge_steps((), trace, options)
    return target, [] if unread else claims
