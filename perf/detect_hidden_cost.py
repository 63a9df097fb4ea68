"""Cost of scoring alignment and closure on hidden states, against the bare forward of the same texts.

The bare forward runs all blocks of SmolLM2-135M on question, trace and answer, padded in the same batches, without the
head over the vocabulary: the least that reading a response costs a model. Scoring adds the tokenizer, the two states
and the two heads, and leaves out the blocks behind the layer. It is also measured with all blocks, which shows what
scoring adds. CPU time, one thread, the shortest of three rounds in turn, fp32.

    python perf/detect_hidden_cost.py
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the helpers of perf, campaigns and tests

from perf.result import print_result
from perf.tree_cost import packaged_weights

from eclose.detection.local_detector import BATCH_TOKENS
from eclose.detection.verifier.heads import VerifierInput
from eclose.detection.verifier.hidden import DEFAULT_HEADS, HiddenVerifier
from eclose.detection.verifier.hidden_states import HiddenStateModel, find_hidden_model
from eclose.detection.verifier.linear import LinearHead
from eclose.models.load_weights import load_causal_model
from eclose.world.make.families import make_world_families

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GOAL = 1.3
ROUNDS = 3


def build_verifier(model: HiddenStateModel) -> HiddenVerifier:
    """Return a verifier with heads of random weights; their values do not matter for the cost."""
    rng = np.random.default_rng(0)
    names = tuple(map(str, range(model.width)))
    ones = np.ones(model.width)
    heads = {head: LinearHead(names, rng.normal(size=model.width), 0 * ones, ones, 0.0, 1.0) for head in DEFAULT_HEADS}
    return HiddenVerifier(model.ref, heads, {}, model)


def list_responses(count: int) -> list[VerifierInput]:
    """Return the gold responses of world families of all lengths."""
    profiles = ("short-hard", "2wiki", "musique")
    return [
        VerifierInput(family.gold.question, family.gold.trace.texts, family.gold.answer)
        for profile in profiles
        for family in islice(make_world_families(profile, 7), count // len(profiles))
    ]


def run_bare(decoder: Any, batches: Sequence[torch.Tensor]) -> None:
    """Run all blocks on padded texts."""
    with torch.inference_mode():
        for ids in batches:
            decoder(input_ids=ids, use_cache=False)


def pad_batches(model: HiddenStateModel, responses: Sequence[VerifierInput]) -> list[torch.Tensor]:
    """Return the texts in the batches in which they are scored."""
    texts = [model.encode_response(item.question, item.steps, item.answer).ids for item in responses]
    waiting, batches = sorted(set(texts), key=len, reverse=True), []
    while waiting:
        width = len(waiting[0])
        size = max(1, BATCH_TOKENS // width)
        batch, waiting = waiting[:size], waiting[size:]
        batches.append(torch.tensor([(*ids, *ids[-1:] * (width - len(ids))) for ids in batch]))
    return batches


def measure(schemes: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least CPU seconds of each scheme; they take turns, so that a busy minute affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in schemes}
    for number in range(ROUNDS + 1):
        for name, scheme in schemes.items():
            start = process_time()
            scheme()
            if number:  # the first round warms up
                seconds[name].append(process_time() - start)
    return {name: min(times) for name, times in seconds.items()}


def main() -> int:
    """Measure and print; return 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=48)
    options = parser.parse_args()
    torch.set_num_threads(1)
    responses = list_responses(options.responses)
    ref = find_hidden_model(packaged_weights(), dtype="float32", device="cpu")
    model = ref.load()
    whole = load_causal_model(ref.weights, dtype="float32", device="cpu").eval()
    decoder = whole.get_decoder()
    deep = HiddenStateModel(replace(ref, layer=len(decoder.layers)), whole, model._tokenizer)
    batches = pad_batches(model, responses)
    half, full = build_verifier(model), build_verifier(deep)
    print(f"load average {os.getloadavg()[0]:.1f} at the start")
    seconds = measure(
        {
            "bare": lambda: run_bare(decoder, batches),
            "half": lambda: half.score(responses),
            "full": lambda: full.score(responses),
        }
    )
    tokens = sum(batch.numel() for batch in batches)
    print(f"{len(responses)} responses, {tokens:,} tokens with padding in {len(batches)} batches")
    for name, value in seconds.items():
        print(f"  {name}: {value:7.2f} CPU s = {value / seconds['bare']:.2f} of the bare forward")
    share, deep_share = seconds["half"] / seconds["bare"], seconds["full"] / seconds["bare"]
    return print_result(
        name="Hidden verifier, alignment and closure",
        value=round(share, 2),
        unit=f"of the bare forward at layer {ref.layer}; {deep_share:.2f} at all layers",
        goal=f"<= {GOAL}, at all layers as well",
        holds=max(share, deep_share) <= GOAL and model.stops_early,
        responses_per_cpu_second=round(len(responses) / seconds["half"], 1),
    )


if __name__ == "__main__":
    sys.exit(main())
