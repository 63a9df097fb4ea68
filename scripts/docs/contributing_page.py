"""The page on contributing: CONTRIBUTING.md of the repository, with links that lead from the site."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml
from pages import DOCS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "contributing.md"
SOURCE = ROOT / "CONTRIBUTING.md"
NOTE = "<!-- Generated from CONTRIBUTING.md by `make docs`; do not edit. -->"
_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s]+)\)")


def make_pages() -> dict[Path, str]:
    """Return the page."""
    title, _, rest = SOURCE.read_text("utf-8").partition("\n")
    repository = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["repo_url"]
    return {PAGE: f"{title}\n\n{NOTE}\n{rewrite_links(rest, repository)}"}


def rewrite_links(text: str, repository: str) -> str:
    """Return the text with links to pages relative to the folder of the site, and all other files on the web.

    >>> rewrite_links("[a](docs/a.md#b), [c](src/c.py), [d](#d)", "https://x.org/y")
    '[a](a.md#b), [c](https://x.org/y/blob/main/src/c.py), [d](#d)'
    """

    def rewrite(match: re.Match[str]) -> str:
        target = match[1]
        page = target.removeprefix("docs/")
        return f"]({page})" if page != target else f"]({repository}/blob/main/{target})"

    return _LINK.sub(rewrite, text)
