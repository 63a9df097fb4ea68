"""Pairs of responses of two large runs, found by hashes of their ids, questions and sources.

The pairs are those of ``compare_runs_by_question``: responses to one question are partners where they have one id, else
where they are the only ones of one source, or the only ones at all.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eclose.core.identity import canonical_bytes
from eclose.diagnosis.compare import RESPONSE_CLASSES, ResponseClass, classify_response
from eclose.diagnosis.counts import VERDICT_CODES, CountedResponse
from eclose.metrics.rates import VERDICTS
from eclose.store.records.seen_ids import hash64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from eclose.stats.arrays import Indices

# Class of each verdict, as its number in ``RESPONSE_CLASSES``.
_CLASS_OF_VERDICT = np.array([RESPONSE_CLASSES.index(classify_response(verdict)) for verdict in VERDICTS])
_ODD = np.uint64(0x9E3779B97F4A7C15)


class ResponseHashes:
    """Hashes and verdicts of the responses of a run, in its order: 33 bytes for each response."""

    def __init__(self) -> None:
        self.ids, self.questions, self.sources = array("Q"), array("Q"), array("Q")
        self.facts = array("Q")
        """Hashes of all that was counted of a response apart from its judgment."""
        self.verdicts = array("B")

    def add(self, facts: CountedResponse) -> None:
        """Add a response."""
        self.ids.append(hash_response_id(facts.response_id))
        self.questions.append(hash64(canonical_bytes([facts.benchmark, facts.instance_id])))
        self.sources.append(facts.source_hash)
        self.facts.append(_hash_facts(facts))
        self.verdicts.append(VERDICT_CODES[facts.verdict])

    def include(self, other: ResponseHashes) -> None:
        """Add the responses of another run, or part, after those of this one."""
        for own, others in zip(vars(self).values(), vars(other).values(), strict=True):
            own.extend(others)


def hash_response_id(response_id: str) -> int:
    """Return the hash of a response id."""
    return hash64(response_id.encode("utf-8", "surrogatepass"))


def _hash_facts(facts: CountedResponse) -> int:
    known = (facts.response_id, facts.instance_id, facts.benchmark, facts.model, facts.question_hashes, facts.matched)
    return hash64(repr((*known, facts.matched_with_aliases, facts.without_trace, facts.prose_trace)).encode())


class ClassTransitions(NamedTuple):
    """Classes of paired responses."""

    counts: Mapping[tuple[ResponseClass, ResponseClass], int]
    """Number of pairs by class in the base run and class in this run."""
    partners: Mapping[str, ResponseClass]
    """Class of the partner of some responses by response id; those without a partner are not in it."""


def count_transitions(run: ResponseHashes, base: ResponseHashes, listed: Iterable[str]) -> ClassTransitions:
    """Pair the responses of two runs, and count the pairs by their classes.

    Args:
        run: Hashes of the run.
        base: Hashes of the base run.
        listed: Ids of the responses of the run whose partners are wanted.
    """
    run_rows, base_rows = _pair_rows(run, base)
    new, old = (
        _CLASS_OF_VERDICT[np.frombuffer(side.verdicts, np.uint8)[rows]]
        for side, rows in ((run, run_rows), (base, base_rows))
    )
    size = len(RESPONSE_CLASSES)
    table = np.bincount(old * size + new, minlength=size * size).reshape(size, size)
    counts = {
        (RESPONSE_CLASSES[row], RESPONSE_CLASSES[column]): int(table[row, column])
        for row, column in zip(*np.nonzero(table), strict=True)
    }
    classes = dict(zip(_values(run.ids)[run_rows].tolist(), old.tolist(), strict=True))
    partners = {id_: RESPONSE_CLASSES[classes[hash_]] for id_ in listed if (hash_ := hash_response_id(id_)) in classes}
    return ClassTransitions(counts, partners)


def _values(hashes: array[int]) -> NDArray[np.uint64]:
    return np.frombuffer(hashes, np.uint64) if hashes else np.empty(0, np.uint64)


def _pair_rows(run: ResponseHashes, base: ResponseHashes) -> tuple[Indices, Indices]:
    run_questions, base_questions = _values(run.questions), _values(base.questions)
    # The only responses to a question in both runs are partners, whatever their ids.
    pairs = [_match_rows(run_questions, base_questions, _find_unique(run_questions), _find_unique(base_questions))]
    run_free, base_free = _exclude(len(run_questions), len(base_questions), pairs)
    _, run_rows, base_rows = np.intersect1d(_values(run.ids), _values(base.ids), return_indices=True)
    same = (run_questions[run_rows] == base_questions[base_rows]) & run_free[run_rows] & base_free[base_rows]
    pairs.append((run_rows[same], base_rows[same]))
    run_free, base_free = _exclude(len(run_questions), len(base_questions), pairs)
    # Among the others, the only responses of one source to a question.
    run_sources, base_sources = _values(run.sources), _values(base.sources)
    run_keys, base_keys = run_questions * _ODD + run_sources, base_questions * _ODD + base_sources
    run_left, base_left = np.flatnonzero(run_free & (run_sources > 0)), np.flatnonzero(base_free & (base_sources > 0))
    run_single = run_left[_find_unique(run_keys[run_left])]
    base_single = base_left[_find_unique(base_keys[base_left])]
    pairs.append(_match_rows(run_keys, base_keys, run_single, base_single))
    return np.concatenate([rows for rows, _ in pairs]), np.concatenate([rows for _, rows in pairs])


def _find_unique(values: NDArray[np.uint64]) -> Indices:
    _, rows, counts = np.unique(values, return_index=True, return_counts=True)
    unique: Indices = rows[counts == 1]
    return unique


def _match_rows(
    run_keys: NDArray[np.uint64], base_keys: NDArray[np.uint64], run_rows: Indices, base_rows: Indices
) -> tuple[Indices, Indices]:
    """Return the rows with equal keys, among some rows whose keys differ from each other."""
    _, run_matches, base_matches = np.intersect1d(
        run_keys[run_rows], base_keys[base_rows], assume_unique=True, return_indices=True
    )
    return run_rows[run_matches], base_rows[base_matches]


def _exclude(
    run_size: int, base_size: int, pairs: list[tuple[Indices, Indices]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    run_free, base_free = np.ones(run_size, bool), np.ones(base_size, bool)
    for run_rows, base_rows in pairs:
        run_free[run_rows] = False
        base_free[base_rows] = False
    return run_free, base_free
