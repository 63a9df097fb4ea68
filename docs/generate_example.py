"""Write docs/example/report.html, the report that `eclose demo` ends with, or with --check fail when it is stale."""

from __future__ import annotations

import base64
import re
import sys
import tempfile
import zlib
from pathlib import Path

from typer.testing import CliRunner

from eclose.cli.main import app

TARGET = Path(__file__).parent / "example" / "report.html"
_BLOCK = re.compile(r"(?<=>)[A-Za-z0-9+/=\s]{200,}(?=<)")


def page() -> str:
    """The page as the command makes it."""
    with tempfile.TemporaryDirectory() as name:
        result = CliRunner().invoke(app, ["demo", "--out", str(Path(name) / "demo")])
        if result.exit_code:
            raise SystemExit(f"`eclose demo` failed: {result.output}")
        return (Path(name) / "demo" / "report" / "report.html").read_text("utf-8")


def unpacked(html: str) -> str:
    """The page with its data as text: two builds of zlib pack the same data into different bytes."""
    return _BLOCK.sub(lambda block: zlib.decompress(base64.b64decode(block[0])).decode("utf-8", "replace"), html)


def main() -> int:
    """The exit code."""
    made = page()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(made, "utf-8")
        return 0
    if TARGET.exists() and unpacked(TARGET.read_text("utf-8")) == unpacked(made):
        return 0
    sys.stderr.write("docs/example/report.html is stale: run `make docs`.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
