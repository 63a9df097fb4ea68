"""Records of a training run: the log, as lines that people read and as a file, and the sessions that worked on it.

Figures of the log are means over families since the last line, over all processes.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
from datetime import UTC, datetime
from math import isfinite
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerCallback

from eclose.files.atomic import AtomicFile
from eclose.progress import Progress, is_shown, write_progress_line
from eclose_train.families.comparisons import Direction, Edge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor
    from transformers import Trainer, TrainingArguments

    from eclose.progress import ProgressOption
    from eclose_train.training.batching import FamilyForest
    from eclose_train.training.config import EClosureConfig
    from eclose_train.training.objective import FamilyLoss

SESSIONS_FILE = "sessions.json"


class TrainingSessionRecorder(TrainerCallback):
    """Callback that records the sessions of a run in ``sessions.json``; a session lasts from a start to its end.

    It also records the precision of the weights: where the setting is ``auto``, a stopwatch decides on a CPU, and later
    sessions must have the same.

    A session that was killed counts up to its last log line or checkpoint, including updates that were repeated later.
    """

    def __init__(self, folder: Path, config: EClosureConfig) -> None:
        self._path = folder / SESSIONS_FILE
        # The wall clock may be set during a run of hours.
        self._start = monotonic()
        self._earlier: list[dict[str, Any]] = []
        self._current: dict[str, Any] = {
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": 0.0,
            "ended": False,
            "first_update": 0,
            "last_update": 0,
            "processes": config.world_size,
            "device": _device(config.device),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }

    @property
    def dtype(self) -> str | None:
        """Precision of the weights in the latest session; None before the first."""
        sessions = json.loads(self._path.read_text("utf-8")) if self._path.is_file() else []
        return next((session["dtype"] for session in reversed(sessions) if "dtype" in session), None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the update at which this session starts, and the precision of the weights."""
        if state.is_world_process_zero:
            self._earlier = json.loads(self._path.read_text("utf-8")) if self._path.is_file() else []
            self._current["first_update"] = state.global_step
            self._current["dtype"] = str(kwargs["model"].dtype).removeprefix("torch.")
            self._write(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record the latest update of this session."""
        if state.is_world_process_zero:
            self._write(state.global_step)

    on_save = on_log  # a killed session is counted up to its last record, so record at every checkpoint too

    def finish(self, update: int) -> dict[str, Any]:
        """Close this session and return the totals of the run for its manifest."""
        self._current["ended"] = True
        self._write(update)
        sessions = [*self._earlier, self._current]
        return {
            "seconds": round(sum(session["seconds"] for session in sessions), 1),
            "device_seconds": round(sum(session["seconds"] * session["processes"] for session in sessions), 1),
            "processes": self._current["processes"],
            "device": self._current["device"],
            "sessions": sessions,
        }

    def _write(self, update: int) -> None:
        self._current |= {"seconds": round(monotonic() - self._start, 1), "last_update": update}
        # Atomic: the session may be killed here, and the next one reads this file.
        with AtomicFile(self._path) as file:
            file.write(json.dumps([*self._earlier, self._current], indent=2).encode() + b"\n")


def _device(device: torch.device) -> str:
    """Return the name of a device: the GPU's product name, or the CPU with its number of cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.processor() or platform.machine()}, {os.cpu_count()} cores)"


class TerminationCheckpoint(TrainerCallback):
    """Callback that writes a checkpoint and stops when the process is asked to terminate (SIGTERM).

    Schedulers send the signal some time before they kill. The update under way is finished first.
    """

    def __init__(self) -> None:
        self.requested = False
        self.stopped = False
        """Whether training was stopped before its last update."""
        self._previous: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Install the handler; outside of the main thread Python allows none, and the signal ends the process."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._request)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Stop after an update. At the end of an epoch, evaluation and checkpoint of the epoch come first."""
        if self._agree(args) and not float(state.epoch).is_integer() and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Stop after a complete epoch."""
        if self.stopped:
            # The epoch was left in the middle: its evaluation belongs to the resumed run.
            control.should_log = control.should_evaluate = control.should_save = False
        elif self._agree(args) and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Restore the handler that was there before."""
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def _request(self, *_: Any) -> None:
        self.requested = True

    def _agree(self, args: Any) -> bool:
        """Return whether any process was asked to stop: all stop after the same update, or they would wait forever."""
        if args.world_size == 1:
            return self.requested
        flag = torch.tensor([float(self.requested)], device=args.device)
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
        return bool(flag.item())


METRICS_FILE = "metrics.jsonl"


class TrainingLogMeans:
    """Running sums of what the log reports. Values stay on their device until they are taken."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._names: list[str] = []
        self._sums: Tensor | None = None
        self._families = 0
        self._tokens, self._plain_tokens, self._rows, self._forests = 0, 0, 0, 0

    def add_loss(self, loss: FamilyLoss) -> None:
        """Add the loss of a family."""
        values = _values(loss)
        # float64: sums of float32 over thousands of families would lose digits.
        row = torch.stack([value.detach().to(torch.float64) for value in values.values()])
        self._names = list(values)
        self._sums = row if self._sums is None else self._sums + row
        self._families += 1

    def add_forest(self, forest: FamilyForest) -> None:
        """Add the token counts of a forward pass."""
        self._forests += 1
        self._tokens += forest.tokens
        self._plain_tokens += forest.plain_tokens
        self._rows += len(forest.tree.readout.rows) if forest.tree is not None else 0

    def take(self, accelerator: Any) -> dict[str, float]:
        """Return the means over all processes and start again.

        A collective call: every process must make it, also one that had only families of weight zero.
        """
        names, sums = self._names, self._sums
        counts = [self._families, self._tokens, self._plain_tokens, self._rows, self._forests]
        if accelerator.num_processes > 1:
            names, sums, counts = _sum_over_processes(names, sums, counts)
        self._clear()
        families, tokens, plain, rows, forests = counts
        means = dict(zip(names, (sums / families).tolist(), strict=True)) if sums is not None and families else {}
        if tokens:
            means |= {
                "tree/tokens": tokens / forests,
                "tree/token_ratio": plain / tokens,
                "tree/logit_rows": rows / forests,
            }
        return means


def _sum_over_processes(
    names: list[str], sums: Tensor | None, counts: list[int]
) -> tuple[list[str], Tensor | None, list[int]]:
    from accelerate.utils import gather_object  # noqa: PLC0415 - only with several processes

    # Objects rather than tensors: a process that had no family has no sums, and names are gathered too.
    rows = gather_object([(names, None if sums is None else sums.tolist(), counts)])
    with_sums = [row for row in rows if row[1] is not None]
    totals = [sum(column) for column in zip(*(row[2] for row in rows), strict=True)]
    if not with_sums:
        return names, None, totals
    total = torch.tensor([row[1] for row in with_sums], dtype=torch.float64).sum(0)
    return with_sums[0][0], total, totals


def _values(loss: FamilyLoss) -> dict[str, Tensor]:
    values = {"loss": loss.total, "gen_loss": loss.generation}
    if not loss.margins:
        return values
    values["margin_loss"] = loss.margin
    for name, margin in loss.margins.items():
        values[f"margins/{name}"] = margin
        values[f"accuracies/{name}"] = (margin > 0).double()
        values[f"satisfied/{name}"] = (margin > loss.targets[name]).double()
    # An edge switches where the preference follows the input in both directions (appendix D.7).
    for edge in Edge:
        both = [loss.margins.get(f"{edge.value}_{direction.value}") for direction in Direction]
        if all(margin is not None for margin in both):
            values[f"switch/{edge.value}"] = (
                torch.stack([margin > 0 for margin in both if margin is not None]).all().double()
            )
    return values


def _format_training_log(logs: dict[str, Any], step: int, last_step: int) -> str | None:
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


class TrainingProgressBar(ProgressCallback):
    """Transformers' progress bar with readable log lines above it, for a terminal."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the entry above the bar."""
        line = _format_training_log(dict(logs or {}), state.global_step, state.max_steps)
        bar: Any = self.training_bar
        if line and state.is_world_process_zero and bar is not None:
            bar.write(line)


class TrainingLogTeller(TrainerCallback):
    """Callback that calls a function with every line of the log."""

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell = tell

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Tell the entry."""
        line = _format_training_log(dict(logs or {}), state.global_step, state.max_steps)
        if line and state.is_world_process_zero:
            self._tell(Progress(done=state.global_step, total=state.max_steps, text=line))


class TrainingReporter:
    """Tells phases and log lines of a training run, once for all its processes.

    In a terminal a bar stands below them. There are minutes before the first update, so phases are told as well.
    """

    def __init__(self, option: ProgressOption, config: TrainingArguments) -> None:
        shown = option is not False and (option is not True or is_shown())
        self._tell = (write_progress_line if option is True else option) if shown else None
        self._has_bar = option is True and shown and not config.disable_tqdm
        self._is_first = config.process_index == 0

    def report_phase(self, phase: str) -> None:
        """Tell what begins now."""
        if self._is_first and callable(self._tell):
            self._tell(Progress(done=0, total=0, text=phase))

    def watch(self, trainer: Trainer) -> None:
        """Replace the Trainer's reporters, which print dictionaries."""
        for default in (ProgressCallback, TrainingProgressBar, PrinterCallback, TrainingLogTeller):
            trainer.remove_callback(default)
        if self._has_bar:
            trainer.add_callback(TrainingProgressBar())
        elif callable(self._tell):
            trainer.add_callback(TrainingLogTeller(self._tell))


def install_training_progress(trainer: Trainer) -> None:
    """Replace the Trainer's reporters, which print dictionaries, by readable lines."""
    # Transformers installs one of the two, depending on disable_tqdm; only that one is replaced.
    lines = TrainingLogTeller(write_progress_line)
    for default, replacement in ((ProgressCallback, TrainingProgressBar()), (PrinterCallback, lines)):
        if trainer.pop_callback(default) is not None:
            trainer.add_callback(replacement)


class TrainingMetricsWriter(TrainerCallback):
    """Callback that appends every line of the log to ``metrics.jsonl``.

    A checkpoint holds the log up to its update. A resumed run starts the file again from there, so lines of updates
    that are computed again are neither lost nor doubled.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Write the log of the checkpoint that the run continues from; an empty file for a new run."""
        if state.is_world_process_zero:
            with AtomicFile(self._folder / METRICS_FILE) as file:
                for line in state.log_history:
                    file.write(_encode_log_line(line))

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Append the latest line."""
        # The trainer also logs outside of training, for example in a plain evaluate(), when there is no file to extend.
        path = self._folder / METRICS_FILE
        if state.is_world_process_zero and state.log_history and path.is_file():
            # Closed after each line: the operating system has all of it, whatever happens to this process.
            with path.open("ab") as file:
                file.write(_encode_log_line(state.log_history[-1]))


def _encode_log_line(line: Mapping[str, Any]) -> bytes:
    """Return a line of the log as JSON; a value that is not finite, such as a diverged loss, is null."""
    plain = {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in line.items()}
    return json.dumps(plain).encode() + b"\n"
