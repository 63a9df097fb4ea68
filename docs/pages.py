"""Write a generated page, or with --check fail when it is stale."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def generate(target: Path, text: str) -> int:
    """Write the page; with --check on the command line only compare. The exit code."""
    if "--check" not in sys.argv[1:]:
        target.write_text(text, "utf-8")
        return 0
    if target.exists() and target.read_text("utf-8") == text:
        return 0
    sys.stderr.write(f"docs/{target.name} is stale: run `make docs`.\n")
    return 1
