"""Forecast cost of a judge's run against the bill: 1,000 responses, four worlds, each with another seed.

The forecast is made from the requests before anything is sent; the bill is the server's own, after the run. The rule
and its few numbers (``eclose.calls.forecast``) are the same for all worlds, and none of them was looked at to find
them. Prices are such that a written token costs eight times a read one, so that what is written counts.

    python studies/campaigns/judge_forecast.py
    python studies/campaigns/judge_forecast.py --responses 100     a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings
from eclose.calls.model import TokenUsage
from eclose.calls.prices import ModelPrice
from eclose.calls.resolve import resolve_model_ref
from eclose.judging.run import forecast_judging
from eclose.judging.settings import JudgeSettings
from studies.campaigns.judge_http import judge_run, plant, serving, write_run
from studies.campaigns.runner_faults import bill
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eclose.calls.forecast import UsageForecast

GOAL = 0.10
PRICE = ModelPrice.of("1.25", "10")


class ForecastCase(NamedTuple):
    """World and settings of a forecast."""

    profile: str
    seed: int
    settings: JudgeSettings = JudgeSettings()

    def __str__(self) -> str:
        return f"{self.profile}, seed {self.seed}{', joint' if self.settings.joint else ''}"


FORECAST_CASES = (
    ForecastCase("2wiki", 31),
    ForecastCase("musique", 32),
    ForecastCase("hotpot", 33),
    ForecastCase("short-hard", 34, JudgeSettings(joint=True)),
)


class Comparison(NamedTuple):
    """Forecast and bill of a run."""

    forecast: UsageForecast
    calls: int
    billed: TokenUsage

    @property
    def ratio(self) -> float:
        """Forecast cost over billed cost."""
        assert self.forecast.cost is not None
        return self.forecast.cost / PRICE.cost(self.billed)

    def __str__(self) -> str:
        read = self.forecast.prompt_tokens / self.billed.prompt_tokens
        written = self.forecast.completion_tokens / self.billed.completion_tokens
        assert self.forecast.most_cost is not None
        most = self.forecast.most_cost / PRICE.cost(self.billed)
        return f"{self.forecast.calls:6,} {self.calls:6,} {read:8.3f} {written:8.3f} {self.ratio:8.3f} {most:8.1f}"


def compare(world: ForecastCase, responses: int, folder: Path) -> Comparison:
    planted = list(islice(plant([world.profile], world.seed), responses))
    sources = write_run(folder / f"run-{world.seed}", planted)
    prices = folder / "prices.json"
    with serving() as base_url:
        model = asyncio.run(resolve_model_ref(base_url, 30.0))
        prices.write_text(json.dumps({model.name: {"input": 1.25, "output": 10}}))
        expected = forecast_judging(sources, model, world.settings, CallSettings(prices=prices))
        judge_run(sources, base_url, folder / f"judged-{world.seed}", world.settings)
        totals = bill(base_url)["totals"]
    return Comparison(expected, totals["paid"], TokenUsage(totals["prompt_tokens"], totals["completion_tokens"]))


def furthest(ratios: Iterable[float]) -> float:
    return max(ratios, key=lambda ratio: abs(ratio - 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=1_000)
    options = parser.parse_args()
    print(f"{'':28} {'calls':>6} {'billed':>6}   expected / billed: read, written, cost; at most / billed")
    comparisons = []
    with tempfile.TemporaryDirectory() as folder:
        for world in FORECAST_CASES:
            comparisons.append(compare(world, options.responses, Path(folder)))
            print(f"{world!s:28} {comparisons[-1]}", flush=True)
    worst = furthest(comparison.ratio for comparison in comparisons)
    holds = abs(worst - 1) <= GOAL and all(comparison.calls == comparison.forecast.calls for comparison in comparisons)
    return print_result(
        name=f"expected cost of judging {options.responses:,} responses, worst of {len(FORECAST_CASES)} worlds",
        value=round(worst, 4),
        unit="x the bill",
        goal=f"within {100 * GOAL:.0f} %, and as many calls",
        holds=holds,
    )


if __name__ == "__main__":
    sys.exit(main())
