"""How the time of a function grows with its text, by the processor's clock: a busy machine changes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = 8
"""Proportional time grows by this much, quadratic time by its square; half way between them is the limit."""


def grows_in_proportion(function: Callable[[str], object], part: str, repeats: int) -> bool:
    """Whether a text eight times as long takes clearly less than 64 times as long; the quickest of three counts."""

    def seconds(text: str) -> float:
        began = time.process_time()
        function(text)
        return time.process_time() - began

    short, long = (min(seconds(part * many) for _ in range(3)) for many in (repeats // TIMES, repeats))
    return long < TIMES**1.5 * max(short, 0.001)
