"""The responses that the page of a large run lists: failures first, spread over models, datasets and kinds of failure.

The page of a small run lists every response. From ``MAX_PAGE_RESPONSES`` on, it would be too large to open quickly, so
it lists a sample and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.diagnosis.compare import name_outcome
from eclose.diagnosis.report.explorer.filters import OUTCOME_WORDS, get_response_group
from eclose.diagnosis.response_sample import ResponseStratum, choose_responses
from eclose.judged_cases import JudgedCase
from eclose.stats.arrays import number_distinct_labels
from eclose.store.runs.record_file import hash_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PAGE_RESPONSES = 30_000
"""Responses that a page lists at most."""


@dataclass(frozen=True, slots=True)
class RunSample:
    """Responses that a page lists, of all responses of a run."""

    cases: tuple[JudgedCase, ...]
    """The listed responses with their judgments, in the order of the run."""
    left_out: int = 0
    """Judged responses that are not listed."""
    outcomes: Mapping[str, tuple[int, int]] | None = None
    """Listed and judged responses by outcome; None where that was not counted."""

    @property
    def total(self) -> int:
        """Number of judged responses of the run."""
        return len(self.cases) + self.left_out

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is listed and what is not; empty where every response is listed."""
        if not self.left_out:
            return ()
        listed = f"This page lists {len(self.cases):,} of {self.total:,} responses; its figures are of all of them."
        parts = [
            f"{OUTCOME_WORDS[outcome]} {shown:,} of {judged:,}"
            for outcome, (shown, judged) in (self.outcomes or {}).items()
        ]
        return (listed, f"Listed by outcome: {', '.join(parts)}.") if parts else (listed,)


def sample_report_cases(cases: Sequence[JudgedCase], limit: int | None = None) -> RunSample:
    """Return the responses that a page lists: all up to a limit, otherwise a sample of that size."""
    limit = MAX_PAGE_RESPONSES if limit is None else limit
    if len(cases) <= limit:
        return RunSample(tuple(cases))
    groups = [
        ResponseStratum(
            name_outcome(case.verdict), get_response_group(case, "benchmark"), get_response_group(case, "model")
        )
        for case in cases
    ]
    stratum, strata = number_distinct_labels(groups)
    chosen = choose_responses(strata, stratum, hash_ids([case.response.id for case in cases]), limit).tolist()
    judged, listed = (
        Counter(group.outcome for group in part) for part in (groups, [groups[position] for position in chosen])
    )
    outcomes = {outcome: (listed[outcome], judged[outcome]) for outcome in OUTCOME_WORDS if judged[outcome]}
    return RunSample(tuple(cases[position] for position in chosen), len(cases) - len(chosen), outcomes)
