"""Write the card that goes with an adapter: base model, objective, data, settings, and what has not been shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import eclose

if TYPE_CHECKING:
    from transformers import Trainer

_CARD = """\
---
base_model: {base}
library_name: {library}
pipeline_tag: text-generation
tags:
- eclose
- {method}
---

# {title}

Trained with [eclose](https://pypi.org/project/eclose/) {version} by the objective `{method}` to answer multi-hop
questions over given passages: numbered steps, then `Final answer:`.

| setting | value |
|---|---|
{settings}

Latest figures of the log: {figures}.

## How to ask it

The prompt it was trained with has {demonstrations} worked examples and the order `{order}`; ask it with the same
(`eclose.protocol.response_prompt.ResponsePrompt`), without thinking, greedily.

## Limits

Switch rates and losses say how preferences follow edited inputs. They do not say that responses are reliable: judge
those (`eclose judge`). Answers are only as good as the passages given.
"""

_SETTINGS = (
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


def model_card(trainer: Trainer, *, recipe: dict[str, Any], scoring: str) -> str:
    """Return the card of the model as it stands: ``recipe`` lists its inputs, ``scoring`` names the strategy."""
    args: Any = trainer.args
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = getattr(model.config, "_name_or_path", "") or "unknown"
    rows = {name: f"`{getattr(args, name)}`" for name in _SETTINGS}
    rows |= _origin(model) | _data(recipe)
    rows |= {
        "families": f"{len(trainer.train_dataset):,}",
        "updates so far": f"{trainer.state.global_step:,}",
        "scoring": scoring,
    }
    return _CARD.format(
        base=json.dumps(base, ensure_ascii=False),  # a text of JSON is one of YAML, whatever it holds
        library="peft" if hasattr(model, "peft_config") else "transformers",
        method=args.method,
        title=f"{base.rstrip('/').split('/')[-1]}, {args.method}, seed {args.seed}",
        version=eclose.__version__,
        settings="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        figures=_figures(trainer.state.log_history),
        demonstrations=args.demonstrations,
        order=args.order,
    )


def _origin(model: Any) -> dict[str, str]:
    """Name the commit of the base model, and the shape of the adapter on it."""
    adapter: Any = next(iter(getattr(model, "peft_config", {}).values()), None)
    revision = getattr(adapter, "revision", None) or getattr(model.config, "_commit_hash", None)
    rows = {"revision": f"`{revision}`" if revision else "not pinned"}
    if getattr(adapter, "r", None) is not None:
        rows["LoRA"] = f"rank {adapter.r}, alpha {adapter.lora_alpha}, dropout {adapter.lora_dropout}"
    return rows


def _data(recipe: dict[str, Any]) -> dict[str, str]:
    """Name the files of families with the hashes of their content."""
    files = {"trained on": "families", "held out": "development"}
    inputs = recipe.get("inputs", {})
    return {row: f"{file['file']}, `{file['hash']}`" for row, role in files.items() if (file := inputs.get(role))}


def _figures(history: list[dict[str, float]]) -> str:
    latest = {name: value for line in history for name, value in line.items()}
    figures = [f"{name} {latest[name]:.4g}" for name in ("loss", "eval_loss", *sorted(latest)) if _worth(name, latest)]
    return ", ".join(dict.fromkeys(figures)) or "none yet"


def _worth(name: str, latest: dict[str, float]) -> bool:
    return name in latest and (name in ("loss", "eval_loss") or "switch/" in name)
