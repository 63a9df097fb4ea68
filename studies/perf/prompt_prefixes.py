"""Share of the judge's prompt tokens that a provider with a prefix cache bills as cached, computed and measured.

A prompt begins with the instructions of its question, then come question, evidence and steps: what several responses to
one question share stands before what differs. The provider is taken to cache as OpenAI does: prefixes of 1,024 tokens
and more, in steps of 128. A token is taken to have four characters.

The share is computed from the requests in order. Then a run is judged by the world's server, which bills cached
prefixes: calls are sent concurrently, so some prompts arrive before the prefix they share is cached. The tokens in the
run's manifest must be those of the server's bill.

    python studies/perf/prompt_prefixes.py
    python studies/perf/prompt_prefixes.py --responses 30 --profiles 2wiki     a quick look
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import urllib.request
from collections import Counter
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.client import CallSettings
from eclose.calls.forecast import drop_repeated_requests, split_prompt
from eclose.calls.tokens import CHARACTERS, MINIMUM_TOKENS, PromptPrefixCache
from eclose.judging.judge_response import build_judge_requests
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from studies.campaigns.judge_http import A_QUESTION, plant, serving, write_run
from studies.perf.result import print_result

SEED = 1
GOAL = 0.3
CONCURRENCY = 8
PRICES = "world: {input: 1, cached_input: 0.1, output: 4}\n"
"""Prices with the ratios of common models; only their ratio matters here."""
UNCACHED_PRICES = "world: {input: 1, output: 4}\n"


def compute_cached(profile: str, responses: int) -> tuple[Counter[str], Counter[str]]:
    """Return the prompt tokens of each question to the judge, and those that are read from the cache."""
    cache = PromptPrefixCache()
    total: Counter[str] = Counter()
    cached: Counter[str] = Counter()
    requests = (
        request
        for case in islice(plant([profile], SEED), responses)
        for request in build_judge_requests(case.instance, case.broken.response, JudgeSettings())
    )
    for request in drop_repeated_requests(requests, "world"):  # the ledger answers repetitions
        parts = split_prompt(request)
        tokens = sum(map(len, parts)) // CHARACTERS
        total[parts[0]] += tokens
        cached[parts[0]] += cache.count_cached(parts, tokens)
        cache.add(parts)
    return total, cached


def judge(folder: Path, profile: str, responses: int, prices: str) -> tuple[dict[str, int], dict[str, int]]:
    """Judge a run by a server with a prompt cache; return the calls of its manifest and the totals of the bill."""
    inputs = write_run(folder, islice(plant([profile], SEED), responses))
    price_file = folder / "prices.yaml"
    price_file.write_text(prices)
    calls = CallSettings(concurrency=CONCURRENCY, prices=price_file, slow_start=False)
    with serving("--latency", "0.02", prompt_cache=MINIMUM_TOKENS) as base_url:
        result = asyncio.run(judge_responses(inputs, base_url, folder, JudgeSettings(), calls))
        with urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/bill?keys=0") as answer:
            bill: dict[str, int] = json.load(answer)["totals"]
    return dict(result.manifest.calls), bill


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=120)
    parser.add_argument("--profiles", nargs="+", default=["2wiki", "musique", "hotpot"])
    options = parser.parse_args()
    shares, measured, exact = [], [], []
    for profile in options.profiles:
        total, cached = compute_cached(profile, options.responses)
        shares.append(cached.total() / total.total())
        by_question = ", ".join(f"{name} {cached[name] / total[name]:.0%}" for name in total)
        print(f"{profile}: {total.total():,} tokens, {shares[-1]:.1%} cached ({by_question})", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            calls, bill = judge(Path(folder) / "cached", profile, options.responses, PRICES)
            full, _ = judge(Path(folder) / "full", profile, options.responses, UNCACHED_PRICES)
        measured.append(calls["cached_tokens"] / calls["prompt_tokens"])
        exact.append(all(calls[name] == bill[name] for name in ("prompt_tokens", "cached_tokens")))
        print(
            f"{profile}, judged over HTTP with {CONCURRENCY} calls at once: {calls['prompt_tokens']:,} tokens (words), "
            f"{measured[-1]:.1%} cached; cost {calls['cost'] / full['cost']:.2f} of the cost without a cached price; "
            f"manifest and bill {'the same' if exact[-1] else 'DIFFERENT'}",
            flush=True,
        )
    return print_result(
        name=f"prompt tokens of the judge from a prefix cache, {A_QUESTION} responses to a question",
        value=round(min(measured), 3),
        unit=f"of the tokens of a judged run, the least of {len(shares)} profiles; {min(shares):.3f} computed",
        goal=f">= {GOAL} computed and measured; the manifest as the bill",
        holds=min(*shares, *measured) >= GOAL and all(exact),
    )


if __name__ == "__main__":
    sys.exit(main())
