"""The responses that the page of a large run lists: failures first, spread over models, datasets and kinds of failure.

The page of a small run lists every response. From ``MAX_PAGE_RESPONSES`` on, it would be too large to open quickly, so
it lists a sample and says so; ``eclose view`` lists all responses of such a run.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eclose.core.identity import hash_sort_key
from eclose.diagnosis.report.explorer.filters import OUTCOME_WORDS, derive_response_facts, get_response_group
from eclose.judged_cases import JudgedCase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_PAGE_RESPONSES = 30_000
"""Responses that a page lists at most."""
FAILURE_SHARE = 0.8
"""Share of the sample that unreliable and undecided responses take at most; reliable ones have the rest."""

_RELIABLE = "reliable"
_Stratum: TypeAlias = tuple[str, str, str]


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
    """Return the responses that a page lists, of a run that is in memory."""
    limit = MAX_PAGE_RESPONSES if limit is None else limit
    return RunSample(tuple(cases)) if len(cases) <= limit else choose_report_sample(cases, limit)


def choose_report_sample(cases: Iterable[JudgedCase], limit: int = MAX_PAGE_RESPONSES) -> RunSample:
    """Return all responses up to a limit, otherwise a stratified sample of them; memory holds two limits of cases.

    Failures and undecided responses are all listed up to their share of the limit. Above it, every stratum (outcome,
    dataset and model) has the same number of places, and small strata are listed in full. Reliable responses take the
    places that are left. Within a stratum the hash of the response id decides, so the sample does not depend on the
    order of the run.
    """
    failures = _StratifiedSample(round(FAILURE_SHARE * limit))
    reliable = _StratifiedSample(limit)
    # Everything is kept until the limit is passed: a run that fits is listed in full, whatever its share of failures.
    first: list[JudgedCase] | None = []
    judged: Counter[str] = Counter()
    for position, case in enumerate(cases):
        outcome = derive_response_facts(case).outcome
        judged[outcome] += 1
        if first is not None:
            first.append(case)
            if len(first) > limit:
                first = None
        stratum = (outcome, get_response_group(case, "benchmark"), get_response_group(case, "model"))
        (reliable if outcome == _RELIABLE else failures).add(stratum, position, case)
    if first is not None:
        return RunSample(tuple(first))
    reliable.shrink(limit - len(failures))
    listed = sorted([*failures, *reliable])
    shown = Counter(outcome for _, outcome, _ in listed)
    outcomes = {outcome: (shown[outcome], judged[outcome]) for outcome in OUTCOME_WORDS if judged[outcome]}
    return RunSample(tuple(case for _, _, case in listed), judged.total() - len(listed), outcomes)


class _StratifiedSample:
    """At most ``limit`` cases; the largest stratum gives up a case for every one too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._largest = 0
        # Heaps with the highest hash on top: it leaves first.
        self._strata: dict[_Stratum, list[tuple[int, int, JudgedCase]]] = defaultdict(list)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[int, str, JudgedCase]]:
        """Yield position, outcome and case."""
        for (outcome, *_), heap in self._strata.items():
            yield from ((position, outcome, case) for _, position, case in heap)

    def add(self, stratum: _Stratum, position: int, case: JudgedCase) -> None:
        """Add a case, and remove one where there are too many."""
        heap = self._strata[stratum]
        entry = (-int(hash_sort_key("report sample", case.response.id)[:15], 16), position, case)
        if self._size == self._limit and len(heap) >= self._largest:
            # This stratum would be the largest: the usual case in a long run, without a look at the others.
            heapq.heappushpop(heap, entry)
            return
        heapq.heappush(heap, entry)
        self._size += 1
        self._largest = max(self._largest, len(heap))
        self.shrink(self._limit)

    def shrink(self, limit: int) -> None:
        """Remove cases of the largest strata until ``limit`` are left."""
        while self._size > limit:
            # Few strata: outcomes times datasets times models.
            largest = max(self._strata, key=lambda stratum: (len(self._strata[stratum]), stratum))
            heapq.heappop(self._strata[largest])
            self._size -= 1
            self._largest = max(map(len, self._strata.values()))
