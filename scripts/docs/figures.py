"""Draw the figures of the documentation, each for light and for dark pages (``make pictures``).

    python scripts/docs/figures.py                   all of them
    python scripts/docs/figures.py terminal tree     some of them: terminal, report, annotation, tree

The terminal shows what ``eclose demo`` and ``eclose gate`` print; report and annotation page are photographed in
Chromium; the tree is that of a family of the world. Needs playwright, Chromium and SmolLM2-135M (``make setup``).
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of perf

import token_tree_figure as tree_figure
from pages import DOCS
from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from eclose.calls.local.weights import load_tokenizer
from studies.perf.tree_cost import packaged_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIGURES = DOCS / "figures"
SCHEMES = ("light", "dark")
PARTS = ("terminal", "report", "annotation", "tree")
LARGEST = 300_000
"""Most bytes of a figure: pages are read over slow connections too."""
WIDTH = 104
"""Columns of the terminal."""
GATE = ("gate", "demo", "--min-trr", "0.85", "--max-lgg", "0.05")
EXCERPTS = (("600 responses", "Validated against people"), ("The judge errs in", "Open demo/report/report.html"))
"""Beginnings of the first and the last line of the parts that are shown of the demonstration."""
PROGRAM = "import sys; from eclose.cli.main import main; sys.exit(main())"
# Rich's own template loads a font from the network.
SVG_FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
role="img" aria-label="Terminal with the output of eclose demo and eclose gate">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
 font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_in_terminal(arguments: Sequence[str], folder: Path) -> str:
    """Return what a command prints on a terminal, with its colours; exit codes of a gate are no failure."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    # Progress bars go to the error stream, where there is no terminal.
    process = subprocess.Popen(command, cwd=folder, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    chunks = []
    while True:
        try:
            chunk = os.read(reader, 65_536)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(reader)
    if process.wait() not in (0, 100, 101):
        raise SystemExit(f"`eclose {' '.join(arguments)}` failed: {process.stderr.read() if process.stderr else ''!r}")
    text = b"".join(chunks).decode("utf-8").replace("\r\n", "\n")
    return text.replace(str(folder.resolve()), "/home/you")


def draw_terminal(folder: Path) -> dict[str, str]:
    """Return the pictures of the terminal by scheme."""
    themes = {
        "light": TerminalTheme((255, 255, 255), (36, 41, 47), *_LIGHT_COLOURS),
        "dark": TerminalTheme((13, 17, 23), (230, 237, 243), *_DARK_COLOURS),
    }
    lines = ["\x1b[1m$ eclose demo\x1b[0m"]
    output = run_in_terminal(["demo"], folder).splitlines()
    for first, last in EXCERPTS:
        start = next(number for number, line in enumerate(output) if line.startswith(first))
        stop = next(number for number, line in enumerate(output) if line.startswith(last))
        lines += ["\x1b[2m⋮\x1b[0m", *output[start : stop + 1]]
    lines += ["", f"\x1b[1m$ eclose {' '.join(GATE)}\x1b[0m", *run_in_terminal(GATE, folder).splitlines()]
    text = "\n".join(lines)
    pictures = {}
    for scheme, theme in themes.items():
        console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
        console.print(Text.from_ansi(text))
        svg = console.export_svg(title="", theme=theme, code_format=SVG_FORMAT, unique_id="terminal")
        pictures[scheme] = re.sub(r"[ \t]+\n", "\n", svg)
    return pictures


_GREY = [(0, 0, 0), (207, 34, 46), (17, 99, 41), (130, 80, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131)]
_LIGHT_COLOURS = ([*_GREY, (110, 119, 129)], [*_GREY, (87, 96, 106)])
_BRIGHT = [
    (72, 79, 88),
    (255, 123, 114),
    (63, 185, 80),
    (210, 153, 34),
    (88, 166, 255),
    (188, 140, 255),
    (57, 197, 207),
]
_DARK_COLOURS = ([*_BRIGHT, (177, 186, 196)], [*_BRIGHT, (240, 246, 252)])


@contextmanager
def open_tab(browser: Any, scheme: str, width: int, height: int) -> Iterator[Any]:
    """Open a tab that prefers a colour scheme."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    try:
        yield context.new_page()
    finally:
        context.close()


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def draw_report(browser: Any, scheme: str) -> bytes:
    """Return the first screen of the committed example report."""
    with open_tab(browser, scheme, 1280, 1005) as tab:
        tab.goto((DOCS / "example" / "report.html").resolve().as_uri())
        tab.wait_for_selector("html[data-ready]")
        picture: bytes = tab.screenshot()
        return picture


@contextmanager
def serve_labels(folder: Path) -> Iterator[str]:
    """Run ``eclose label`` on the demonstration and yield the address of its page, which works once."""
    command = [sys.executable, "-u", "-c", PROGRAM, "label", "demo", "--n", "20", "--steps", "--no-browser"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        output = ""
        for line in process.stdout:
            output += line
            if match := re.search(r"Open (http://\S+)", line):
                yield match[1]
                return
        raise SystemExit(f"`eclose label` failed: {output}")
    finally:
        process.terminate()
        process.wait()


def draw_annotation(browser: Any, folder: Path) -> dict[str, bytes]:
    """Return the labelling page by scheme: one step labelled, and the passages searched for the next."""
    pictures = {}
    with serve_labels(folder) as address, open_tab(browser, SCHEMES[0], 1280, 860) as tab:
        tab.goto(address)
        tab.click("text=Begin")
        tab.wait_for_selector("text=Local soundness")
        # Substantive and sound, the next step substantive, then a search for its words.
        for key in "yyyf":
            tab.keyboard.press(key)
        tab.wait_for_selector("text=saved")
        for scheme in SCHEMES:
            tab.emulate_media(color_scheme=scheme)
            pictures[scheme] = tab.screenshot()
    return pictures


def save_picture(name: str, data: bytes) -> None:
    """Write a screenshot with a palette, which makes it a third as large."""
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    counts: Any = picture.getcolors(picture.width * picture.height)
    # Half of the palette holds the backgrounds, the rest covers the rare colours, which a median cut would lose.
    frequent = [channel for _, colour in sorted(counts, reverse=True)[:128] for channel in colour]
    covering = picture.quantize(128, Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*frequent, *covering[: 3 * 128]])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(FIGURES / name, optimize=True)


def draw_trees() -> dict[str, str]:
    """Return the pictures of the prefix tree by scheme."""
    tokenizer = load_tokenizer(packaged_weights())
    scores = tree_figure.make_scores(tokenizer)
    chains = tree_figure.build_chains(scores, tokenizer)
    palettes = {"light": tree_figure.LIGHT, "dark": tree_figure.DARK}
    return {scheme: tree_figure.draw_tree(scores, chains, palette) for scheme, palette in palettes.items()}


def main() -> int:
    """Draw the figures named on the command line, or all; return 1 where one is too large."""
    parts = sys.argv[1:] or PARTS
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "terminal" in parts:
            for scheme, svg in draw_terminal(folder).items():
                (FIGURES / f"terminal-{scheme}.svg").write_text(svg, "utf-8")
        if {"report", "annotation"} & set(parts):
            if "annotation" in parts and not (folder / "demo").exists():
                run_in_terminal(["demo"], folder)
            with open_browser() as browser:
                if "report" in parts:
                    for scheme in SCHEMES:
                        save_picture(f"report-{scheme}.png", draw_report(browser, scheme))
                if "annotation" in parts:
                    for scheme, data in draw_annotation(browser, folder).items():
                        save_picture(f"annotation-{scheme}.png", data)
    if "tree" in parts:
        for scheme, svg in draw_trees().items():
            (FIGURES / f"token_tree-{scheme}.svg").write_text(svg, "utf-8")
    large = [path.name for path in FIGURES.glob("*-*.*") if path.stat().st_size > LARGEST]
    for path in large:
        print(f"{path} has more than {LARGEST:,} bytes", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
