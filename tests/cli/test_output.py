"""Tables and progress: rich on a terminal, plain everywhere else."""

from __future__ import annotations

import io
import sys

import pytest

from eclosure.cli.output import counted, print_table


class Terminal(io.StringIO):
    def isatty(self):
        return True


ROWS = [("HotpotQA", "300", "2 [2-2]"), ("MuSiQue", "1,000", "-")]


def test_plain_text_is_aligned_and_bare(capsys):
    print_table("Title", ("benchmark", "n", "supporting"), ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "Title",
        "benchmark      n  supporting",
        "HotpotQA     300     2 [2-2]",
        "MuSiQue    1,000           -",
    ]


def test_a_table_without_rows_is_its_head(capsys):
    print_table("Title", ("a", "b"), [])
    assert capsys.readouterr().out.splitlines() == ["Title", "a  b"]


def test_a_terminal_gets_a_table_with_lines(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table("Title", ("benchmark", "n", "supporting"), ROWS)
    shown = terminal.getvalue()
    assert "│ HotpotQA" in shown
    assert "2 [2-2]" in shown  # not taken for markup


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_passes_everything_on_and_shows_on_terminals_only(monkeypatch, stream):
    error = stream()
    monkeypatch.setattr(sys, "stderr", error)
    assert list(counted(range(2_500), "reading")) == list(range(2_500))
    assert bool(error.getvalue()) == error.isatty()
