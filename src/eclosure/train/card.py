"""The card that goes with an adapter: what it is, what it was trained on and for, and what has not been shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import eclosure

if TYPE_CHECKING:
    from eclosure.train.trainer import EClosureTrainer

_CARD = """\
---
base_model: {base}
library_name: {library}
pipeline_tag: text-generation
tags:
- eclosure
- {method}
---

# {title}

Trained with [eclosure](https://pypi.org/project/eclosure/) {version} by the objective `{method}` to answer multi-hop
questions over given passages: numbered steps, then `Final answer:`.

| setting | value |
|---|---|
{settings}

Latest figures of the log: {figures}.

## How to ask it

The prompt it was trained with has {demonstrations} worked examples and the order `{order}`; ask it with the same
(`eclosure.protocol.response.ResponsePrompt`), without thinking, greedily.

## Limits

Switch rates and losses say how preferences follow edited inputs. They do not say that responses are reliable: judge
those (`eclosure judge`). Answers are only as good as the passages given.
"""

_SHOWN = (
    "method",
    "margin_weight",
    "target_margin",
    "smoothing",
    "response_tokens",
    "families_per_update",
    "learning_rate",
    "num_train_epochs",
    "warmup_steps",
    "max_length",
    "seed",
    "bf16",
)


def model_card(trainer: EClosureTrainer) -> str:
    """The card of the model as it stands."""
    args = trainer.args
    config = trainer.accelerator.unwrap_model(trainer.model).config
    base = getattr(config, "_name_or_path", "") or "unknown"
    adapted = hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config")
    settings = [f"| {name} | `{getattr(args, name)}` |" for name in _SHOWN]
    settings += [
        f"| families | {len(trainer.train_dataset):,} |",
        f"| updates so far | {trainer.state.global_step:,} |",
        f"| scoring | {trainer.choice.strategy.value}, {trainer.choice.backend.value} |",
    ]
    return _CARD.format(
        base=json.dumps(base, ensure_ascii=False),  # a text of JSON is one of YAML, whatever it holds
        library="peft" if adapted else "transformers",
        method=args.method,
        title=f"{base.rstrip('/').split('/')[-1]}, {args.method}, seed {args.seed}",
        version=eclosure.__version__,
        settings="\n".join(settings),
        figures=_figures(trainer.state.log_history),
        demonstrations=args.demonstrations,
        order=args.order,
    )


def _figures(history: list[dict[str, float]]) -> str:
    latest = {name: value for line in history for name, value in line.items()}
    shown = [f"{name} {latest[name]:.4g}" for name in ("loss", "eval_loss", *sorted(latest)) if _worth(name, latest)]
    return ", ".join(dict.fromkeys(shown)) or "none yet"


def _worth(name: str, latest: dict[str, float]) -> bool:
    return name in latest and (name in ("loss", "eval_loss") or "switch/" in name)
