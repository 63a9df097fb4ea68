"""What a judging model is asked and how its replies are read: guideline, material, shape of the reply.

Seven questions, each with its own disclosure, locked guideline and strict schema, and one that asks several of them at
once. A reply is read or refused, never repaired: a set of step ids that is not exactly the one asked about, or a quote
that does not stand in its passage, is no judgement.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from eclose.core.identity import content_hash
from eclose.core.judgment import Criterion, Ineligibility, LocalFailure, StepJudgment, Support
from eclose.protocol import disclosure
from eclose.protocol.material_json import material_json
from eclose.protocol.prompts import Message, Reader, load_text
from eclose.protocol.structured import (
    BOOLEAN,
    INTEGER,
    TEXT,
    Asked,
    UnreadableReplyError,
    code_or_null,
    one_of,
    or_null,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.protocol.disclosure import Disclosure, Soundness, Whole


class Question(StrEnum):
    """What is asked of a judge; the value names the shape of the reply."""

    SUFFICIENCY = "judge_sufficiency"
    SOUNDNESS = "judge_soundness"
    ALIGNMENT = "judge_alignment"
    CLOSURE = "judge_closure"
    COMPLETENESS = "judge_completeness"
    CORRECTNESS = "judge_correctness"
    ELIGIBILITY = "screen_eligibility"
    JOINT = "judge_joint"
    """Several of them in one call."""

    @property
    def part(self) -> str:
        """What its answer is called among those of a joint reply."""
        return self.value.removeprefix("judge_")


NOT_SUBSTANTIVE = "not substantive"
SOUND = "sound"
_SUPPORT = shape(passage=INTEGER, quote=TEXT)
_STEP = shape(reason=TEXT, verdict=one_of((NOT_SUBSTANTIVE, SOUND, *LocalFailure)), support=or_null(_SUPPORT))
_SHAPES: Mapping[Question, Mapping[str, Any]] = {
    Question.SUFFICIENCY: shape(reason=TEXT, missing=or_null(TEXT), sufficient=BOOLEAN, answer=or_null(TEXT)),
    Question.ALIGNMENT: shape(reason=TEXT, pursued=TEXT, aligned=BOOLEAN),
    Question.CLOSURE: shape(reason=TEXT, established=or_null(TEXT), closed=BOOLEAN),
    Question.COMPLETENESS: shape(reason=TEXT, missing=or_null(TEXT), complete=BOOLEAN),
    Question.CORRECTNESS: shape(reason=TEXT, correct=BOOLEAN),
    Question.ELIGIBILITY: shape(reason=TEXT, eligible=BOOLEAN, code=code_or_null(Ineligibility)),
}

_ASKED_WITH: Mapping[type[Any], Question] = {
    disclosure.Sufficiency: Question.SUFFICIENCY,
    disclosure.Soundness: Question.SOUNDNESS,
    disclosure.Alignment: Question.ALIGNMENT,
    disclosure.Closure: Question.CLOSURE,
    disclosure.Completeness: Question.COMPLETENESS,
    disclosure.Correctness: Question.CORRECTNESS,
    disclosure.Eligibility: Question.ELIGIBILITY,
    disclosure.Whole: Question.JOINT,
}
QUESTIONS = {
    Criterion.LOCAL_SOUNDNESS: Question.SOUNDNESS,
    Criterion.ALIGNMENT: Question.ALIGNMENT,
    Criterion.CLOSURE: Question.CLOSURE,
    Criterion.COMPLETENESS: Question.COMPLETENESS,
    Criterion.CORRECTNESS: Question.CORRECTNESS,
}
"""What decides each criterion."""
JOINT_PARTS = (Question.SUFFICIENCY, *QUESTIONS.values())
"""In the order in which a joint judge decides: what may rest on least comes first, the reference last."""
MATERIAL: Mapping[Question, type[Any]] = {question: kind for kind, question in _ASKED_WITH.items()}


def asked(shown: Disclosure, parts: Sequence[Question] = JOINT_PARTS) -> Asked:
    """The question that goes with what is shown; of a joint one the ``parts`` that are asked."""
    question = _ASKED_WITH[type(shown)]
    steps = tuple(str(step.id) for step in getattr(shown, "steps", ()))
    schema = reply_shape(question, steps, tuple(parts) if question is Question.JOINT else ())
    system = load_text("judge_frame.md").render(guideline=_guideline(question, parts))
    messages = (Message(role="system", content=system), Message(role="user", content=material_json(shown)))
    return Asked(question, messages, guideline_hash(question), schema)


@cache
def reply_shape(question: Question, steps: tuple[str, ...] = (), parts: tuple[Question, ...] = ()) -> Mapping[str, Any]:
    """What a reply looks like: about exactly these steps, so that a server that keeps to it leaves none out."""
    if question is Question.JOINT:
        made = shape(**{part.part: _one_shape(part, steps) for part in parts})
    else:
        made = _one_shape(question, steps)
    # Told once, however many steps there are: what a shape costs is paid with every call.
    return made | {"$defs": {"step": _STEP}} if Question.SOUNDNESS in (question, *parts) else made


def _one_shape(question: Question, steps: tuple[str, ...]) -> dict[str, Any]:
    if question is Question.SOUNDNESS:
        return shape(steps=shape(**{step: {"$ref": "#/$defs/step"} for step in steps}))
    return dict(_SHAPES[question])


def _guideline(question: Question, parts: Sequence[Question]) -> str:
    text = load_text(f"{question}.md")
    if question is not Question.JOINT:
        return text.addressed_to(Reader.MODELS).rstrip("\n")
    told = (f"Guideline for `{part.part}`:\n\n{_guideline(part, ())}" for part in parts)
    return text.render(guidelines="\n\n---\n\n".join(told))


@cache
def guideline_hash(question: Question) -> str:
    """Return the identity of everything a judge is told, apart from the material. What people are told is not in it."""
    names = ("judge_frame", question, *(JOINT_PARTS if question is Question.JOINT else ()))
    return content_hash([load_text(f"{name}.md").addressed_to(Reader.MODELS) for name in names])


def part_of(shown: Whole, question: Question) -> Disclosure:
    """What one of the parts may rest on, out of everything."""
    kind = MATERIAL[question]
    made: Disclosure = kind(**{field.name: getattr(shown, field.name) for field in fields(kind)})
    return made


def read_steps(shown: Soundness | Whole, told: Mapping[str, Any]) -> tuple[StepJudgment, ...]:
    """The judgement of every step, in order. Raises where it is not exactly about the steps that were shown."""
    entries: Mapping[str, Mapping[str, Any]] = told["steps"]
    wanted = [str(step.id) for step in shown.steps]
    if set(entries) != set(wanted):
        raise UnreadableReplyError("wrong step ids", f"asked about the steps {wanted}, told about {list(entries)}.")
    return tuple(_step(step, entries[step], shown) for step in wanted)


def _step(step: str, entry: Mapping[str, Any], shown: Soundness | Whole) -> StepJudgment:
    support = None if entry["support"] is None else _support(entry["support"], step, shown)
    reason, verdict = entry["reason"] or None, entry["verdict"]
    if verdict == NOT_SUBSTANTIVE:
        return StepJudgment(False, None, None, support, reason)
    failure = None if verdict == SOUND else LocalFailure(verdict)
    return StepJudgment(True, failure is None, failure, support, reason)


def tell_step(judged: StepJudgment) -> dict[str, Any]:
    """The entry of a step in a reply: what ``read_steps`` reads."""
    unsound = judged.failure or LocalFailure.OTHER
    at = judged.support
    return {
        "reason": judged.reason or "",
        "verdict": NOT_SUBSTANTIVE if not judged.substantive else SOUND if judged.sound else str(unsound),
        "support": None if at is None else {"passage": at.passage_index, "quote": at.quote},
    }


def _support(entry: Mapping[str, Any], step: str, shown: Soundness | Whole) -> Support:
    index, quote = entry["passage"], entry["quote"]
    if not 0 <= index < len(shown.evidence):
        raise UnreadableReplyError("no such passage", f"step {step} is supported by passage {index}, of which none is.")
    passage = shown.evidence[index]
    if not quote.strip() or not any(_plain(quote) in _plain(text) for text in (passage.text, passage.title)):
        raise UnreadableReplyError("quote not found", f"step {step}: {quote!r} does not stand in passage {index}.")
    if not _long_enough(_plain(quote)) and _plain(quote) not in (_plain(passage.text), _plain(passage.title)):
        raise UnreadableReplyError(
            "quote too short", f"step {step}: {quote!r} stands in any passage and shows nothing."
        )
    return Support(index, quote)


def _long_enough(quote: str) -> bool:
    """Whether a quote can show anything: three words, or twelve characters for scripts without blanks."""
    return len(quote.split()) >= 3 or len(quote) >= 12


def _plain(text: str) -> str:
    """White space apart, a quote is verbatim."""
    return " ".join(text.split())
