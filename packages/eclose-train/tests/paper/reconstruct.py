"""Verdicts with the paper's counts: what a printed row of rates says, response by response.

The rates fix how many responses have each combination of L and G; which responses these are, and which of them are
correct, is arbitrary and changes no rate.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from eclose.values.response import ResponseSource
from eclose.values.verdict import SettledVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def verdicts(n: int, *, acc: int, lsr: int, gsr: int, trr: int) -> list[Verdict]:
    """So many correct, locally sound, globally sufficient and reliable responses among n."""
    flags = [(True, True)] * trr + [(True, False)] * (lsr - trr) + [(False, True)] * (gsr - trr)
    flags += [(False, False)] * (n - len(flags))
    assert len(flags) == n
    return [_verdict(sound, sufficient, index < acc) for index, (sound, sufficient) in enumerate(flags)]


@cache
def _verdict(sound: bool, sufficient: bool, correct: bool) -> Verdict:
    # Which global link breaks is not said; G alone is.
    return Verdict(locally_sound=sound, aligned=sufficient, closed=sufficient, correct=correct)


def with_links(n: int, *, acc: int, lsr: int, a: int, c: int, gsr: int, trr: int) -> list[Verdict]:
    """The same with the number of aligned and of closed responses."""
    links = [(True, True)] * gsr + [(True, False)] * (a - gsr) + [(False, True)] * (c - gsr)
    links += [(False, False)] * (n - len(links))
    sound = [True] * trr + [False] * (gsr - trr) + [True] * (lsr - trr)
    sound += [False] * (n - len(sound))
    assert len(links) == len(sound) == n
    return [Verdict(locally_sound=sound[i], aligned=links[i][0], closed=links[i][1], correct=i < acc) for i in range(n)]


def settled(
    labels: Iterable[Verdict], *, benchmark: str, model: str, method: str, seed: str = "Fixed"
) -> list[SettledVerdict]:
    """Verdicts as rows of a results table; the untuned backbone has neither method nor seed."""
    source = ResponseSource(model, None if method == "Backbone" else method, None if seed == "Fixed" else int(seed))
    return [
        SettledVerdict(f"{model}/{method}/{seed}/{benchmark}/{i}", f"{benchmark}/{i}", verdict, benchmark, source)
        for i, verdict in enumerate(labels)
    ]


def tally(counts: Mapping[Verdict, int]) -> list[Verdict]:
    """Each verdict as often as it was counted."""
    return [verdict for verdict, count in counts.items() for _ in range(count)]
