"""Every printed number that follows from others is recomputed: one case a number."""

from __future__ import annotations

import pytest

from .ledger import derivations
from .printed import Cell, Derivation, verify


@pytest.mark.parametrize(
    ("cell", "derivation"),
    [
        pytest.param(cell, derivation, id=f"{derivation.kind}: {cell.table}: {cell.row}: {cell.column}")
        for cell, derivation in derivations()
    ],
)
def test_printed_number(cell: Cell, derivation: Derivation) -> None:
    verify(cell, derivation)
