"""The majority of several judgments of one response by the same judge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eclose.core.judgment import EVIDENCE, REPETITIONS_DISAGREE, Criterion, Judgment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.core.three_valued import Label


def take_majority(judgments: Sequence[Judgment]) -> Judgment:
    """Return the majority label of every criterion, with the explanations of the first judgment that gives it.

    Repetitions without a label do not vote. A tie leaves the label open.
    """
    if len(judgments) == 1:
        return judgments[0]
    # One representative judgment per criterion: texts must come from a judgment that gave the winning label.
    winners = {name: _find_winner(judgments, name) for name in (*Criterion, EVIDENCE)}
    sound, aligned = winners[Criterion.LOCAL_SOUNDNESS], winners[Criterion.ALIGNMENT]
    closed, evidence = winners[Criterion.CLOSURE], winners[EVIDENCE]
    # The evidence is no criterion, so a tie about it needs no reason.
    decided = {criterion: winner for criterion in Criterion if (winner := winners[criterion]) is not None}
    return replace(
        judgments[0],
        steps=() if sound is None else sound.steps,
        aligned=_label(aligned, Criterion.ALIGNMENT),
        closed=_label(closed, Criterion.CLOSURE),
        complete=_label(winners[Criterion.COMPLETENESS], Criterion.COMPLETENESS),
        correct=_label(winners[Criterion.CORRECTNESS], Criterion.CORRECTNESS),
        unjudged={
            criterion: _explain_missing(judgments, criterion) for criterion in Criterion if criterion not in decided
        },
        reasons={name: winner.reasons[name] for name, winner in decided.items() if name in winner.reasons},
        pursued=None if aligned is None else aligned.pursued,
        established=None if closed is None else closed.established,
        evidence_sufficient=_label(evidence, EVIDENCE),
        missing_evidence=None if evidence is None else evidence.missing_evidence,
        votes={name: tuple(judgment.label(name) for judgment in judgments) for name in winners},
    )


def _find_winner(judgments: Sequence[Judgment], name: str) -> Judgment | None:
    """Return the first judgment with the majority label; None where there is no majority."""
    for label in (True, False):
        supporters = [judgment for judgment in judgments if judgment.label(name) is label]
        opponents = [judgment for judgment in judgments if judgment.label(name) is (not label)]
        if len(supporters) > len(opponents):
            return supporters[0]
    return None


def _label(judgment: Judgment | None, name: str) -> Label:
    return None if judgment is None else judgment.label(name)


def _explain_missing(judgments: Sequence[Judgment], criterion: Criterion) -> str:
    """Return the reason of the judge where no repetition gave a label, else that the repetitions disagree."""
    reasons = [judgment.unjudged[criterion] for judgment in judgments if criterion in judgment.unjudged]
    return reasons[0] if len(reasons) == len(judgments) else REPETITIONS_DISAGREE
