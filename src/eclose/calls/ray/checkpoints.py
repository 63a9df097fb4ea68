"""Replies of checkpoints on a Ray cluster: a worker loads the model once and puts one adapter after another on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eclose.calls.ray.workers import RaySettings, WorkersLost, connect_to_ray

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from eclose.models.interface import Reply, Request
    from eclose.models.local.transformers_model import TransformersModel


class _ModelReplica:
    """A worker with the model on its own device."""

    def __init__(self, name: str, settings: dict[str, Any], requests: Sequence[Request], threads: int) -> None:
        import torch  # noqa: PLC0415 - in the worker alone

        from eclose.models.local.transformers_model import TransformersModel  # noqa: PLC0415 - imports torch

        torch.set_num_threads(threads)
        self._model: TransformersModel = TransformersModel.load(name, **settings)
        self._requests = requests

    def complete(self, adapter: Path) -> list[Reply]:
        return self._model.with_adapter(adapter).complete_all(self._requests)


@dataclass(frozen=True)
class RayCheckpointPool:
    """A model that is loaded once on each worker of a cluster; adapters go to the workers as these become free.

    Weights and adapters must be under the same path, or name, on every machine.
    """

    model: str
    ray: RaySettings
    revision: str | None = None
    dtype: str = "auto"
    batch_tokens: int = 32_768

    def complete_all(self, adapters: Sequence[Path], requests: Sequence[Request]) -> Iterator[list[Reply]]:
        """Yield the replies of each adapter to all requests, in the order of the adapters.

        Raises:
            WorkersLost: A worker died more often than ``ray.restarts`` times.
        """
        import torch  # noqa: PLC0415 - slow to import

        from eclose.models.load_weights import resolve_load_dtype  # noqa: PLC0415 - imports torch

        with connect_to_ray(self.ray) as ray:
            gpus = 1 if ray.cluster_resources().get("GPU") else 0
            placement = {"num_cpus": self.ray.cpus_per_worker, "num_gpus": gpus}
            # Found out once, on a worker's device: a trial in every worker might decide differently in each.
            trial = ray.remote(resolve_load_dtype).options(**placement)
            dtype = ray.get(trial.remote(self.model, self.revision, self.dtype, "cuda" if gpus else "cpu"))
            settings = {"revision": self.revision, "dtype": dtype, "batch_tokens": self.batch_tokens}
            # Ray restarts a dead worker and repeats its checkpoint, which is safe: replies are computed, not paid.
            restarts = {"max_restarts": self.ray.restarts, "max_task_retries": self.ray.restarts}
            replica = ray.remote(_ModelReplica).options(**placement, **restarts)
            shared, threads = ray.put(list(requests)), torch.get_num_threads()
            count = min(self.ray.workers, len(adapters))
            replicas = [replica.remote(self.model, settings, shared, threads) for _ in range(count)]
            pool = ray.util.ActorPool(replicas)
            try:
                yield from pool.map(lambda worker, adapter: worker.complete.remote(adapter), adapters)
            except ray.exceptions.RayActorError as death:
                raise WorkersLost(
                    f"a worker died {self.ray.restarts + 1} times ({' '.join(str(death).split())}). Finished "
                    "checkpoints are kept: find the reason (often too little memory) and run the same command again."
                ) from death
            finally:
                for worker in replicas:
                    ray.kill(worker)
