"""The page of the architecture: houses and their rooms, in the order of the import contracts."""

from __future__ import annotations

import ast
import tomllib
from typing import TYPE_CHECKING

from pages import DOCS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "architecture.md"
CONTRACTS = {house: f"imports of {house} point downwards" for house in ("eclose", "eclose_train")}
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

## Houses

One repository holds four distributions of one version. Each has a README of a screen and its own tests.

| house | import name | installed by | imports |
|---|---|---|---|
| eclose | `eclose` | `pip install eclose` | no other house |
| eclose-train | `eclose_train` | `eclose[train]`, `eclose[construct]` without torch | `eclose` |
| eclose-annotate | `eclose_annotate` | `eclose[annotate]` | `eclose` |
| eclose-world | `eclose_world` | `eclose[world]` | `eclose`, `eclose_train`; only tests import it |

`eclose` finds commands of the others by the entry points `eclose.commands`, and detectors by `eclose.detectors`.

## Rooms

A room imports from the layers below it, never from above or from its neighbours in the same row. `make check` holds
this, and that there are no cycles.
"""
TAIL = """
`values` and `stats` are pure: no files, clock, network or global random state. `values` needs the standard library
alone, `stats` and `metrics` NumPy. Heavy libraries (PyTorch, Ray, SQLAlchemy, FastAPI) are imported where they are
used and installed by extras.

## Further

- [Decisions](decisions/README.md): what was chosen where there were alternatives, and why.
- [File formats](reference/formats.md): every file that commands read and write.
- [Contributing](contributing.md): how to set up, test and write code; the README of each house says where to add what.
"""


def make_pages() -> dict[Path, str]:
    """Return the page."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = {contract["name"]: contract["layers"] for contract in settings["contracts"] if "layers" in contract}
    tables = [_format_table(house, layers[name]) for house, name in CONTRACTS.items()]
    tables.append(_format_table("eclose_annotate", [" | ".join(list_rooms("eclose_annotate"))]))
    tables.append(_format_table("eclose_world", [" | ".join(list_rooms("eclose_world"))]))
    return {PAGE: HEAD + "".join(tables) + TAIL}


def _format_table(house: str, layers: list[str]) -> str:
    rows = [
        f"| {number} | `{name.removeprefix(f'{house}.')}` | {read_summary(name)} |\n"
        for number, layer in zip(range(len(layers), 0, -1), layers, strict=True)
        for name in sorted(layer.split(" | "))
    ]
    return f"\n### {house}\n\n| layer | room | content |\n|---|---|---|\n" + "".join(rows)


def find_source(house: str) -> Path:
    """Return the folder of a package."""
    return ROOT / "packages" / house.replace("_", "-") / "src" / house


def list_rooms(house: str) -> list[str]:
    """Return the names of the folders of a house."""
    return sorted(f"{house}.{path.parent.name}" for path in find_source(house).glob("*/__init__.py"))


def read_summary(name: str) -> str:
    """Return the first sentence of a module's docstring."""
    house, *parts = name.split(".")
    path = find_source(house).joinpath(*parts)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    doc = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split())
