"""Count the labels that a judge did not give, by criterion and reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.core.judgment import EVIDENCE, NEVER_ASKED, Criterion, Judgment, reason_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NO_LABEL = "no usable reply"
"""Why the question about the evidence has no label: judgments keep no other reason."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Missing labels of one criterion for one kind of reason."""

    criterion: str
    """``L``, ``A``, ``C``, ``K``, ``Acc`` or ``evidence``."""
    kind: str
    """The kind of reason, as judgments name it."""
    responses: int
    example: str
    """The details given most often; empty where there are none."""

    @property
    def asked(self) -> bool:
        """Whether the judge was asked, or could have been: a missing reference is nobody's failure."""
        return self.kind not in NEVER_ASKED


@dataclass(frozen=True, slots=True)
class UnjudgedLabels:
    """All missing labels of a run."""

    responses: int
    """Judged responses."""
    missing: tuple[Missing, ...]

    @property
    def shares(self) -> Mapping[Criterion, float]:
        """The share of responses without a label, for each criterion that was asked."""
        return {
            criterion: sum(row.responses for row in self.missing if row.criterion == criterion and row.asked)
            / max(self.responses, 1)
            for criterion in Criterion
        }


def count_unjudged(judgments: Iterable[Judgment]) -> UnjudgedLabels:
    """Count the missing labels of judgments by criterion and reason, with the most frequent details of each."""
    responses = 0
    reasons: Counter[tuple[str, str]] = Counter()
    for judgment in judgments:
        responses += 1
        reasons.update((str(criterion), reason) for criterion, reason in judgment.unjudged.items())
        if judgment.evidence_sufficient is None:
            reasons[EVIDENCE, NO_LABEL] += 1
    return UnjudgedLabels(responses, tuple(_rows(reasons)))


def _rows(reasons: Counter[tuple[str, str]]) -> list[Missing]:
    details: dict[tuple[str, str], Counter[str]] = {}
    for (criterion, reason), count in sorted(reasons.items()):
        kind = reason_kind(reason)
        details.setdefault((criterion, kind), Counter())[reason.removeprefix(kind).removeprefix(": ")] += count
    order = [EVIDENCE, *map(str, Criterion)]
    return [
        Missing(criterion, kind, counts.total(), counts.most_common(1)[0][0])
        for (criterion, kind), counts in sorted(details.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    ]
