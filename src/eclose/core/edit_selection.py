"""Selection of one evidence edit of a family: a fixed one for tests, a drawn one for training.

Both depend on the family alone, not on the order of a file or on earlier draws. Every checkpoint is therefore tested on
the same edit, and resumed training draws what an uninterrupted run would have drawn.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from eclose.core.identity import canonical_json, hash_sort_key
from eclose.errors import UserError

if TYPE_CHECKING:
    from eclose.core.family import EvidenceEdit, Family


def select_fixed_edit(family: Family) -> EvidenceEdit:
    """Return the first edit by passage identifier and serialised content (appendix D.7.1)."""
    return _sort_edits(family)[0]


def draw_edit(family: Family, seed: int, epoch: int) -> EvidenceEdit:
    """Return an edit drawn uniformly, as a pure function of seed, epoch and family id."""
    edits = _sort_edits(family)
    # The first part is a salt: without it the draw would correlate with a data order ranked by the same parts.
    return edits[int(hash_sort_key("evidence edit", seed, epoch, family.id), 16) % len(edits)]


def _sort_edits(family: Family) -> list[EvidenceEdit]:
    if not family.evidence_edits:
        raise UserError(f"family {family.id!r} has no evidence edit, so none can be selected. Leave the family out.")
    return sorted(family.evidence_edits, key=lambda edit: (edit.passage_id, canonical_json(asdict(edit))))
