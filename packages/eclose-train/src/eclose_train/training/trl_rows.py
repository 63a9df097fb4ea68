"""Families as rows for TRL: its conversational prompt-completion and preference formats.

Prompts are byte for byte those of this package's training, so a baseline trained with TRL differs only in its
objective. Rows hold complete responses; the comparisons S, T and C score parts of a response given another part, which
these formats cannot express.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from eclose.files.families import scan_families
from eclose.files.jsonl import ReadRecord
from eclose.files.step import PipelineStep
from eclose.prompts.response_prompt import format_completion
from eclose.values.family import select_fixed_edit
from eclose_train.families.comparisons import Direction
from eclose_train.training.row_formats import ExportedEdits, ExportRowFormat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eclose.prompts.response_prompt import ResponsePrompt
    from eclose.values.family import EvidenceEdit, Family, View

Messages: TypeAlias = tuple[Mapping[str, object], ...]


def _no_thinking() -> dict[str, bool]:
    """Return the arguments that TRL passes to the chat template, as the renderer of this package does."""
    return {"enable_thinking": False}


@dataclass(frozen=True, slots=True)
class SftRow:
    """A view of a family: an input and its correct response."""

    prompt: Messages
    completion: Messages
    family_id: str
    view: str
    """Kind of the view. Gold rows make up SFT; rows of all three kinds make up CF-SFT."""
    weight: float
    """Share of the family's generation loss in CF-SFT: a third per kind, divided by the number of edits."""
    chat_template_kwargs: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class PreferenceRow:
    """A comparison of the response margin: the preferred and the rejected response to an input."""

    prompt: Messages
    chosen: Messages
    rejected: Messages
    family_id: str
    comparison: str
    """``Re_o`` and ``Re_c`` for an evidence edit, ``Rq_o`` and ``Rq_c`` for the question edit."""
    weight: float
    """Share of the family's margin loss, 2 : 2 : 1 : 1 (appendix D.3)."""
    chat_template_kwargs: Mapping[str, bool]


def make_sft_rows(
    family: Family, prompt: ResponsePrompt, edits: ExportedEdits = ExportedEdits.FIRST
) -> Iterator[SftRow]:
    """Yield a row for every view."""
    evidence_edits = _select_edits(family, edits)
    count = len(evidence_edits)
    views = [(family.gold, 1), *((edit.view, count) for edit in evidence_edits), (family.question_edit.view, 1)]
    for view, share in views:
        # Three anchors of equal weight (appendix C.3); several evidence edits share one third.
        weight = 1 / (3 * share)
        yield SftRow(
            prompt=_prompt(view, prompt),
            completion=_reply(view),
            family_id=family.id,
            view=view.kind.value,
            weight=weight,
            chat_template_kwargs=_no_thinking(),
        )


def make_preference_rows(
    family: Family, prompt: ResponsePrompt, edits: ExportedEdits = ExportedEdits.FIRST
) -> Iterator[PreferenceRow]:
    """Yield both directions of every evidence edit, then of the question edit: four rows with one edit."""
    evidence_edits = _select_edits(family, edits)
    # Training draws an edit uniformly, so where all are written they share the weight of one.
    for edit in evidence_edits:
        yield from _both_directions(family, edit.view, "Re", 2 / 6 / len(evidence_edits), prompt)
    # 2 : 2 : 1 : 1 of 6, as in objective.py (appendix D.3).
    yield from _both_directions(family, family.question_edit.view, "Rq", 1 / 6, prompt)


def _both_directions(
    family: Family, other: View, name: str, weight: float, prompt: ResponsePrompt
) -> Iterator[PreferenceRow]:
    directions = ((Direction.ORIGINAL, family.gold, other), (Direction.COUNTERFACTUAL, other, family.gold))
    for direction, right, wrong in directions:
        yield PreferenceRow(
            prompt=_prompt(right, prompt),
            chosen=_reply(right),
            rejected=_reply(wrong),
            family_id=family.id,
            comparison=f"{name}_{direction.value}",
            weight=weight,
            chat_template_kwargs=_no_thinking(),
        )


def _select_edits(family: Family, edits: ExportedEdits) -> tuple[EvidenceEdit, ...]:
    return family.evidence_edits if edits is ExportedEdits.ALL else (select_fixed_edit(family),)


def _prompt(view: View, prompt: ResponsePrompt) -> Messages:
    return tuple(dict(message) for message in prompt.messages(view.question, view.evidence))


def _reply(view: View) -> Messages:
    return ({"role": "assistant", "content": format_completion(view.trace, view.answer)},)


def build_row_export_step(
    path: Path, out: Path, layout: ExportRowFormat, prompt: ResponsePrompt, edits: ExportedEdits
) -> PipelineStep:
    """Return the step that writes the rows of a file of families, with the settings that its manifest records."""
    settings = {"format": layout.value, "edits": edits.value, "prompt": prompt.hash}
    return PipelineStep("families export", settings, (path,), out)


def make_family_rows(
    path: Path, layout: ExportRowFormat, prompt: ResponsePrompt, edits: ExportedEdits
) -> Iterator[ReadRecord[Any]]:
    """Yield the rows of each family; unreadable and rejected records are passed on."""
    # The format DATASETS is written elsewhere and does not reach this function.
    make_rows = make_sft_rows if layout is ExportRowFormat.TRL_SFT else make_preference_rows
    for record in scan_families(path):
        if record.value is None:
            yield record
            continue
        for row in make_rows(record.value, prompt, edits):
            yield ReadRecord(record.where, value=row)
