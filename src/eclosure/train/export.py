"""Families as rows for other trainers: TRL's conversational prompt-completion and preference formats.

What is asked is byte for byte what our own training asks, so a baseline trained elsewhere differs in its objective
alone. Whole responses only: S, T and C compare parts of a response given another part, which no such row can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclosure.core.choice import fixed_edit
from eclosure.core.edges import Direction
from eclosure.protocol.response import completion_text
from eclosure.train.formats import Edits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclosure.core.family import EvidenceEdit, Family, View
    from eclosure.protocol.response import ResponsePrompt

Messages: TypeAlias = tuple[Mapping[str, object], ...]


def _no_thinking() -> dict[str, bool]:
    """TRL hands these to the chat template, as our renderer does."""
    return {"enable_thinking": False}


@dataclass(frozen=True, slots=True)
class SftRow:
    """A view: an input and the response it warrants."""

    prompt: Messages
    completion: Messages
    family_id: str
    view: str
    """Gold alone is SFT; with the two others it is CF-SFT."""
    weight: float
    """The view's share of the family's generation loss in CF-SFT: a third, split between its edits."""
    chat_template_kwargs: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class PreferenceRow:
    """One comparison of the response margin: under this input, this response rather than that."""

    prompt: Messages
    chosen: Messages
    rejected: Messages
    family_id: str
    comparison: str
    """``Re_o`` and ``Re_c`` for an evidence edit, ``Rq_o`` and ``Rq_c`` for the question edit."""
    weight: float
    """Its share of the family's margin loss, 2 : 2 : 1 : 1 (appendix D.3)."""
    chat_template_kwargs: Mapping[str, bool]


def sft_rows(family: Family, prompt: ResponsePrompt, edits: Edits = Edits.FIRST) -> Iterator[SftRow]:
    """Every view once."""
    chosen = _edits(family, edits)
    views = [(family.gold, 1), *((edit.view, len(chosen)) for edit in chosen), (family.question_edit.view, 1)]
    for view, share in views:
        yield SftRow(_asked(view, prompt), _said(view), family.id, view.kind.value, 1 / (3 * share), _no_thinking())


def preference_rows(family: Family, prompt: ResponsePrompt, edits: Edits = Edits.FIRST) -> Iterator[PreferenceRow]:
    """Both directions of every evidence edit, then of the question edit: four rows with one edit."""
    chosen = _edits(family, edits)
    # An edit is drawn uniformly in training, so where all are written they share the weight of one.
    for edit in chosen:
        yield from _both_ways(family, edit.view, "Re", 2 / 6 / len(chosen), prompt)
    yield from _both_ways(family, family.question_edit.view, "Rq", 1 / 6, prompt)


def _both_ways(
    family: Family, other: View, name: str, weight: float, prompt: ResponsePrompt
) -> Iterator[PreferenceRow]:
    directions = ((Direction.ORIGINAL, family.gold, other), (Direction.COUNTERFACTUAL, other, family.gold))
    for direction, right, wrong in directions:
        yield PreferenceRow(
            _asked(right, prompt),
            _said(right),
            _said(wrong),
            family.id,
            f"{name}_{direction.value}",
            weight,
            _no_thinking(),
        )


def _edits(family: Family, edits: Edits) -> tuple[EvidenceEdit, ...]:
    return family.evidence_edits if edits is Edits.ALL else (fixed_edit(family),)


def _asked(view: View, prompt: ResponsePrompt) -> Messages:
    return tuple(dict(message) for message in prompt.messages(view.question, view.evidence))


def _said(view: View) -> Messages:
    return ({"role": "assistant", "content": completion_text(view.trace, view.answer)},)
