"""Train with both readings of S^rsp (decision 0036) and compare: share of layout tokens, losses, switch rates.

By default a small random Llama with a tokenizer of the world's words, all weights trained: it shows that both readings
run and what they change in the loss, and is too small to follow edits. With --smollm2 a few updates of an adapter on
SmolLM2-135M, whose switch rates are real ones. The same families and updates for both readings.

    python perf/response_tokens.py [--smollm2]
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig

sys.path.insert(0, str(Path(__file__).parents[1]))

from eclosure.likelihood.render import Renderer
from eclosure.likelihood.spans import Tokens
from eclosure.protocol.response import ResponsePrompt
from eclosure.train.config import EClosureConfig
from eclosure.train.trainer import EClosureTrainer
from eclosure.weights import load_model, load_tokenizer
from eclosure.world.families import make_families
from tree_cost import packaged_weights

small: Any = importlib.import_module("tests.train.small")

PROFILES = ("2wiki", "musique", "short-easy")
MARGINS = ("S_o", "T_o", "C_o")


@dataclass(frozen=True)
class Setup:
    """What is trained, on how much."""

    tokenizer: Any
    smollm2: bool
    train: int
    held_out: int
    batch: int
    updates: int
    learning_rate: float

    def trainer(self, folder: str, model: Any, peft_config: Any = None, **settings: Any) -> EClosureTrainer:
        """Build a trainer on the first families, evaluated on the next."""
        families = list(islice(make_families("short-easy", 5), self.train + self.held_out))
        config = EClosureConfig(
            output_dir=folder,
            use_cpu=True,
            demonstrations=0,
            families_per_update=self.batch,
            max_steps=self.updates,
            learning_rate=self.learning_rate,
            warmup_steps=0,
            logging_steps=10_000,
            save_strategy="no",
            disable_tqdm=True,
            report_to="none",
            gradient_checkpointing=False,
            **settings,
        )
        held_out = families[self.train :]
        return EClosureTrainer(
            model, config, families[: self.train], held_out, processing_class=self.tokenizer, peft_config=peft_config
        )

    def trained(self, folder: str, method: str, tokens: Tokens) -> dict[str, float]:
        """Train, then measure held-out losses by both readings and the switch rates of all three edges."""
        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        model = load_model(packaged_weights(), dtype="float32") if self.smollm2 else small.small_model()
        adapter = lora if self.smollm2 else None
        trainer = self.trainer(folder, model, adapter, method=method, response_tokens=tokens.value)
        trainer.train()
        figures: dict[str, float] = {}
        for reading in Tokens:
            held_out = self.trainer(folder, trainer.model, response_tokens=reading.value).evaluate()
            figures[f"loss ({reading.value})"] = held_out["eval_gen_loss"]
            figures |= {f"SW {edge}": 100 * held_out[f"eval_switch/{edge}"] for edge in "STC"}
            figures |= {f"{reading.value} {name}": held_out[f"eval_margins/{name}"] for name in MARGINS}
        return figures


def layout_share(tokenizer: Any, profile: str, families: int = 20) -> float:
    """Return the share of a response's tokens that are numbers, answer label or end of turn."""
    renderer = Renderer(tokenizer, ResponsePrompt(0))
    full = content = 0
    for family in islice(make_families(profile, 3), families):
        for view in family.views:
            path = renderer.path(view.question, view.evidence, view.trace, view.answer)
            full += len(path.response(Tokens.FULL))
            content += len(path.response(Tokens.CONTENT))
    return 1 - content / full


def main() -> int:
    """Print the tables and the invariant: S, T and C margins do not depend on the reading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smollm2", action="store_true", help="train an adapter on SmolLM2-135M")
    smollm2 = parser.parse_args().smollm2
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    tokenizer = load_tokenizer(packaged_weights())
    setup = (
        Setup(tokenizer, True, 4, 6, 2, 3, 5e-4)
        if smollm2
        else Setup(small.small_tokenizer(), False, 16, 6, 4, 16, 3e-3)
    )
    print("| profile | tokenizer | layout tokens of a response |\n| --- | --- | --- |")
    for profile in PROFILES:
        print(f"| {profile} | SmolLM2 | {100 * layout_share(tokenizer, profile):.1f} % |")
    print(f"| short-easy | small | {100 * layout_share(small.small_tokenizer(), 'short-easy'):.1f} % |\n")
    names = [*(f"loss ({reading.value})" for reading in Tokens), *(f"SW {edge}" for edge in "STC")]
    print(f"{setup.updates} updates of {setup.batch} families, {setup.held_out} held out")
    print(f"| method | response_tokens | {' | '.join(names)} |\n| --- | --- | {' | '.join('---' for _ in names)} |")
    largest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for method in ("rm", "e_closure"):
            for tokens in Tokens:
                figures = setup.trained(folder, method, tokens)
                cells = [f"{figures[name]:.1f}" if name.startswith("SW") else f"{figures[name]:.4f}" for name in names]
                print(f"| {method} | {tokens.value} | {' | '.join(cells)} |", flush=True)
                changes = (abs(figures[f"full {name}"] - figures[f"content {name}"]) for name in MARGINS)
                largest = max(largest, *changes)
    holds = largest < 1e-5
    figure = {"name": "largest change of an S, T or C margin by the reading of S^rsp", "value": round(largest, 7)}
    print(json.dumps({**figure, "unit": "nats", "goal": "< 1e-05", "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
