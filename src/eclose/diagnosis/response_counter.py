"""Counts, labels and a sample of the responses of a run that is read in one pass.

A run in parts is counted by several workers, each with a counter of its own; ``include`` joins them in the order of
the parts. The sample depends neither on the order of the responses nor on their division into parts.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from eclose.core.instance import Instance
from eclose.core.judgment import Judgment, StepJudgment
from eclose.core.response import Response, Trace
from eclose.diagnosis.compare import name_outcome
from eclose.diagnosis.counts import CountedResponse, DiagnosisCounts
from eclose.diagnosis.pair_responses import ResponseHashes, hash_response_id
from eclose.judged_cases import JudgedCase
from eclose.metrics.summary import UNKNOWN_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILURE_SHARE = 0.8
"""Share of a sample that unreliable and undecided responses take at most, where there are reliable ones to list."""
_RELIABLE = "reliable"

ResponsePosition: TypeAlias = tuple[int, ...]
"""Where the records of a response are; positions in ascending order are the order of the run."""


class ResponseStratum(NamedTuple):
    """A group of responses that a sample shares its places among."""

    outcome: str
    benchmark: str
    model: str

    @classmethod
    def of(cls, facts: CountedResponse) -> ResponseStratum:
        """Return the stratum of a counted response."""
        model = UNKNOWN_GROUP if facts.model is None else facts.model
        return cls(_name_outcome(facts.verdict), facts.benchmark or UNKNOWN_GROUP, model)


_name_outcome = lru_cache(None)(name_outcome)


class ResponseSample:
    """A bounded choice of responses: all of a run that fits, otherwise failures first.

    Unreliable and undecided responses are all chosen up to their share of the size, and above it where reliable ones
    leave places free. Every stratum has the same number of places, and small strata are chosen in full. Within a
    stratum the hash of the response id decides.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._failures, self._reliable = _StratifiedChoice(size), _StratifiedChoice(size)
        self.judged: Counter[str] = Counter()
        """Number of offered responses by outcome."""

    def add(self, stratum: ResponseStratum, response_id: str, position: ResponsePosition) -> None:
        """Offer a response."""
        self.judged[stratum.outcome] += 1
        choice = self._reliable if stratum.outcome == _RELIABLE else self._failures
        choice.add(stratum, (-hash_response_id(response_id), position))

    def include(self, other: ResponseSample, prefix: ResponsePosition = ()) -> None:
        """Offer the responses of another sample of the same size; the result is that of all their responses.

        Args:
            other: Sample of other responses.
            prefix: Put before their positions, to tell them from positions of the same value here.
        """
        self.judged.update(other.judged)
        for choice, part in ((self._failures, other._failures), (self._reliable, other._reliable)):
            for stratum, (number, position) in part:
                choice.add(stratum, (number, (*prefix, *position)))

    def choose(self) -> list[tuple[ResponsePosition, str]]:
        """Return the positions of the chosen responses in ascending order, each with its outcome."""
        reliable_share = self._size - round(FAILURE_SHARE * self._size)
        reliable = min(len(self._reliable), max(self._size - len(self._failures), reliable_share))
        chosen = [*self._failures.shrunk(self._size - reliable), *self._reliable.shrunk(reliable)]
        return sorted((position, stratum.outcome) for stratum, (_, position) in chosen)


_Entry: TypeAlias = tuple[int, ResponsePosition]


class _StratifiedChoice:
    """At most ``limit`` responses; the largest stratum gives up a response for every one too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = 0
        # Heaps of (minus hash, position), so that the highest hash leaves first.
        self._strata: dict[ResponseStratum, list[_Entry]] = defaultdict(list)
        # Size and name of the largest stratum, once the choice is full.
        self._largest: tuple[Any, ...] = (0,)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[ResponseStratum, _Entry]]:
        for stratum, heap in self._strata.items():
            yield from ((stratum, entry) for entry in heap)

    def add(self, stratum: ResponseStratum, entry: _Entry) -> None:
        """Add a response, and remove one where there are too many."""
        heap = self._strata[stratum]
        if self._length >= self._limit and (len(heap) + 1, stratum) > self._largest:
            # This stratum would be the largest: the usual case in a long run, without a look at the others.
            heapq.heappushpop(heap, entry)
            return
        heapq.heappush(heap, entry)
        self._length += 1
        self._shrink(self._limit)

    def shrunk(self, limit: int) -> _StratifiedChoice:
        """Return a copy with at most ``limit`` responses; this choice can still grow."""
        copy = _StratifiedChoice(limit)
        for stratum, entry in self:
            copy.add(stratum, entry)
        return copy

    def _shrink(self, limit: int) -> None:
        while self._length > limit:
            # Few strata: outcomes times datasets times models.
            largest = max(self._strata, key=lambda stratum: (len(self._strata[stratum]), stratum))
            heapq.heappop(self._strata[largest])
            self._length -= 1
        if self._length >= self._limit:
            self._largest = max((len(heap), stratum) for stratum, heap in self._strata.items())


class ResponseCounter:
    """Counts, sample, and where they are asked for labels and hashes of the responses of a run.

    Args:
        sample_size: Responses of the sample.
        keep_labels: Whether the labels of every response are kept, which takes 0.5 kB for each.
        keep_hashes: Whether hashes of every response are kept, which takes 33 bytes for each.
    """

    def __init__(self, sample_size: int, *, keep_labels: bool = False, keep_hashes: bool = False) -> None:
        self.counts, self.sample = DiagnosisCounts(), ResponseSample(sample_size)
        self.labels: list[JudgedCase] = []
        self.hashes = ResponseHashes() if keep_hashes else None
        self._keep_labels = keep_labels

    def add(self, facts: CountedResponse, position: ResponsePosition) -> None:
        """Count a response; ``position`` says where its records are."""
        self.counts.add(facts)
        self.sample.add(ResponseStratum.of(facts), facts.response_id, position)
        if self._keep_labels:
            self.labels.append(_without_texts(facts))
        if self.hashes is not None:
            self.hashes.add(facts)

    def include(self, other: ResponseCounter) -> None:
        """Add the responses of another counter after those of this one."""
        self.counts.include(other.counts)
        self.sample.include(other.sample)
        self.labels += other.labels
        if self.hashes is not None and other.hashes is not None:
            self.hashes.include(other.hashes)


_NO_ENTRIES: dict[Any, Any] = {}
_ONE_STEP = {label: (StepJudgment(True, label),) for label in (True, False, None)}


def _without_texts(facts: CountedResponse) -> JudgedCase:
    """Return a case with the five labels of a response and nothing else; equal parts are shared."""
    verdict = facts.verdict
    judgment = Judgment(
        facts.response_id,
        facts.judge,
        _ONE_STEP[verdict.locally_sound],
        aligned=verdict.aligned,
        closed=verdict.closed,
        complete=verdict.complete,
        correct=verdict.correct,
        unjudged=_NO_ENTRIES,
        reasons=_NO_ENTRIES,
        votes=_NO_ENTRIES,
    )
    instance = Instance(facts.instance_id, "", (), benchmark=facts.benchmark)
    return JudgedCase(instance, Response(facts.response_id, facts.instance_id, Trace(()), None), judgment)
