"""Run the tutorials, which are notebooks in percent format, and write them as pages with their output.

    python scripts/docs/tutorial_pages.py            # all
    python scripts/docs/tutorial_pages.py find_the_gap

A cell begins with ``# %%``; ``# %% [markdown]`` begins a cell of text. The value of the last expression of a cell is
shown, and a figure of Matplotlib is saved beside the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from pages import DOCS, ROOT, write_pages

FOLDER = DOCS / "tutorials"
FIGURES = FOLDER / "figures"
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


class Cell(NamedTuple):
    """A cell of a tutorial: text, or code."""

    source: str
    is_text: bool


def list_tutorials() -> list[Path]:
    """Return the files of all tutorials."""
    return sorted(FOLDER.glob("*.py"))


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a tutorial, with text as Markdown."""
    _, *parts = _CELL.split(path.read_text("utf-8"))
    cells = []
    for kind, source in zip(parts[::2], parts[1::2], strict=True):
        is_text = "[markdown]" in kind
        lines = source.strip().splitlines()
        cells.append(
            Cell("\n".join(re.sub("^# ?", "", line) for line in lines) if is_text else "\n".join(lines), is_text)
        )
    return cells


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run the code of a cell; return what it prints and the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if isinstance(last, ast.Expr):
        tree.body.pop()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "<cell>", "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return printed.getvalue(), value


def render_tutorial(path: Path) -> dict[Path, str]:
    """Run a tutorial in a temporary folder; return its page and figures by their paths."""
    pages: dict[Path, str] = {}
    parts = []
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in read_cells(path):
            if cell.is_text:
                parts.append(cell.source)
                continue
            parts.append(f"```python\n{cell.source}\n```")
            printed, value = run_cell(cell.source, names)
            if type(value).__name__ == "Figure":
                figure = FIGURES / f"{path.stem}-{len(pages) + 1}.svg"
                pages[figure] = _draw_svg(value)
                parts.append(f"![{_find_title(value)}](figures/{figure.name})")
            else:
                output = (printed + ("" if value is None else f"{value!r}\n")).replace(os.path.realpath(folder), ".")
                if output:
                    parts.append(f"```text\n{output.rstrip()}\n```")
    source = f"Generated from [{path.name}]({path.name}) by `make tutorials`; do not edit."
    title, *rest = parts[0].split("\n", 1)
    parts[0] = "\n\n".join([title, source, *(text.strip() for text in rest)])
    return {path.with_suffix(".md"): "\n\n".join(parts) + "\n", **pages}


def _find_title(figure: Any) -> str:
    return next((axes.get_title(loc="left") or axes.get_title() for axes in figure.axes), "figure")


def _draw_svg(figure: Any) -> str:
    """Draw a figure as SVG, the same bytes for the same figure."""
    import matplotlib as mpl  # noqa: PLC0415 - only tutorials with figures need it

    with mpl.rc_context({"svg.hashsalt": "eclose"}):
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return "\n".join(line.rstrip() for line in drawing.getvalue().splitlines()) + "\n"


def main() -> int:
    """Run the tutorials that are named, or all, and write their pages."""
    stems = sys.argv[1:]
    for path in list_tutorials():
        if not stems or path.stem in stems:
            print(path.relative_to(ROOT), file=sys.stderr)
            write_pages(render_tutorial(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
