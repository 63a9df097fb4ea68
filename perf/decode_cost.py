"""Time of decoding in this process on the CPU, against ``generate`` of Transformers on the same weights and prompts.

SmolLM2-135M continues questions with passages, padded in one batch, greedily in fp32. The tokens must be the same.
Reading the prompts costs both the same and is subtracted. Shortest of the rounds, in turn.

    python perf/decode_cost.py
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from perf.result import print_result
from perf.tree_cost import packaged_weights

from eclose.models.interface import Request
from eclose.models.load_weights import load_causal_model, load_tokenizer
from eclose.models.local.chat_template import tokenize_prompt
from eclose.models.local.fast_decoding import decode_fast
from eclose.protocol.response_prompt import ResponsePrompt
from eclose.world.make.instances import make_world_items

GOAL = 3.0


def pad_prompts(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens of world questions, padded on the left, and their mask; both (prompt, token)."""
    tokenizer, prompt = load_tokenizer(packaged_weights()), ResponsePrompt(0)
    items = islice(make_world_items("short-easy", 1), count)
    rows = [
        tokenize_prompt(tokenizer, Request(tuple(prompt.messages(item.instance.question, item.instance.evidence))))
        for item in items
    ]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    return ids, torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])


def decode(model: Any, ids: torch.Tensor, mask: torch.Tensor, new: int, *, fast: bool) -> tuple[float, torch.Tensor]:
    """Return the seconds of decoding without those of the prompt, and the tokens."""
    seconds = []
    for count in (1, new):
        began = perf_counter()
        prepared: AbstractContextManager[dict[str, Any]] = (
            decode_fast(model, ids.shape[1] + count) if fast else nullcontext({})
        )
        with prepared as settings:
            tokens = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=count,
                min_new_tokens=count,
                pad_token_id=0,
                **settings,
            )
        seconds.append(perf_counter() - began)
    return seconds[1] - seconds[0], tokens


def main() -> int:
    """Measure both ways in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--new", type=int, default=48, help="new tokens of each prompt")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    ids, mask = pad_prompts(options.prompts)
    model = load_causal_model(packaged_weights(), dtype="float32").eval()
    best = {False: float("inf"), True: float("inf")}
    equal = True
    for _ in range(options.rounds):
        plain, expected = decode(model, ids, mask, options.new, fast=False)
        fast, tokens = decode(model, ids, mask, options.new, fast=True)
        best = {False: min(best[False], plain), True: min(best[True], fast)}
        equal &= torch.equal(expected, tokens)
    ratio = best[False] / best[True]
    return print_result(
        name="decoding on the CPU against Transformers",
        value=round(ratio, 2),
        unit=f"times as fast; {best[True]:.1f} s against {best[False]:.1f} s for {options.new} tokens of "
        f"{options.prompts} prompts with {ids.shape[1]} tokens; tokens {'equal' if equal else 'differ'}",
        goal=f">= {GOAL:g}, tokens equal",
        holds=ratio >= GOAL and equal,
    )


if __name__ == "__main__":
    sys.exit(main())
