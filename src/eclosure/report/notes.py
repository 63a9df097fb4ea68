"""What a report says beside the figures: what it is called, how far its judge can be trusted, what is not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eclosure.metrics.rates import Metric
from eclosure.metrics.validation import LabelRow
from eclosure.report.against import Against
from eclosure.stats.intervals import Estimate

NOT_VALIDATED = "This judge has not been validated against people on your data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """All of it optional; without a validation every format says that there is none."""

    title: str = "Which responses are unreliable, and why"
    corrected: Mapping[Metric, Estimate] | None = None
    """Rates of all responses as labels of people correct them."""
    validation: str | None = None
    """How the judge was held against people, in a sentence."""
    agreement: Sequence[LabelRow] = ()
    """How far it agrees with them, label by label."""
    left_out: Sequence[tuple[str, str]] = ()
    """Responses that could not be diagnosed, by id, with the reason."""
    stale: Sequence[str] = ()
    """Files that are not those that were judged, a sentence each; shown first in every format."""
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Records of the input files that were not used, by file and reason."""
    checked: bool | None = None
    """Whether manifests say what the judgments were made from; None for cases that come from no folder."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Where the figures come from: a run, a date, a version."""
    against: Against | None = None
    """Another run that this one is held against."""

    @property
    def trust(self) -> str:
        """What to tell of the judge."""
        return self.validation or f"{NOT_VALIDATED}: label a hundred responses to learn how far it can be trusted."

    @property
    def stale_told(self) -> tuple[str, ...]:
        """The warning about stale judgments; nothing where they belong to their files."""
        if not self.stale:
            return ()
        return ("Stale judgments: the figures may be of other responses than those shown.", *self.stale)

    @property
    def left_out_by_reason(self) -> dict[str, int]:
        """How many are missing, and why."""
        return dict(sorted(Counter(reason for _, reason in self.left_out).items()))
