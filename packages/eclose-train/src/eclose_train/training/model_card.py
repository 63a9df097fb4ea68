"""Card of an adapter in Markdown: base model, objective, data, settings, latest figures and limits."""

from __future__ import annotations

import json
from typing import Any

import eclose

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

Trained with `eclose` {version} by the objective `{method}` to answer multi-hop
questions over given passages: numbered steps, then `Final answer:`.

| setting | value |
|---|---|
{settings}

Latest figures of the log: {figures}.

## How to ask it

The prompt it was trained with has {demonstrations} worked examples and the order `{order}`; ask it with the same
(`eclose.prompts.response_prompt.ResponsePrompt`), without thinking, greedily.

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


def render_model_card(trainer: Any, recipe: dict[str, Any]) -> str:
    """Return the card of a trainer's model in its present state; the recipe of the run may be empty."""
    config: Any = trainer.args
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = getattr(model.config, "_name_or_path", "") or "unknown"
    rows = {name: f"`{getattr(config, name)}`" for name in _SETTINGS}
    if config.max_steps > 0:
        # It takes precedence over the epochs, which may never be reached.
        rows["max_steps"] = f"`{config.max_steps}`"
        del rows["num_train_epochs"]
    # A trainer used without a run folder has no recipe, and so no rows about files.
    files = {"trained on": "families", "held out": "development"}
    inputs = recipe.get("inputs", {})
    rows |= _origin(model)
    rows |= {row: f"{file['file']}, `{file['hash']}`" for row, role in files.items() if (file := inputs.get(role))}
    rows |= {
        "families": f"{len(trainer.train_dataset):,}",
        "updates so far": f"{trainer.state.global_step:,}",
        "scoring": trainer.scoring,
        "weights in": trainer.dtype,
    }
    return _CARD.format(
        base=json.dumps(base, ensure_ascii=False),  # a JSON string is also a YAML string, with special characters too
        library="peft" if hasattr(model, "peft_config") else "transformers",
        method=config.method,
        title=f"{base.rstrip('/').split('/')[-1]}, {config.method}, seed {config.seed}",
        version=eclose.__version__,
        settings="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        figures=_figures(trainer.state.log_history),
        demonstrations=config.demonstrations,
        order=config.order,
    )


def _origin(model: Any) -> dict[str, str]:
    """Return rows with the commit of the base model and the shape of the adapter."""
    adapter: Any = next(iter(getattr(model, "peft_config", {}).values()), None)
    revision = getattr(adapter, "revision", None) or getattr(model.config, "_commit_hash", None)
    rows = {"revision": f"`{revision}`" if revision else "not pinned"}
    if getattr(adapter, "r", None) is not None:
        kinds = {"DoRA": "use_dora", "rsLoRA": "use_rslora"}
        variants = "".join(f", {name}" for name, field in kinds.items() if getattr(adapter, field, False))
        rows["LoRA"] = f"rank {adapter.r}, alpha {adapter.lora_alpha}, dropout {adapter.lora_dropout}{variants}"
    if getattr(model, "is_loaded_in_4bit", False):
        rows["weights in training"] = "4 bits, NF4 (QLoRA)"
    return rows


def _figures(history: list[dict[str, float]]) -> str:
    latest = {name: value for line in history for name, value in line.items()}
    names = ("loss", "eval_loss", *(name for name in sorted(latest) if "switch/" in name))
    return ", ".join(f"{name} {latest[name]:.4g}" for name in names if name in latest) or "none yet"
