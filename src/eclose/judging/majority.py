"""Several judgments of one response by the same judge -> the one that most of them support."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eclose.core.judgment import EVIDENCE, REPETITIONS_DISAGREE, Criterion, Judgment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.core.three_valued import Label


def settle(judgments: Sequence[Judgment]) -> Judgment:
    """The labels that most repetitions give, each with what the first of these says about it, and all votes.

    Repetitions without a label do not vote. As many for as against leaves the label open.
    """
    if len(judgments) == 1:
        return judgments[0]
    settled = {criterion: _majority(judgments, criterion) for criterion in (*Criterion, EVIDENCE)}
    sound, aligned = settled[Criterion.LOCAL_SOUNDNESS], settled[Criterion.ALIGNMENT]
    closed, evidence = settled[Criterion.CLOSURE], settled[EVIDENCE]
    sayings = {criterion: found for criterion in Criterion if (found := settled[criterion]) is not None}
    return replace(
        judgments[0],
        steps=() if sound is None else sound.steps,
        aligned=_label(aligned, Criterion.ALIGNMENT),
        closed=_label(closed, Criterion.CLOSURE),
        complete=_label(settled[Criterion.COMPLETENESS], Criterion.COMPLETENESS),
        correct=_label(settled[Criterion.CORRECTNESS], Criterion.CORRECTNESS),
        unjudged={criterion: _why(judgments, criterion) for criterion in Criterion if settled[criterion] is None},
        reasons={name: said.reasons[name] for name, said in sayings.items() if name in said.reasons},
        pursued=None if aligned is None else aligned.pursued,
        established=None if closed is None else closed.established,
        evidence_sufficient=_label(evidence, EVIDENCE),
        missing_evidence=None if evidence is None else evidence.missing_evidence,
        votes={name: tuple(one.label(name) for one in judgments) for name in settled},
    )


def _majority(judgments: Sequence[Judgment], name: str) -> Judgment | None:
    """The first judgment that says what most of them say; None where none does."""
    for label in (True, False):
        saying = [one for one in judgments if one.label(name) is label]
        against = [one for one in judgments if one.label(name) is (not label)]
        if len(saying) > len(against):
            return saying[0]
    return None


def _label(judgment: Judgment | None, name: str) -> Label:
    return None if judgment is None else judgment.label(name)


def _why(judgments: Sequence[Judgment], criterion: Criterion) -> str:
    """Why a criterion is left open: the judge's own reason, unless it did say something and then the contrary."""
    reasons = [one.unjudged[criterion] for one in judgments if criterion in one.unjudged]
    return reasons[0] if len(reasons) == len(judgments) else REPETITIONS_DISAGREE
