"""Which of a family's evidence edits is taken: the first of a fixed order to test, a drawn one to train.

Both follow from the family alone, never from the place of an edit in a file or from what was drawn before. So every
checkpoint is tested on the same edit, and training resumes with the choices it would have made.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from eclose.core.identity import canonical_json, hash_rank
from eclose.errors import UserError

if TYPE_CHECKING:
    from eclose.core.family import EvidenceEdit, Family


def fixed_edit(family: Family) -> EvidenceEdit:
    """The first edit by passage identifier and serialised content (appendix D.7.1)."""
    return _ordered(family)[0]


def drawn_edit(family: Family, seed: int, epoch: int) -> EvidenceEdit:
    """One edit, uniformly: a pure hash of seed, epoch and family."""
    edits = _ordered(family)
    # A salt of its own, so that the choice says nothing about a data order ranked by the same parts.
    return edits[int(hash_rank("evidence edit", seed, epoch, family.id), 16) % len(edits)]


def _ordered(family: Family) -> list[EvidenceEdit]:
    if not family.evidence_edits:
        raise UserError(f"family {family.id!r} has no evidence edit. Leave it out: there is nothing to choose from.")
    return sorted(family.evidence_edits, key=lambda edit: (edit.passage_id, canonical_json(asdict(edit))))
