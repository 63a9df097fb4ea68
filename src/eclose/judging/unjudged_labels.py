"""Counts of the labels that a judge did not give, by criterion and reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.judgment import (
    EVIDENCE,
    NEVER_ASKED_REASONS,
    Criterion,
    Judgment,
    missing_reason_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_USABLE_REPLY = "no usable reply"
"""Reason for a missing label on the evidence in files that record none."""


@dataclass(frozen=True, slots=True)
class MissingLabelCount:
    """The missing labels of one criterion for one kind of reason."""

    criterion: str
    """``L``, ``A``, ``C``, ``K``, ``Acc`` or ``evidence``."""
    kind: str
    """Kind of the reason, without its details."""
    responses: int
    example: str
    """Most frequent details of the reason; empty where it has none."""

    @property
    def asked(self) -> bool:
        """Whether a label was requested; a question without a reference does not count against the judge."""
        return self.kind not in NEVER_ASKED_REASONS


@dataclass(frozen=True, slots=True)
class UnjudgedLabels:
    """The missing labels of a run."""

    responses: int
    """Number of judged responses."""
    missing: tuple[MissingLabelCount, ...]
    without_any: int = 0
    """Number of responses without any label, also on the evidence."""

    @property
    def shares(self) -> Mapping[Criterion, float]:
        """Share of responses without a requested label, by criterion."""
        return {
            criterion: sum(row.responses for row in self.missing if row.criterion == criterion and row.asked)
            / max(self.responses, 1)
            for criterion in Criterion
        }


def count_unjudged_labels(judgments: Iterable[Judgment]) -> UnjudgedLabels:
    """Count the missing labels of judgments by criterion and reason, with the most frequent details of each."""
    responses = without_any = 0
    reasons: Counter[tuple[str, str]] = Counter()
    for judgment in judgments:
        responses += 1
        without_any += all(judgment.label(name) is None for name in (EVIDENCE, *Criterion))
        missing = judgment.missing_reasons
        reasons.update(missing.items())
        if judgment.evidence_sufficient is None and EVIDENCE not in missing:
            reasons[EVIDENCE, NO_USABLE_REPLY] += 1
    return UnjudgedLabels(responses, tuple(_build_rows(reasons)), without_any)


def _build_rows(reasons: Counter[tuple[str, str]]) -> list[MissingLabelCount]:
    details: dict[tuple[str, str], Counter[str]] = {}
    # Sorted, so that of two equally frequent details the same one is the example in every run.
    for (criterion, reason), count in sorted(reasons.items()):
        kind = missing_reason_kind(reason)
        details.setdefault((criterion, kind), Counter())[reason.removeprefix(kind).removeprefix(": ")] += count
    # Evidence first, then the criteria in the order of the paper.
    order = [EVIDENCE, *map(str, Criterion)]
    return [
        MissingLabelCount(criterion, kind, counts.total(), counts.most_common(1)[0][0])
        for (criterion, kind), counts in sorted(details.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]
