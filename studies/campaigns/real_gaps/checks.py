"""Checks of the traces against their passages, and of surface features against the labels."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from eclose.stats.ranking import ScoredResponses, auroc

from .records import TraceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eclose.values.instance import Instance

    from .records import RealTrace

CONCLUSION = re.compile(r"(thus|so|therefore|hence)\b", re.IGNORECASE)
# Words that open a step with a capital and are no names.
_OPENINGS = frozenset({"among", "apart", "besides", "films", "hence", "so", "that", "therefore", "this", "thus"})

FEATURES: dict[str, Callable[[RealTrace], float]] = {
    "steps": lambda trace: len(trace.steps),
    "conclusion word": lambda trace: CONCLUSION.match(trace.steps[-1]) is not None,
    "words of the trace": lambda trace: sum(len(step.split()) for step in trace.steps),
    "words of the answer": lambda trace: len(trace.answer.split()),
}
"""Surface features that say nothing about dependencies; a set on which they separate the kinds tests shortcuts."""


def find_unsupported_terms(trace: RealTrace, instance: Instance) -> list[str]:
    """Return capitalised words and numbers of the steps that neither the question nor a passage contains."""
    vocabulary = set(_split_folded(instance.question))
    for passage in instance.evidence:
        vocabulary.update(_split_folded(f"{passage.title} {passage.text}"))
    terms = [word for step in trace.steps for word in re.findall(r"\w+", step) if not word[0].islower()]
    return [term for term in terms if term.lower() not in _OPENINGS and not vocabulary.issuperset(_split_folded(term))]


def measure_shortcuts(traces: Sequence[RealTrace], failing: Sequence[TraceKind]) -> dict[str, float | None]:
    """Return the AUROC of every surface feature between the failing kinds and the reliable traces.

    0.5 is chance; above it, a low value of the feature goes with failure.
    """
    failed = np.array([trace.kind in failing for trace in traces])
    reliable = np.array([trace.kind is TraceKind.RELIABLE for trace in traces])
    return {
        name: auroc(ScoredResponses(np.array([float(feature(trace)) for trace in traces]), failed, reliable))
        for name, feature in FEATURES.items()
    }


def _split_folded(text: str) -> list[str]:
    """Return the words of a text in lower case, accents split off from their letters."""
    return re.findall(r"\w+", unicodedata.normalize("NFKD", text).lower())
