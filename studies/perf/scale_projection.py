"""Projection, not a measurement: calls, tokens, cost, time and disk of judging 10 thousand to 10 million responses.

Calls and tokens of a response are forecast from the judge's requests about responses of the paper's three profiles.
Rates and sizes are taken from the records of measurements, which are named beside them. All grow in proportion to the
responses. Prices are an example: 1 a million tokens read, 0.1 from the provider's cache, 4 a million written.

    python studies/perf/scale_projection.py
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.forecast import CHAT_MODEL_HABITS, drop_repeated_requests, forecast_usage
from eclose.calls.prices import ModelPrice
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.settings import JudgeSettings
from studies.campaigns.judge_http import plant
from studies.perf.result import print_result

SEED = 20_275
PROFILES = ("2wiki", "musique", "hotpot")
SIZES = (10_000, 1_000_000, 10_000_000)
PRICE = ModelPrice.of(1, 4, 0.1)
BATCH_FACTOR = 0.5
IN_FLIGHT = 64
LATENCIES = (0.2, 2, 5, 10)
"""Seconds until a reply; the rate of a process was measured at the first."""
EXPECTED_LATENCY = 2
"""Seconds of the claim: a hosted model's structured reply of some hundred tokens takes that long or longer."""
RECORDS = Path(__file__).parents[2] / "docs" / "records"
_OURS = re.compile(r"round \d+: ([\d,]+) calls, bare loop .*; ours ([\d.]+) s, ([\d.]+) s of CPU")


@dataclass(frozen=True)
class ResponseUsage:
    """Mean usage of a response, in calls, tokens and millionths of the currency."""

    calls: float
    read: float
    cached: float
    written: float
    cost: float
    cached_cost: float


def forecast_response(responses: int) -> ResponseUsage:
    """Return the mean usage of a response of the three profiles."""
    forecasts = []
    for profile in PROFILES:
        requests = (
            request
            for case in islice(plant([profile], SEED), responses)
            for request in build_judge_requests(case.instance, case.broken.response, JudgeSettings())
        )
        forecasts.append(forecast_usage(drop_repeated_requests(requests, "judge"), PRICE, CHAT_MODEL_HABITS))
    names = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "cost", "cached_cost")
    total = responses * len(PROFILES)
    return ResponseUsage(*(sum(getattr(forecast, name) for forecast in forecasts) / total for name in names))


def read_rate() -> tuple[float, float]:
    """Return the calls per second of one process and its processor seconds per call, from the first record."""
    first = (RECORDS / "judge_http.txt").read_text().partition("# An earlier run")[0]
    rounds = [(int(calls.replace(",", "")), float(wall), float(cpu)) for calls, wall, cpu in _OURS.findall(first)]
    return (
        statistics.median(calls / wall for calls, wall, _ in rounds),
        statistics.median(cpu / calls for calls, _, cpu in rounds),
    )


def read_result(name: str) -> dict[str, Any]:
    """Return the last line of a record."""
    result: dict[str, Any] = json.loads((RECORDS / name).read_text().rstrip().splitlines()[-1])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=120, help="responses of each profile that are forecast")
    usage = forecast_response(parser.parse_args().responses)
    rate, processor = read_rate()
    stored = read_result("scale_ledger.txt")["stored_bytes"]
    print(
        f"a response: {usage.calls:.2f} calls, {usage.read:,.0f} tokens read ({usage.cached / usage.read:.0%} shared "
        f"with an earlier prompt), {usage.written:,.0f} written; one process: {rate:.0f} calls/s, "
        f"{processor * 1e3:.1f} ms of processor time a call (judge_http.txt); ledger: {stored:,} bytes a call "
        "(scale_ledger.txt)\n"
    )
    print("| projected for judging | " + " | ".join(f"{size:,} responses" for size in SIZES) + " |")
    print("|---|" + "---|" * len(SIZES))
    rows = {
        "calls, million": (usage.calls / 1e6, ",.2f"),
        "tokens read, million": (usage.read / 1e6, ",.0f"),
        "tokens written, million": (usage.written / 1e6, ",.0f"),
        "cost at the example prices": (usage.cost / 1e6, ",.0f"),
        "the same with the provider's cache": (usage.cached_cost / 1e6, ",.0f"),
        "the same with `--batch`, without a cache": (BATCH_FACTOR * usage.cost / 1e6, ",.0f"),
        **{
            f"hours of one process, {IN_FLIGHT} calls in flight of {seconds} s": (
                usage.calls / min(rate, IN_FLIGHT / seconds) / 3_600,
                ",.2f",
            )
            for seconds in LATENCIES
        },
        "processor hours of all workers": (usage.calls * processor / 3_600, ",.2f"),
        "ledger, gigabytes": (usage.calls * stored / 1e9, ",.1f"),
    }
    for name, (each, form) in rows.items():
        print(f"| {name} | " + " | ".join(format(each * size, form) for size in SIZES) + " |")
    print()
    hours = usage.calls / min(rate, IN_FLIGHT / EXPECTED_LATENCY) / 3_600 * SIZES[1]
    return print_result(
        name="projected: hours in which one process judges a million responses",
        value=round(hours, 1),
        unit=f"hours, {IN_FLIGHT} calls in flight of {EXPECTED_LATENCY} s",
        goal="<= 24",
        holds=hours <= 24,
    )


if __name__ == "__main__":
    sys.exit(main())
