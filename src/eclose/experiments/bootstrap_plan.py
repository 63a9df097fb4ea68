"""Resamples and seeds of the intervals of an experiment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BootstrapDraws:
    """Number of resamples and the seed that they are drawn with."""

    resamples: int
    seed: int

    def __str__(self) -> str:
        """Return ``5,000 resamples, seed 2027``."""
        return f"{self.resamples:,} resamples, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class BootstrapPlan:
    """Draws of each kind of interval. Defaults are those of the paper (appendices D.1, D.2, D.5.2, D.6 and D.7)."""

    main: BootstrapDraws = BootstrapDraws(resamples=5_000, seed=2027)
    ablations: BootstrapDraws = BootstrapDraws(resamples=10_000, seed=2031)
    switches: BootstrapDraws = BootstrapDraws(resamples=10_000, seed=20260915)
    audit: BootstrapDraws = BootstrapDraws(resamples=10_000, seed=42)
    judge: BootstrapDraws = BootstrapDraws(resamples=2_000, seed=42)
