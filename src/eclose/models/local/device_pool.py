"""One model on several devices, each in a process of its own, with one adapter after another."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from eclose.errors import SettingError, UserError
from eclose.models.load_weights import resolve_load_dtype
from eclose.models.local.transformers_model import BATCH_TOKENS, TransformersModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from eclose.models.interface import Reply, Request


def list_local_devices(count: int | Literal["auto"]) -> tuple[str, ...]:
    """Return the devices to use, by name; without an accelerator the CPU as often as asked, by default once.

    Raises:
        SettingError: There are fewer accelerators.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    available = 0 if accelerator is None else torch.accelerator.device_count()
    number = max(available, 1) if count == "auto" else count
    if number < 1 or (accelerator is not None and number > available):
        raise SettingError(f"--devices {number}: there are {available}. Give a number from 1 to {available}, or auto.")
    if accelerator is None:
        return ("cpu",) * number
    return tuple(f"{accelerator.type}:{index}" for index in range(number))


@dataclass(frozen=True)
class DevicePool:
    """A model that is loaded once on each device; adapters are spread over the devices as these become free."""

    model: str
    devices: tuple[str, ...]
    revision: str | None = None
    dtype: str = "auto"
    batch_tokens: int = BATCH_TOKENS

    def complete_all(self, adapters: Sequence[Path], requests: Sequence[Request]) -> Iterator[list[Reply]]:
        """Yield the replies of each adapter to all requests, in the order of the adapters.

        Raises:
            UserError: A process ended before it replied.
        """
        # A forked process cannot use a GPU that its parent has initialised.
        context = multiprocessing.get_context("spawn")
        free = context.SimpleQueue()
        for device in self.devices:
            free.put(device)
        settings = {
            "name": self.model,
            "revision": self.revision,
            # Found out once: a trial in every process might decide differently in each.
            "dtype": resolve_load_dtype(self.model, self.revision, self.dtype, self.devices[0]),
            "batch_tokens": self.batch_tokens,
        }
        # The number of threads changes the order of sums, so every process has as many as this one.
        arguments = (free, settings, list(requests), torch.get_num_threads())
        pool = ProcessPoolExecutor(len(self.devices), context, _start_worker, arguments)
        try:
            yield from pool.map(_complete_with_adapter, adapters)
        except BrokenProcessPool as broken:
            raise UserError(
                "a process on one of the devices ended before it replied; memory may be short. Run the same command "
                "again: what was finished before is kept. Fewer --devices need less memory."
            ) from broken
        finally:
            pool.shutdown(cancel_futures=True)


_WORKER: dict[str, Any] = {}
"""Model and requests of a worker process."""


def _start_worker(free: Any, settings: dict[str, Any], requests: list[Request], threads: int) -> None:
    torch.set_num_threads(threads)
    _WORKER["model"] = TransformersModel.load(device=free.get(), **settings)
    _WORKER["requests"] = requests


def _complete_with_adapter(adapter: Path) -> list[Reply]:
    model: TransformersModel = _WORKER["model"]
    return model.with_adapter(adapter).complete_all(_WORKER["requests"])
