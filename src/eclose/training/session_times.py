"""Wall-clock time, processes and device of a run, summed over all sessions that worked on it."""

from __future__ import annotations

import json
import os
import platform
import signal
import threading
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import TrainerCallback

from eclose.store.records.atomic import AtomicFile

if TYPE_CHECKING:
    from pathlib import Path

    from eclose.training.config import EClosureConfig

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
