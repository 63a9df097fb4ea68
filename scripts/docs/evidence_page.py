"""The page of claims: the last line of every record, with the command that made it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pages import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECORDS = DOCS / "records"
PAGE = DOCS / "evidence.md"
HEAD = """\
# Evidence

Generated from [docs/records](https://github.com/eclose/eclose/tree/main/docs/records) by `make docs`; do not edit.

Each row is a claim of this project, held against a goal by a script whose last line of output is the row. The record
has the whole output. `make figures` and `make campaigns` measure the claims on your machine; the scripts fail where a
goal is missed.

| claim | measured | goal | holds | record |
|---|---|---|---|---|
"""
TAIL = """
## Not run

Everything above was measured on two processor cores without a GPU. These parts are written and tested up to the call
of the kernel or of the provider, and no claim is made about them:

- training, generation and scoring on GPUs, in 4 bits, with flash attention or on several devices;
- vLLM, and judges of OpenAI, Anthropic, Google and other providers. The judges that were measured are the synthetic
  world's, small open models on this page's machine, and simulated people;
- the paper's study at its full size.

The [paper index](paper-index.md) lists each formula, protocol and table of the paper with the tests that recompute
it.
"""


def read_claims(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the claims of a record: its lines that are objects with a name, a value and a goal."""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith('{"name"'):
            claim = json.loads(line)
            if {"name", "value", "unit", "goal", "holds"} <= claim.keys():
                yield claim


def make_pages() -> dict[Path, str]:
    """Return the page."""
    rows = [_format_row(path, claim) for path in sorted(RECORDS.glob("*.txt")) for claim in read_claims(path)]
    return {PAGE: HEAD + "\n".join(rows) + "\n" + TAIL}


def _format_row(path: Path, claim: dict[str, Any]) -> str:
    cells = [
        claim["name"],
        f"{claim['value']:,} {claim['unit']}",
        claim["goal"],
        "yes" if claim["holds"] else "**no**",
        f"[{path.stem}](records/{path.name})",
    ]
    return f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |"
