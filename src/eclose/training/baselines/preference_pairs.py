"""Preference pairs of families for an epoch of training, and for evaluation.

An update holds the families, and of each the evidence edit, that the same update of the paper's objectives holds. Each
family gives the four comparisons of response margins: Re_o, Re_c, Rq_o and Rq_c. TRL weights no pairs, so all four
count alike, where the paper's response margin weights them 2 : 2 : 1 : 1.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler

from eclose.core.edit_selection import draw_edit
from eclose.training.batching import order_epoch_families
from eclose.training.config import PAIRS_PER_FAMILY
from eclose.training.trl_rows import make_preference_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.protocol.response_prompt import ResponsePrompt
    from eclose.training.batching import FamilyDataset
    from eclose.training.row_formats import ExportedEdits

_COLUMNS = ("prompt", "chosen", "rejected", "chat_template_kwargs")


def list_preference_rows(
    families: FamilyDataset, prompt: ResponsePrompt, edits: ExportedEdits
) -> Iterator[dict[str, Any]]:
    """Yield the columns of every exported preference row that TRL reads, family by family."""
    for index in range(len(families)):
        for row in make_preference_rows(families[index], prompt, edits):
            columns = asdict(row)
            yield {name: columns[name] for name in _COLUMNS}


class EpochPairSampler(Sampler[int]):
    """Sampler of the rows of an epoch, among the rows of all edits."""

    def __init__(self, families: FamilyDataset, seed: int) -> None:
        self.families, self.seed, self.epoch = families, seed, 0
        # Two rows for each evidence edit and two for the question edit, in the order of the export.
        counts = [2 * len(families[index].evidence_edits) + 2 for index in range(len(families))]
        self._starts = list(accumulate(counts, initial=0))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order and edits the next iteration follows."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of rows of an epoch."""
        return PAIRS_PER_FAMILY * len(self.families)

    def __iter__(self) -> Iterator[int]:
        """Yield four rows for each family."""
        for index in order_epoch_families(self.families.ids, self.seed, self.epoch):
            family = self.families[index]
            edit = family.evidence_edits.index(draw_edit(family, self.seed, self.epoch))
            start, stop = self._starts[index] + 2 * edit, self._starts[index + 1]
            yield from (start, start + 1, stop - 2, stop - 1)
