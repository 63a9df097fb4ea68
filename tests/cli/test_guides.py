"""What guides show on a console is what the commands print, typed in an empty folder one after the other."""

from __future__ import annotations

import ast
import asyncio
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
from tests.generating import questions, server
from typer.testing import CliRunner

from eclosure.cli.main import app

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page):
    """Each command of a page with the lines shown below it."""
    for block in BLOCK.findall((ROOT / page).read_text("utf-8")):
        for part in block.split("$ ")[1:]:
            command, *shown = part.splitlines()
            yield shlex.split(command), shown


@pytest.mark.parametrize("page", ["README.md", "docs/guides/data.md"])
def test_a_console_shows_what_is_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = 0
    for (program, *arguments), shown in commands(page):
        if program == "cat":
            Path(arguments[0]).write_text("\n".join(shown) + "\n")
            continue
        printed = CliRunner().invoke(app, arguments).output.splitlines()
        if shown[-1] == "...":
            printed[len(shown) - 1 :] = ["..."]
        assert printed == shown, arguments
        ran += 1
    assert ran


def test_the_lines_that_talk_to_the_model_run(tmp_path):
    page = (ROOT / "docs" / "guides" / "world.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(from openai.*?)^```$", page, re.MULTILINE | re.DOTALL)
    CliRunner().invoke(app, ["world", "make", "--questions", "1", "--out", str(tmp_path / "world")])
    server = subprocess.Popen(
        [sys.executable, "-m", "eclosure.cli.main", "world", "serve"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        assert "http://127.0.0.1:8642/v1" in code
        code = code.replace("http://127.0.0.1:8642/v1", address)
        said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        server.terminate()
        server.wait(timeout=10)
        server.stdout.close()
    assert said.stderr == ""
    assert "\nFinal answer: " in said.stdout


@pytest.mark.slow
def test_the_lines_that_generate_from_python_run(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "guides" / "generate.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    questions(tmp_path / "instances.jsonl", 2)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with server() as model:
        monkeypatch.setenv("ECLOSURE_BASE_URL", model.base_url)
        compiled = compile(code, "generate.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        asyncio.run(types.FunctionType(compiled, names)())
    assert names["done"].manifest.counts.accepted == 2
