"""Every printed number that follows from others is recomputed."""

from __future__ import annotations

import pytest

from tests.tables import each_row

from .ledger import derivations
from .printed import Cell, Derivation, verify


@pytest.mark.slow
@each_row(derivations())
def test_every_printed_number_is_what_follows_from_others(cell: Cell, derivation: Derivation) -> None:
    verify(cell, derivation)
