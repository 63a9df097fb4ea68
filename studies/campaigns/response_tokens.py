"""Train with both readings of S^rsp (decision 0036) and compare: share of layout tokens, losses, switch rates.

A small random Llama with a tokenizer of the world's words, all weights trained, the same families and updates for both.
It shows that both run and what they change in the loss. It is too small to follow edits, so its switch rates say
nothing about a real model.

    python studies/campaigns/response_tokens.py
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.local.weights import load_tokenizer
from eclose.prompts.response_prompt import ResponsePrompt
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.spans import ScoredTokens
from eclose_world.make.families import make_world_families
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights

small: Any = importlib.import_module("tests.training.small")

PROFILES = ("2wiki", "musique", "short-easy")
MARGINS = ("S_o", "T_o", "C_o")
TRAIN, HELD_OUT, EPOCHS, BATCH = 32, 12, 6, 4


def layout_share(tokenizer: Any, profile: str, families: int = 20) -> float:
    """Return the share of a response's tokens that are numbers, answer label or end of turn."""
    renderer = TokenPathRenderer(tokenizer, ResponsePrompt(0))
    full = content = 0
    for family in islice(make_world_families(profile, 3), families):
        for view in family.views:
            path = renderer.render(view.question, view.evidence, view.trace, view.answer)
            full += len(path.response_positions(ScoredTokens.FULL))
            content += len(path.response_positions(ScoredTokens.CONTENT))
    return 1 - content / full


def train_and_measure(folder: str, method: str, tokens: ScoredTokens) -> dict[str, float]:
    """Train a model, then measure held-out losses by both readings and the switch rates of all three edges."""
    families = list(islice(make_world_families("short-easy", 5), TRAIN + HELD_OUT))
    settings = {"families_per_update": BATCH, "num_train_epochs": EPOCHS, "learning_rate": 3e-3, "logging_steps": 1_000}
    trainer = small.small_trainer(
        folder, families[:TRAIN], peft_config=None, method=method, response_tokens=tokens.value, **settings
    )
    trainer.train()
    figures: dict[str, float] = {}
    for reading in ScoredTokens:
        measured = small.small_trainer(
            folder, families[:1], families[TRAIN:], model=trainer.model, peft_config=None, response_tokens=reading.value
        )
        held_out = measured.evaluate()
        figures[f"loss ({reading.value})"] = held_out["eval_gen_loss"]
        figures |= {f"SW {edge}": 100 * held_out[f"eval_switch/{edge}"] for edge in "STC"}
        figures |= {f"{reading.value} {name}": held_out[f"eval_margins/{name}"] for name in MARGINS}
    return figures


def main() -> int:
    """Print the tables and the invariant: S, T and C margins do not depend on the reading."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    print("| layout tokens of a response | SmolLM2's tokenizer |\n| --- | --- |")
    tokenizer = load_tokenizer(packaged_weights())
    for profile in PROFILES:
        print(f"| {profile} | {100 * layout_share(tokenizer, profile):.1f} % |")
    share = layout_share(small.small_tokenizer(), "short-easy")
    print(f"| short-easy, the small tokenizer of this run | {100 * share:.1f} % |\n")
    names = [*(f"loss ({reading.value})" for reading in ScoredTokens), *(f"SW {edge}" for edge in "STC")]
    print(f"| method | response_tokens | {' | '.join(names)} |\n| --- | --- | {' | '.join('---' for _ in names)} |")
    largest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for method in ("cf_sft", "rm", "e_closure"):
            for tokens in ScoredTokens:
                figures = train_and_measure(folder, method, tokens)
                cells = [f"{figures[name]:.1f}" if name.startswith("SW") else f"{figures[name]:.4f}" for name in names]
                print(f"| {method} | {tokens.value} | {' | '.join(cells)} |", flush=True)
                changes = (abs(figures[f"full {name}"] - figures[f"content {name}"]) for name in MARGINS)
                largest = max(largest, *changes)
    return print_result(
        name="largest change of an S, T or C margin by the reading of S^rsp",
        value=round(largest, 7),
        unit="nats",
        goal="< 1e-05",
        holds=largest < 1e-5,
    )


if __name__ == "__main__":
    sys.exit(main())
