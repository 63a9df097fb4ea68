"""What is told of training: means over families since they were last told, over all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from eclose.core.edges import Direction, Edge

if TYPE_CHECKING:
    from torch import Tensor

    from eclose.training.batching import Forest
    from eclose.training.objective import Loss


class Averages:
    """Sums in the making. Values stay on their device until they are told."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._names: list[str] = []
        self._sums: Tensor | None = None
        self._families = 0
        self._tokens, self._plain_tokens, self._rows, self._forests = 0, 0, 0, 0

    def add(self, loss: Loss) -> None:
        """Note one family."""
        values = _told(loss)
        row = torch.stack([value.detach().to(torch.float64) for value in values.values()])
        self._names = list(values)
        self._sums = row if self._sums is None else self._sums + row
        self._families += 1

    def count(self, forest: Forest) -> None:
        """Note one forward."""
        self._forests += 1
        self._tokens += forest.tokens
        self._plain_tokens += forest.plain_tokens
        self._rows += len(forest.tree.readout.rows) if forest.tree is not None else 0

    def take(self, accelerator: Any) -> dict[str, float]:
        """The means, and begin anew. Every process must ask, also one that has seen nothing but stand-ins."""
        names, sums = self._names, self._sums
        counts = [self._families, self._tokens, self._plain_tokens, self._rows, self._forests]
        if accelerator.num_processes > 1:
            names, sums, counts = _over_processes(names, sums, counts)
        self._clear()
        families, tokens, plain, rows, forests = counts
        told = dict(zip(names, (sums / families).tolist(), strict=True)) if sums is not None and families else {}
        if tokens:
            told |= {
                "tree/tokens": tokens / forests,
                "tree/token_ratio": plain / tokens,
                "tree/logit_rows": rows / forests,
            }
        return told


def _over_processes(
    names: list[str], sums: Tensor | None, counts: list[int]
) -> tuple[list[str], Tensor | None, list[int]]:
    from accelerate.utils import gather_object  # noqa: PLC0415 - only with several processes

    rows = gather_object([(names, None if sums is None else sums.tolist(), counts)])
    seen = [row for row in rows if row[1] is not None]
    totals = [sum(column) for column in zip(*(row[2] for row in rows), strict=True)]
    if not seen:
        return names, None, totals
    added = torch.tensor([row[1] for row in seen], dtype=torch.float64).sum(0)
    return seen[0][0], added, totals


def _told(loss: Loss) -> dict[str, Tensor]:
    """Everything said of one family, by its name in the log."""
    told = {"loss": loss.total, "gen_loss": loss.generation}
    if not loss.margins:
        return told
    told["margin_loss"] = loss.margin
    for name, margin in loss.margins.items():
        told[f"margins/{name}"] = margin
        told[f"accuracies/{name}"] = (margin > 0).double()
        told[f"satisfied/{name}"] = (margin > loss.targets[name]).double()
    for edge in Edge:
        both = [loss.margins.get(f"{edge.value}_{direction.value}") for direction in Direction]
        if all(margin is not None for margin in both):
            told[f"switch/{edge.value}"] = (
                torch.stack([margin > 0 for margin in both if margin is not None]).all().double()
            )
    return told
