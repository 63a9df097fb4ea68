"""The page of the architecture: the layers of the import contract, with the docstring of each package."""

from __future__ import annotations

import ast
import tomllib
from typing import TYPE_CHECKING

from pages import DOCS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "architecture.md"
SOURCE = ROOT / "src"
CONTRACT = "imports point downwards"
HEAD = """\
# Architecture

<!-- Generated from the import contract and the docstrings of packages by `make docs`; do not edit. -->

Files are the interface between stages. A stage reads records, writes records, and leaves a manifest with the hashes of
its inputs and settings, so a stage that is finished is not run again, and a result that does not belong to its inputs
is refused. Every call to a model goes through one ledger, which is why a run that was killed goes on without paying
twice.

```text
questions -> generate -> responses -> judge -> judgments -> diagnose -> report, gate
          -> construct -> families -> train -> select -> adapter -> switch test
responses -> annotate, label -> verdicts -> judge validate -> corrected rates
responses -> detect -> scores -> calibrate, choose, judge --only
traces of other tools -> data convert -> questions, responses
```

A command parses its options, calls a function of the same name, and prints. Functions take values or paths.

## Layers

A package imports from the layers below it, never from above or from its neighbours in the same row. `make check` holds
this, and that there are no cycles.

| layer | package | content |
|---|---|---|
"""
TAIL = """
`core` and `stats` are pure: no files, clock, network or global random state. `core` needs the standard library alone,
`stats` and `metrics` NumPy. Heavy libraries (PyTorch, Ray, SQLAlchemy, FastAPI) are imported where they are used and
installed by extras.

## Further

- [Decisions](decisions/README.md): what was chosen where there were alternatives, and why.
- [File formats](reference/formats.md): every file that commands read and write.
- [Contributing](contributing.md): where to add a benchmark, a metric, a command.
"""


def make_pages() -> dict[Path, str]:
    """Return the page."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["name"] == CONTRACT)
    rows = [
        f"| {number} | `{name.removeprefix('eclose.')}` | {read_summary(name)} |"
        for number, layer in zip(range(len(layers), 0, -1), layers, strict=True)
        for name in sorted(layer.split(" | "))
    ]
    return {PAGE: HEAD + "\n".join(rows) + "\n" + TAIL}


def read_summary(name: str) -> str:
    """Return the first sentence of a module's docstring."""
    path = SOURCE.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split())
