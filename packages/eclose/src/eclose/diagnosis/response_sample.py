"""Responses that are shown of a large run: failures first, spread over outcomes, datasets and systems.

The choice depends neither on the order of the responses nor on anything but their ids within a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eclose.stats.arrays import Codes, Indices

FAILURE_SHARE = 0.8
"""Share of a sample that unreliable and undecided responses take at most, where there are reliable ones to list."""
_RELIABLE = "reliable"


class ResponseStratum(NamedTuple):
    """A group of responses that a sample shares its places among."""

    outcome: str
    benchmark: str
    model: str


def choose_responses(
    strata: Sequence[ResponseStratum], stratum: Codes, hashes: NDArray[np.uint64], size: int
) -> Indices:
    """Return the rows of some responses in ascending order: all that fit, otherwise failures first.

    Unreliable and undecided responses are all chosen up to their share of the size, and above it where reliable ones
    leave places free. Every stratum has the same number of places, and small strata are chosen in full. Within a
    stratum the lowest hashes are chosen.

    Args:
        strata: The strata that occur.
        stratum: Position in it of each response's stratum.
        hashes: Hash of the id of each response.
        size: Number of places.
    """
    # By name: the first ones get the places that do not divide evenly.
    order = sorted(range(len(strata)), key=strata.__getitem__)
    rank = np.empty(len(strata), np.intp)
    rank[order] = np.arange(len(strata))
    is_reliable = np.array([each.outcome == _RELIABLE for each in strata], bool)[stratum]
    failures, reliable = np.flatnonzero(~is_reliable), np.flatnonzero(is_reliable)
    reliable_share = size - round(FAILURE_SHARE * size)
    places = min(len(reliable), size, max(size - min(len(failures), size), reliable_share))
    chosen = (
        _spread_places(rows, rank[stratum[rows]], hashes[rows], limit)
        for rows, limit in ((failures, size - places), (reliable, places))
    )
    return np.sort(np.concatenate(list(chosen)))


def _spread_places(rows: Indices, rank: Indices, hashes: NDArray[np.uint64], limit: int) -> Indices:
    """Return at most ``limit`` rows, the largest strata giving up those too many."""
    sizes = np.bincount(rank)
    # Of responses with one id the last is chosen, as from several runs.
    order = np.lexsort((-rows, hashes, rank))
    starts = np.cumsum(sizes) - sizes
    place = np.arange(len(rows)) - starts[rank[order]]
    chosen: Indices = rows[order][place < _divide_places(sizes, limit)[rank[order]]]
    return chosen


def _divide_places(sizes: Indices, limit: int) -> Indices:
    """Return the places of each stratum: as even as their sizes allow."""
    if sizes.sum() <= limit:
        return sizes
    low, high = 0, int(sizes.max())
    # The greatest number of places for each stratum that the limit allows.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= limit else (low, middle)
    places = np.minimum(sizes, low)
    places[np.flatnonzero(sizes > low)[: limit - int(places.sum())]] += 1
    return places
