"""Characteristics of a set of questions: the benchmark table of appendix A.1, for any file.

One pass over the instances, a few numbers kept for each. A value that a benchmark does not provide is None, never zero.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.core.answers import normalize_answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.core.instance import Instance

UNKNOWN = "unknown"
# Compared after normalisation, as sets of words: "Yes." is a yes, "yes and no" is neither.
_YES_NO = ({"yes"}, {"no"})


class Quartiles(NamedTuple):
    """A median with the 25th and 75th percentiles, by linear interpolation."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class BenchmarkCharacteristics:
    """One row of the table, with the composition of the questions."""

    benchmark: str | None
    n: int
    n_support_known: int
    """Instances with marked supporting passages: the basis of the next three columns."""
    supporting: Quartiles | None
    distractors: Quartiles | None
    support_density: Quartiles | None
    """Supporting passages per hundred passages."""
    context_words: Quartiles | None
    kinds: Mapping[str, int]
    hops: Mapping[str, int]
    answers: Mapping[str, int]
    """Instances by type of reference answer: ``yes/no``, ``other``, or ``none`` without a reference."""


def characterize_benchmarks(instances: Iterable[Instance]) -> list[BenchmarkCharacteristics]:
    """Return one row per benchmark in alphabetical order; instances without a benchmark come last."""
    groups: dict[str | None, _Group] = {}
    for instance in instances:
        groups.setdefault(instance.benchmark, _Group()).add(instance)
    ordered = sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or ""))
    return [group.row(benchmark) for benchmark, group in ordered]


@dataclass(slots=True)
class _Group:
    """The numbers of one benchmark, in arrays of four bytes a number: a million instances take 12 MB."""

    words: array[int] = field(default_factory=lambda: array("I"))
    supporting: array[int] = field(default_factory=lambda: array("I"))
    passages: array[int] = field(default_factory=lambda: array("I"))
    """Passages of each instance with marked support, parallel to ``supporting``."""
    kinds: Counter[str] = field(default_factory=Counter)
    hops: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    def add(self, instance: Instance) -> None:
        self.words.append(instance.context_words)
        # A test split marks no support; counting it as zero supporting passages would shift all three columns.
        if instance.support_ids is not None:
            self.supporting.append(len(set(instance.support_ids)))
            self.passages.append(len(instance.evidence))
        self.kinds[instance.kind or UNKNOWN] += 1
        self.hops[str(instance.hops or UNKNOWN)] += 1
        self.answers[classify_answer_type(instance.reference_answer)] += 1

    def row(self, benchmark: str | None) -> BenchmarkCharacteristics:
        supporting = np.asarray(self.supporting, dtype=np.float64)
        passages = np.asarray(self.passages, dtype=np.float64)
        return BenchmarkCharacteristics(
            benchmark,
            n=len(self.words),
            n_support_known=len(self.supporting),
            supporting=_quartiles(supporting),
            distractors=_quartiles(passages - supporting),
            support_density=_quartiles(100 * supporting / passages),
            context_words=_quartiles(np.asarray(self.words, dtype=np.float64)),
            kinds=dict(sorted(self.kinds.items())),
            hops=dict(sorted(self.hops.items())),
            answers=dict(sorted(self.answers.items())),
        )


def classify_answer_type(reference: str | None) -> str:
    """Return the type of a reference answer: ``yes/no``, ``other`` or ``none``."""
    if reference is None:
        return "none"
    return "yes/no" if set(normalize_answer(reference)) in _YES_NO else "other"


def _quartiles(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Quartiles | None:
    if not len(values):
        return None
    low, median, high = np.percentile(values, [25, 50, 75])
    return Quartiles(float(median), float(low), float(high))
