"""Pin what users' programs depend on: commands with their options, keys of JSON files, the demonstration's outputs.

    python scripts/pins.py             compare with tests/expected; exit with 1 and a diff where they differ
    python scripts/pins.py --write     renew tests/expected, after a wanted change

The report's page is pinned by docs/example, the texts of the help by docs/reference/cli.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main
from typer.testing import CliRunner

from eclose.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPECTED = Path(__file__).parents[1] / "tests" / "expected"


def list_options(command: Any, words: tuple[str, ...] = ("eclose",)) -> Iterator[str]:
    """Yield a line for each command and for each of its parameters, with type and default."""
    yield " ".join(words)
    for parameter in sorted(command.params, key=lambda parameter: (parameter.param_type_name, parameter.name)):
        names = "/".join((*parameter.opts, *parameter.secondary_opts))
        default = "" if parameter.default is None or callable(parameter.default) else f" = {parameter.default!r}"
        notes = (" required" if parameter.required else "") + (" hidden" if getattr(parameter, "hidden", False) else "")
        yield f"    {names} <{parameter.bare_type()}>{default}{notes}"
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from list_options(child, (*words, name))


def list_objects(value: Any) -> Iterator[str]:
    """Yield the keys of each object of a JSON value; names of data, such as that of a system, are ``*``."""
    if isinstance(value, dict):
        yield " ".join(sorted({key if key.isidentifier() else "*" for key in value}))
        yield from (keys for entry in value.values() for keys in list_objects(entry))
    elif isinstance(value, list):
        yield from (keys for entry in value for keys in list_objects(entry))


def read_objects(path: Path) -> list[str]:
    """Return the kinds of objects of a JSON or JSON Lines file, each by its keys."""
    text = path.read_text("utf-8")
    values = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    return sorted({keys for value in values for keys in list_objects(value) if keys})


def make_pins() -> dict[str, str]:
    """Return each expected file's text as the program makes it today."""
    pins = {"options.txt": "\n".join(list_options(typer.main.get_command(app))) + "\n"}
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        run = CliRunner().invoke(app, ["demo"])
        if run.exit_code:
            sys.exit(f"`eclose demo` failed: {run.output}")
        gate = CliRunner().invoke(app, ["gate", "demo", "--min-trr", "0.85", "--max-lgg", "0.05"])
        compared = CliRunner().invoke(app, ["diagnose", "demo", "--against", "demo", "--out", "compared"])
        if compared.exit_code:
            sys.exit(f"`eclose diagnose` failed: {compared.output}")
        Path("gate.txt").write_text(gate.stdout, "utf-8")
        files = sorted([*Path("demo").rglob("*.json*"), *Path("compared").rglob("*.json")])
        pins["json_keys.txt"] = "".join(
            f"{path.as_posix()}\n" + "".join(f"    {keys}\n" for keys in read_objects(path)) for path in files
        )
        for path in (Path("demo/report/report.md"), Path("demo/report/tables.tex"), Path("gate.txt")):
            pins[path.name] = path.read_text("utf-8")
    return pins


def compare_pins(pins: dict[str, str]) -> str:
    """Return the differences from the expected files; empty where there is none."""
    present = {path.name: path.read_text("utf-8") for path in EXPECTED.glob("*.*")} if EXPECTED.is_dir() else {}
    return "".join(
        line
        for name in sorted({*pins, *present})
        for line in difflib.unified_diff(
            present.get(name, "").splitlines(keepends=True),
            pins.get(name, "").splitlines(keepends=True),
            f"tests/expected/{name}",
            "today",
        )
    )


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew tests/expected")
    options = parser.parse_args()
    pins = make_pins()
    if options.write:
        EXPECTED.mkdir(exist_ok=True)
        for name, text in pins.items():
            (EXPECTED / name).write_text(text, "utf-8")
        return 0
    print(difference := compare_pins(pins), end="")
    return int(bool(difference))


if __name__ == "__main__":
    sys.exit(main())
