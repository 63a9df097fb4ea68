"""A line a person can read for every entry of the log, with a bar on a terminal and without one elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from transformers.trainer_callback import PrinterCallback, ProgressCallback

from eclose.core.edges import Edge

if TYPE_CHECKING:
    from transformers import Trainer


def log_line(logs: dict[str, Any], step: int, last_step: int) -> str | None:
    """What one entry of the log says; None for one that has nothing for a person."""
    prefix = "eval_" if "eval_loss" in logs else ""
    if f"{prefix}loss" not in logs:
        return None
    parts = [f"update {step:,}/{last_step:,}", "held out" if prefix else f"epoch {logs.get('epoch', 0):.2f}"]
    parts.append(f"loss {logs[f'{prefix}loss']:.4f}")
    if f"{prefix}margin_loss" in logs:
        parts.append(f"generation {logs[f'{prefix}gen_loss']:.4f}  margins {logs[f'{prefix}margin_loss']:.4f}")
    switches = [
        f"{edge.value} {100 * logs[name]:.0f} %" for edge in Edge if (name := f"{prefix}switch/{edge.value}") in logs
    ]
    if switches:
        parts.append("switch " + " ".join(switches))
    if not prefix and "grad_norm" in logs:
        parts.append(f"gradient {logs['grad_norm']:.3g}")
    return "  ".join(parts)


class Bar(ProgressCallback):
    """Transformers' bar, with our lines above it."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the entry above the bar."""
        line = log_line(dict(logs or {}), state.global_step, state.max_steps)
        bar: Any = self.training_bar
        if line and state.is_world_process_zero and bar is not None:
            bar.write(line)


class Lines(PrinterCallback):
    """Plain lines on standard error, for files and pipes."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the entry."""
        line = log_line(dict(logs or {}), state.global_step, state.max_steps)
        if line and state.is_world_process_zero:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def speak_plainly(trainer: Trainer) -> None:
    """Replace the Trainer's own reporters, which print whole dictionaries."""
    for theirs, ours in ((ProgressCallback, Bar), (PrinterCallback, Lines)):
        if trainer.pop_callback(theirs) is not None:
            trainer.add_callback(ours)
