"""What a person decides in each pass: the fields, when each is asked, and whether a form is complete.

No web in it and no database: a form is a mapping of names to choices, and this says what is wrong with it. Whatever can
be worked out (L, G, the gap, the kind of failure) is never asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from eclose.core.judgment import INELIGIBILITY_PRECEDENCE, LocalFailure
from eclose.protocol.auditing import GUIDELINE, MARKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Entry: TypeAlias = Mapping[str, str]
"""Choices by the names of their fields."""

YES, NO = "yes", "no"


class Kind(StrEnum):
    """What is annotated."""

    SCREENING = "screening"
    """A question: can it be used at all?"""
    RESPONSE = "response"
    """A response in four passes."""
    SHORT = "short"
    """A response in three, without its single steps: for whoever labels a hundred of their own."""
    FAMILY = "family"
    """A counterfactual family, all of it at once."""


@dataclass(frozen=True, slots=True)
class Field:
    """One decision."""

    name: str
    choices: tuple[str, ...]
    when: tuple[str, str] | None = None
    """Asked only where another field has this value, and must be left empty elsewhere."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What is decided at one sight of the material."""

    name: str
    fields: tuple[Field, ...]
    guideline: str
    """The text people decide by."""
    each_step: bool = False
    """Whether every step is decided by itself."""


_SUBSTANTIVE = Field("substantive", (YES, NO))
_SOUND = Field("sound", (YES, NO), when=("substantive", YES))
_FAILURE = Field("failure", tuple(LocalFailure), when=("sound", NO))
_ELIGIBLE = Field("eligible", (YES, NO))
_CODE = Field("code", tuple(INELIGIBILITY_PRECEDENCE), when=("eligible", NO))
_ALIGNED, _CLOSED = Field("aligned", (YES, NO)), Field("closed", (YES, NO))
_CORRECT, _COMPLETE = Field("correct", (YES, NO)), Field("complete", (YES, NO))

PASSES: Mapping[Kind, tuple[Pass, ...]] = {
    Kind.SCREENING: (Pass("S", (_ELIGIBLE, _CODE), "screen_eligibility.md"),),
    Kind.RESPONSE: (
        Pass("A", (_SUBSTANTIVE, _SOUND, _FAILURE), "judge_soundness.md", each_step=True),
        Pass("B", (_ALIGNED,), "judge_alignment.md"),
        Pass("C", (_CLOSED,), "judge_closure.md"),
        Pass("D", (_CORRECT, _COMPLETE), "judge_correctness.md"),
    ),
    Kind.SHORT: (
        Pass("B", (Field("locally_sound", (YES, NO)), _ALIGNED), "judge_alignment.md"),
        Pass("C", (_CLOSED,), "judge_closure.md"),
        Pass("D", (_CORRECT, _COMPLETE), "judge_correctness.md"),
    ),
    Kind.FAMILY: (Pass("F", tuple(Field(name, (YES, NO)) for names in MARKS.values() for name in names), GUIDELINE),),
}
"""In their order; a pass opens when the one before it is submitted, and is closed then."""


def passes_of(kind: Kind, *, steps: int = 1, answered: bool = True, referenced: bool = True) -> tuple[Pass, ...]:
    """The passes of one task, without what cannot be asked of it: no step, no answer, no reference."""
    left = passes_named(kind, [one.name for one in PASSES[kind]], unasked(answered=answered, referenced=referenced))
    return tuple(one for one in left if one.fields and (steps or not one.each_step))


def unasked(*, answered: bool, referenced: bool) -> frozenset[str]:
    """The fields that cannot be asked where there is no answer, or no reference."""
    without_answer = () if answered else ("closed", "correct")
    return frozenset(without_answer + (() if referenced else ("correct", "complete")))


def passes_named(kind: Kind, names: Sequence[str], without: Collection[str]) -> tuple[Pass, ...]:
    """These passes of a kind, without some of their fields."""
    return tuple(
        replace(one, fields=tuple(field for field in one.fields if field.name not in without))
        for one in PASSES[kind]
        if one.name in names
    )


def next_pass(passes: Sequence[Pass], submitted: Sequence[str]) -> Pass | None:
    """The one that is open; None when all are done. What was submitted must be the beginning of the order."""
    names = [one.name for one in passes]
    if list(submitted) != names[: len(submitted)]:
        raise ValueError(f"passes {list(submitted)} were submitted, but their order is {names}")
    return passes[len(submitted)] if len(submitted) < len(passes) else None


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a form."""

    field: str
    problem: str
    step: int | None = None
    """Counted from one, where steps are decided."""

    def __str__(self) -> str:
        """For people."""
        where = "" if self.step is None else f"step {self.step}: "
        return f"{where}{self.field}: {self.problem}"


def problems(one: Pass, entries: Sequence[Entry], steps: int | None = None) -> tuple[Problem, ...]:
    """Everything that is wrong with a form: one entry, or one for each step. Nothing, where it may be submitted."""
    wanted = steps if one.each_step else 1
    if len(entries) != wanted:
        return (Problem("form", f"{len(entries)} entries, where there are {wanted} to make."),)
    found = enumerate(entries, start=1)
    return tuple(
        Problem(*told, number if one.each_step else None) for number, entry in found for told in _wrong(one, entry)
    )


def _wrong(one: Pass, entry: Entry) -> Iterator[tuple[str, str]]:
    known = {field.name for field in one.fields}
    yield from ((name, "is not asked here.") for name in sorted(set(entry) - known))
    for field in one.fields:
        value = entry.get(field.name)
        asked = field.when is None or entry.get(field.when[0]) == field.when[1]
        if value is None and asked:
            yield field.name, "is not decided."
        elif value is not None and not asked:
            assert field.when is not None
            yield field.name, f"is asked only where {field.when[0]} is {field.when[1]}."
        elif value is not None and value not in field.choices:
            yield field.name, f"cannot be {value!r}. Choose from: {', '.join(field.choices)}."
