"""Everything that is wrong with a file, told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def raise_problems(path: Path, problems: Sequence[str], most: int = 10) -> None:
    """Raise with all problems of a file, or the first so many."""
    if problems:
        listed = [problem.removeprefix(f"{path} ") for problem in problems[:most]]
        if len(problems) > most:
            listed.append(f"and {len(problems) - most} more")
        raise UserError(f"{path}: cannot be used as it is. {'; '.join(listed)}.")
