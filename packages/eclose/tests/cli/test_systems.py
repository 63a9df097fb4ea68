"""Systems other than Linux, as far as they can be simulated: a command works, or refuses in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.cli.shared.model_options import warn_about_network_file
from tests.generating import questions, server

WINDOWS = '''
"""Run the command as on Windows: no fcntl and the like, no signals in event loops, locks by msvcrt."""
import asyncio, os, signal, sys, types

class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("fcntl", "pwd", "grp", "resource", "termios"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import aiohttp, openai, rich.console, sqlalchemy, subprocess, tempfile  # they know the system by themselves
for name in ("fcntl", "pwd", "grp", "resource", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent)
for name in ("pread", "pwrite", "fork"):
    delattr(os, name)
del signal.SIGHUP
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, LK_LOCK=1, LK_UNLCK=0, locking=lambda *_: None)

def refuse(*_):
    raise NotImplementedError

asyncio.SelectorEventLoop.add_signal_handler = refuse
asyncio.SelectorEventLoop.remove_signal_handler = refuse
from eclose.cli.main import main
main()
'''


def run(folder, *words, program=WINDOWS, **environment):
    source = str(Path(eclose.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("systems")
    questions(folder / "instances.jsonl", 3)
    words = ["world", "make", "--questions", "3", "--sources", "2", "--out", str(folder / "made")]
    assert CliRunner().invoke(app, words).exit_code == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("generate", "instances.jsonl", "--model", "world"),
        ("judge", "made", "--judge", "world"),
        ("screen", "instances.jsonl", "--judge", "world"),
        ("construct", "made/sources.jsonl", "--constructor", "world", "--verifier", "world"),
    ],
    ids=lambda words: words[0],
)
def test_on_windows_a_command_works_or_refuses_in_one_sentence(folder, words):
    with server() as model:
        process = run(folder, *words, "--base-url", model.base_url, "--no-price", "--out", f"out-{words[0]}")
    assert "Traceback" not in process.stderr, process.stderr
    assert process.returncode in (0, 2, 3), process.stderr
    if process.returncode == 2:
        assert len(process.stderr.splitlines()) == 1, process.stderr
        assert "Windows" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("annotate", "init", "project", "made"), ("label", "made", "--no-browser")])
def test_annotation_is_refused_on_windows_in_one_sentence(folder, words):
    process = run(folder, *words)
    assert process.returncode == 2, process.stderr
    (sentence,) = process.stderr.splitlines()
    assert "Linux or macOS; on Windows, use WSL" in sentence


@pytest.mark.slow
def test_a_terminal_that_cannot_show_a_character_gets_an_escape(folder):
    program = "from eclose.cli.main import main; main()"
    process = run(folder, "data", "validate", "東京.jsonl", program=program, PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
    assert "Traceback" not in process.stderr, process.stderr
    assert process.returncode == 2
    assert r"\u6771\u4eac.jsonl" in process.stdout + process.stderr


def test_a_ledger_on_a_network_file_system_is_warned_of(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("eclose.calls.ledger.database.detect_network_file_system", lambda _: "nfs4")
    warn_about_network_file(None, tmp_path)
    warning = capsys.readouterr().err
    assert f"{tmp_path / 'ledger.sqlite'} is on a network file system (nfs4)" in warning
    assert "--ledger" in warning
    warn_about_network_file("postgresql://host/x", tmp_path)
    assert capsys.readouterr().err == ""
