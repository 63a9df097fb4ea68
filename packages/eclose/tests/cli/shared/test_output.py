"""Tables and progress: rich on a terminal, plain everywhere else."""

from __future__ import annotations

import io
import re
import sys

import pytest

from eclose.cli.shared.output import escape_invisible, format_count, print_table, show_record_count


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
    output = terminal.getvalue()
    assert "│ HotpotQA" in output
    assert "2 [2-2]" in output  # not taken for markup


WIDE = [(name, *[f"{number}.{digit} (1,234/5,678, +9)" for digit in range(7)]) for number, name in enumerate("abcde")]
HEADS = ("group", *[f"metric{digit}" for digit in range(7)])


def shown(monkeypatch, width, columns, rows):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    print_table("Title", columns, rows)
    return terminal.getvalue()


@pytest.mark.parametrize("width", [300, 230, 120, 80, 40, 10])
def test_no_terminal_is_too_narrow_for_a_number(monkeypatch, width):
    text = re.sub(r"\x1b\[\d*m", "", shown(monkeypatch, width, HEADS, WIDE))
    for row in WIDE:
        for cell in row:
            assert cell in text
    assert "…" not in text
    if width >= 40:  # the name of a metric and one column of numbers
        assert max(map(len, text.splitlines())) <= width


def test_a_wide_table_is_turned_on_its_side(monkeypatch):
    columns = ("benchmark", "n", "passages")
    turned = shown(monkeypatch, 22, columns, [("HotpotQA", "50", "2 [2-2]"), ("B", "7", "3 [2-3]")])
    assert turned.splitlines() == [
        "Title",
        "benchmark  HotpotQA",
        "n                50",
        "passages    2 [2-2]",
        "",
        "benchmark        B",
        "n                7",
        "passages   3 [2-3]",
    ]


def test_a_table_that_just_fits_does_without_its_frame(monkeypatch):
    plain = shown(monkeypatch, 30, ("benchmark", "n", "supporting"), ROWS)
    assert plain.splitlines()[2] == "HotpotQA     300     2 [2-2]"


def test_cells_are_made_printable(capsys):
    print_table("Title", ("name", "n"), [("\x1b[31mred\x07\r\n\u202e", "1")])
    out = capsys.readouterr().out
    assert out.splitlines()[2] == r"\x1b[31mred\x07\r\n\u202e  1"


def test_what_can_be_seen_stays_as_it_is(capsys):
    assert escape_invisible("Ça, 東京\u3000\u00a0 é 🎬") == "Ça, 東京\u3000\u00a0 é 🎬"
    assert escape_invisible("\ud800\x7f") == r"\ud800\x7f"
    print_table("Title", ("name", "n"), [("東京", "1"), ("e\u0301a", "2")])
    assert capsys.readouterr().out.splitlines()[2:] == ["東京  1", "e\u0301a    2"]


def test_one_is_no_plural():
    assert [format_count(count, "question") for count in (0, 1, 2, 1_000)] == [
        "0 questions",
        "1 question",
        "2 questions",
        "1,000 questions",
    ]


def test_progress_takes_a_label_as_it_is(monkeypatch):
    error = Terminal()
    monkeypatch.setattr(sys, "stderr", error)
    assert list(show_record_count(range(1_000), "reading [bold]\x1b]0;x\x07.jsonl")) == list(range(1_000))
    assert "\x1b]0;x" not in error.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_passes_everything_on_and_shows_on_terminals_only(monkeypatch, stream):
    error = stream()
    monkeypatch.setattr(sys, "stderr", error)
    assert list(show_record_count(range(2_500), "reading")) == list(range(2_500))
    assert bool(error.getvalue()) == error.isatty()
