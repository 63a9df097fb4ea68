"""The example report: what ``eclose demo`` ends with."""

from __future__ import annotations

import base64
import re
import tempfile
import zlib
from pathlib import Path

from pages import DOCS
from typer.testing import CliRunner

from eclose.cli.main import app

TARGET = DOCS / "example" / "report.html"
_BLOCK = re.compile(r"(?<=>)[A-Za-z0-9+/=\s]{200,}(?=<)")


def make_report() -> str:
    """Return the report as the command makes it."""
    with tempfile.TemporaryDirectory() as name:
        result = CliRunner().invoke(app, ["demo", "--out", str(Path(name) / "demo")])
        if result.exit_code:
            raise SystemExit(f"`eclose demo` failed: {result.output}")
        return (Path(name) / "demo" / "report" / "report.html").read_text("utf-8")


def unpack_data(html: str) -> str:
    """Return a report with its data as text: two builds of zlib pack the same data into different bytes."""
    return _BLOCK.sub(lambda block: zlib.decompress(base64.b64decode(block[0])).decode("utf-8", "replace"), html)


def is_stale(report: str) -> bool:
    """Return whether the committed report differs from this one."""
    return not TARGET.is_file() or unpack_data(TARGET.read_text("utf-8")) != unpack_data(report)
