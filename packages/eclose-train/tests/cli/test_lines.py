"""A family as text: marks off a terminal, colours on one, and no line that passes for another."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from eclose.values.instance import Passage
from eclose_train.cli.lines import WIDTH, format_plain_line, list_family_lines, print_family
from eclose_train.construction.view import make_family_display
from tests.construction.family_making import full_family, hostile_family
from tests.report.hostile import PAYLOADS
from tests.tables import each_row


def text(family, **options):
    return "\n".join(format_plain_line(line) for line in list_family_lines(make_family_display(family), **options))


def test_everything_is_told():
    output = text(full_family())
    for part in (
        "family-q\nsource q · dataset harbours · kind bridge · hops 2 · reference Arica · also accepted Arica, Chile\n",
        "  2. Ana Ruiz was born in [-Arica-]{+Iquique+}.\n"
        "     rests on [2] Ana Ruiz · the first step that depends on the change\n",
        "            claim: Ana Ruiz, born in Arica, left Arica early.\n"
        "            [-Arica-] became {+Iquique+}\n"
        "            kept: The Arica Prize\n",
        "  2. {+Bo Lund grew up in Lima.+}\n     rests on step 1\n     step 2 of Gold has no counterpart here\n",
        "  1. Ana Ruiz [-was born in-]{+left+} Arica.\n     rests on [2] Ana Ruiz · step 2 of Gold\n",
        "  [2] Ana Ruiz  supports every view · changed in Evidence-CF 1\n"
        "      Ana Ruiz, born in [-Arica-]{+Iquique+}, left [-Arica-]{+Iquique+} early. The Arica Prize is hers.\n",
        "  Is it a clean change of the evidence?  Evidence-CF 2\n"
        "    screen_evidence by house/judge: objections: original_after\n",
        "      closure: original yes, edited yes, original_to_edited no, edited_to_original no - because\n",
        "verify_question by house/second, once more: no objection\n",
        "  attempts: target 1, evidence 2\n",
    ):
        assert part in output


def test_other_passages_are_listed_and_shown_when_asked_for():
    assert "1 other passage (--all shows their text)\n  [1] Arica\n\n" in text(full_family())
    assert "1 other passage\n  [1] Arica\n      Arica is a port in Chile. It is small.\n" in text(
        full_family(), everything=True
    )


def test_a_bare_family_is_told_without_empty_parts():
    family = full_family()
    edits = tuple(replace(edit, intervention=None, view=replace(edit.view, proof=())) for edit in family.evidence_edits)
    output = text(replace(family, findings=(), provenance=None, evidence_edits=edits))
    assert "the changed claim is not recorded" in output
    assert "what the steps rest on is not recorded" in output
    assert "Findings" not in output
    assert "Provenance" not in output


def test_a_gate_that_fails_is_told_first():
    family = full_family()
    output_lines = text(replace(family, gold=replace(family.gold, answer="Lima"))).splitlines()
    assert output_lines[2].startswith("fails a gate: gold: gold_answer:")


@each_row(PAYLOADS)
def test_hostile_text_reaches_no_terminal(payload):
    output = text(hostile_family(1, payload), everything=True)
    assert all(line.isprintable() for line in output.split("\n"))


def test_a_text_with_line_breaks_cannot_pass_for_a_line_of_ours():
    family = full_family()
    gold = replace(
        family.gold,
        question="What?\nGold",
        evidence=(*family.gold.evidence, Passage("x", "A\nFindings", "One.\n\nFindings\nTwo.")),
    )
    output_lines = text(replace(family, gold=gold), everything=True).split("\n")
    assert output_lines.count("Findings") == 1
    assert "      Findings" in output_lines
    assert output_lines.count("Gold") == 1
    assert "            Gold" in output_lines
    assert any(line.endswith("A\\nFindings  not in Evidence-CF 1, Evidence-CF 2, Question-CF") for line in output_lines)


def test_on_a_terminal_words_are_coloured_and_lines_folded(monkeypatch, capsys):
    class Terminal:
        """Standard output as it was caught, but a terminal."""

        def __init__(self, stream):
            self.stream = stream

        def __getattr__(self, name):
            return getattr(self.stream, name)

        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Terminal(sys.stdout))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_family(make_family_display(full_family()))
    output = capsys.readouterr().out
    assert "\x1b[9;31mArica\x1b[0m \x1b[1;32mIquique\x1b[0m" in output
    assert "[-" not in output
    lines = re.sub(r"\x1b\[[\d;]*m", "", output).split("\n")
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "family-q"
    # A terminal that knows no style is given marks.
    monkeypatch.setenv("TERM", "dumb")
    print_family(make_family_display(full_family()))
    assert "[-Arica-]{+Iquique+}" in capsys.readouterr().out
