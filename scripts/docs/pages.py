"""Generated pages of the documentation: where they are, and whether they are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def find_stale(pages: Mapping[Path, str], folders: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the pages that differ from what is generated, and files of generated folders that are not generated."""
    for path, text in pages.items():
        if not path.is_file() or path.read_text("utf-8") != text:
            yield path
    for folder in folders:
        yield from (path for path in folder.glob("*") if path not in pages)


def write_pages(pages: Mapping[Path, str], folders: tuple[Path, ...] = ()) -> None:
    """Write the pages, and remove files of generated folders that are no longer generated."""
    for path in list(find_stale(pages, folders)):
        if path in pages:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages[path], "utf-8")
        else:
            path.unlink()
