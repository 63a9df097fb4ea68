"""Share of the judge's prompt tokens that a provider with a prefix cache bills as cached.

A prompt begins with the instructions of its question, then come question, evidence and steps: what several responses to
one question share stands before what differs. The provider is taken to cache as OpenAI does: prefixes of 1,024 tokens
and more, in steps of 128. A token is taken to have four characters.

    python perf/prompt_prefixes.py
    python perf/prompt_prefixes.py --responses 30 --profiles 2wiki     a quick look
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from campaigns.judge_http import A_QUESTION, plant
from perf.result import print_result

from eclose.judging.judge_response import build_judge_requests
from eclose.judging.settings import JudgeSettings

SEED = 1
GOAL = 0.3
MINIMUM, STEP = 1_024, 128
"""Tokens of the shortest prefix that is cached, and of the steps above it."""
CHARACTERS = 4
"""Characters of a token."""


def measure(profile: str, responses: int) -> tuple[Counter[str], Counter[str]]:
    """Return the prompt tokens of each question to the judge, and those that are read from the cache."""
    prefixes: set[int] = set()
    prompts: set[str] = set()
    total: Counter[str] = Counter()
    cached: Counter[str] = Counter()
    for case in islice(plant([profile], SEED), responses):
        for request in build_judge_requests(case.instance, case.broken.response, JudgeSettings()):
            assert request.schema is not None
            prompt = "\0".join([request.schema.name, *(message["content"] for message in request.messages)])
            if prompt in prompts:  # the ledger answers it
                continue
            prompts.add(prompt)
            tokens = len(prompt) // CHARACTERS
            ends = range(MINIMUM, tokens + 1, STEP)
            hashes = [hash(prompt[: end * CHARACTERS]) for end in ends]
            total[request.schema.name] += tokens
            cached[request.schema.name] += max(
                (end for end, prefix in zip(ends, hashes, strict=True) if prefix in prefixes), default=0
            )
            prefixes.update(hashes)
    return total, cached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=120)
    parser.add_argument("--profiles", nargs="+", default=["2wiki", "musique", "hotpot"])
    options = parser.parse_args()
    shares = []
    for profile in options.profiles:
        total, cached = measure(profile, options.responses)
        shares.append(cached.total() / total.total())
        by_question = ", ".join(f"{name} {cached[name] / total[name]:.0%}" for name in total)
        print(f"{profile}: {total.total():,} tokens, {shares[-1]:.1%} cached ({by_question})", flush=True)
    return print_result(
        name=f"prompt tokens of the judge from a prefix cache, {A_QUESTION} responses to a question",
        value=round(min(shares), 3),
        unit=f"of the tokens, the least of {len(shares)} profiles",
        goal=f">= {GOAL}",
        holds=min(shares) >= GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
