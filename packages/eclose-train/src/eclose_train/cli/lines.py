"""A family as lines of text, for ``eclose families show``.

On a terminal, lines are folded, and changed words are coloured: struck out where removed, bold where new. Elsewhere a
paragraph is one line, and changed words are written as ``[-old-]`` and ``{+new+}``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import typer

from eclose.cli.shared.output import escape_invisible, format_count
from eclose.report.word_diff import DiffMark, has_word_changes, mark_text_unchanged
from eclose_train.construction.findings import BAD, GOOD
from eclose_train.construction.view import GOLD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from eclose.report.word_diff import MarkedText
    from eclose_train.construction.findings import FindingDisplay, FindingPartDisplay
    from eclose_train.construction.view import FamilyDisplay, PassageDisplay, StepDisplay, ViewDisplay, ViewEditDisplay

WIDTH = 100
"""Widest line in columns; wider ones are hard to read."""

HEAD, SOFT = "head", "soft"
# The marks of `git diff --word-diff`, which survive copying, pipes and terminals without colours.
_MARKS: dict[str, str] = {DiffMark.OLD: "[-{}-]", DiffMark.NEW: "{{+{}+}}"}
_COLOURS: dict[str, str] = {
    DiffMark.OLD: "red strike",
    DiffMark.NEW: "bold green",
    GOOD: "green",
    BAD: "bold red",
    HEAD: "bold",
    SOFT: "dim",
}

Spans: TypeAlias = "tuple[tuple[str, str], ...]"
"""Pieces of text, each with its kind: a ``DiffMark``, a tone, ``HEAD`` or ``SOFT``."""


class FamilyLine(NamedTuple):
    """A paragraph: its indentation, a label, and its text. Folded lines begin below the text."""

    indent: int
    label: str
    spans: Spans
    style: str = ""
    """Style of the label."""


def print_family(family: FamilyDisplay, *, everything: bool = False) -> None:
    """Print a family; ``everything`` also prints the text of passages that no answer rests on."""
    from rich.console import Console

    console = Console(highlight=False)
    # On a terminal without styles, old and new words would look alike.
    styled = sys.stdout.isatty() and console.color_system is not None
    for line in list_family_lines(family, everything=everything):
        if styled:
            _print_styled(console, line)
        else:
            typer.echo(format_plain_line(line))


def format_plain_line(line: FamilyLine) -> str:
    """Return the line with marks in place of colours."""
    text = "".join(_MARKS.get(kind, "{}").format(escape_invisible(text)) for text, kind in line.spans)
    return (" " * line.indent + escape_invisible(line.label) + text).rstrip()


def _print_styled(console: Console, line: FamilyLine) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    text, label = Text(), " " * line.indent + escape_invisible(line.label)
    before = ""
    for part, kind in line.spans:
        # Without a blank between them, the old and the new word would read as one.
        text.append(" " if (before, kind) == (DiffMark.OLD, DiffMark.NEW) else "")
        text.append(escape_invisible(part), _COLOURS.get(kind, ""))
        before = kind
    folded = Table.grid()
    if label:
        folded.add_column(width=cell_len(label), no_wrap=True)
    folded.add_column(overflow="fold")
    folded.add_row(*([Text(label, _COLOURS.get(line.style, ""))] if label else ()), text)
    console.print(folded, width=min(console.width, WIDTH))


# --- the paragraphs, in order ----------------------------------------------------------------------------------------


def list_family_lines(family: FamilyDisplay, *, everything: bool = False) -> Iterator[FamilyLine]:
    """Yield a family paragraph by paragraph."""
    yield _line(0, "", (family.id, HEAD))
    yield _line(0, "", (" · ".join(f"{name} {value}" for name, value in family.facts), SOFT))
    for failure in family.failures:
        yield _line(0, "fails a gate: ", (failure, BAD))
    for view in family.views:
        yield _line(0)
        yield from _view(view)
    yield from _passages(family, everything=everything)
    if family.findings:
        yield _line(0)
        yield _line(0, "", ("Findings", HEAD))
    for finding in family.findings:
        yield from _finding(finding)
    if family.provenance:
        yield _line(0)
        yield _line(0, "", ("Provenance", HEAD))
    for name, value in family.provenance:
        yield _line(2, f"{name}: ", (value, ""))


def _line(indent: int, label: str = "", *spans: tuple[str, str], style: str = "") -> FamilyLine:
    return FamilyLine(indent, label, spans, style)


def _text(indent: int, label: str, words: MarkedText, *, quiet: bool = False) -> Iterator[FamilyLine]:
    """Return the lines of a text with its marks; ``quiet`` dims unchanged words."""
    spans = ((piece.text, SOFT if quiet and piece.mark is DiffMark.SAME else piece.mark) for piece in words)
    return _broken(indent, label, spans)


def _broken(indent: int, label: str, spans: Iterable[tuple[str, str]]) -> Iterator[FamilyLine]:
    """Yield a line for each line of a text, indented like the first: a text cannot imitate a heading."""
    rows: list[list[tuple[str, str]]] = [[]]
    for text, kind in spans:
        first, *more = text.replace("\r\n", "\n").split("\n")
        rows[-1].append((first, kind))
        rows += ([(row, kind)] for row in more)
    for number, row in enumerate(rows):
        pieces = tuple(span for span in row if span[0])
        if number == 0 or pieces:
            yield FamilyLine(indent, label if number == 0 else " " * len(label), pieces, SOFT)


def _view(view: ViewDisplay) -> Iterator[FamilyLine]:
    yield _line(0, "", (view.name, HEAD))
    if view.change is not None:
        yield from _change(view.change)
    # The other views repeat most of Gold: what did not change is dimmed, so that the edit stands out.
    quiet = view.name != GOLD
    yield from _text(2, "Question  ", view.question, quiet=quiet and not has_word_changes(view.question))
    for step in view.steps:
        yield from _step(step, quiet=quiet)
    # Families of other tools may not record what a step rests on: that is unknown, which is not the same as nothing.
    if not any(step.support_recorded for step in view.steps):
        yield _line(5, "", ("what the steps rest on is not recorded", SOFT))
    for number in view.omitted_steps:
        yield _line(5, "", (f"step {number} of Gold has no counterpart here", SOFT))
    yield from _text(2, "Answer    ", view.answer)
    yield _line(2, "Support   ", (", ".join(map(str, view.support)) or "none", ""), style=SOFT)


def _change(change: ViewEditDisplay) -> Iterator[FamilyLine]:
    if change.passage is not None:
        yield _line(2, "Changed   ", (str(change.passage), ""), style=SOFT)
    elif change.component:
        yield _line(2, "Changed   ", (change.component, ""), style=SOFT)
    if not change.claim_recorded:
        yield _line(12, "", ("the changed claim is not recorded", SOFT))
    if change.claim:
        yield from _text(12, "claim: ", mark_text_unchanged(change.claim))
    for replacement in change.replacements:
        old, new = (replacement.old, DiffMark.OLD), (replacement.new, DiffMark.NEW)
        yield _line(12, "", old, (" became ", SOFT), new)
    for constraint in change.keep:
        yield _line(12, "kept: ", (constraint, ""), style=SOFT)


def _step(step: StepDisplay, *, quiet: bool) -> Iterator[FamilyLine]:
    quiet = quiet and step.unchanged
    yield from _text(2, f"{step.number}. ", step.words, quiet=quiet)
    notes = [f"rests on {describe_step_support(step)}"] if step.support_recorded else []
    # An inserted or left out step shifts the numbers; where they agree, the note would only repeat them.
    if step.counterpart not in {None, step.number}:
        notes.append(f"step {step.counterpart} of Gold")
    if step.first_affected:
        notes.append("the first step that depends on the change")
    if notes:
        yield _line(5, "", (" · ".join(notes), SOFT))


def describe_step_support(step: StepDisplay) -> str:
    """Return the passages and steps that a step rests on, in words."""
    parts = [*map(str, step.passages), *(f"step {number}" for number in step.premises)]
    return ", ".join(parts) or "no passage or step"


def _passages(family: FamilyDisplay, *, everything: bool) -> Iterator[FamilyLine]:
    if family.relevant_passages:
        yield _line(0)
        yield _line(0, "", ("Passages that answers rest on, and changed ones", HEAD))
    for passage in family.relevant_passages:
        yield from _passage(passage)
    others = family.other_passages
    if others:
        hint = "" if everything else " (--all shows their text)"
        yield _line(0)
        yield _line(0, "", (format_count(len(others), "other passage"), HEAD), (hint, SOFT))
    for passage in others:
        yield _line(2, f"[{passage.index}] ", (passage.title, ""))
        if everything:
            yield from _text(6, "", mark_text_unchanged(passage.text))


def _passage(passage: PassageDisplay) -> Iterator[FamilyLine]:
    yield _line(2, f"[{passage.index}] ", (passage.title, HEAD), (f"  {' · '.join(passage.notes)}", SOFT))
    for version in passage.versions:
        label = f"{version.view}: " if len(passage.versions) > 1 else ""
        if has_word_changes(version.title):
            yield from _text(6, f"{label}title: ", version.title)
        yield from _text(6, label, version.text)
    if not passage.versions:
        yield from _text(6, "", mark_text_unchanged(passage.text))


def _finding(finding: FindingDisplay) -> Iterator[FamilyLine]:
    verdict = ("no objection", GOOD)
    if finding.objections:
        verdict = (f"objections: {', '.join(finding.objections)}", BAD)
    again = ", once more" if finding.again else ""
    yield _line(2, "", (finding.question, HEAD), (f"  {finding.subject}", SOFT))
    yield _line(4, "", (f"{finding.role} by {finding.judge}{again}: ", SOFT), verdict)
    for part in finding.parts:
        yield from _part(part)


def _part(part: FindingPartDisplay) -> Iterator[FamilyLine]:
    spans: list[tuple[str, str]] = []
    for judgement in part.judgements:
        spans += [*([(", ", "")] if spans else ()), (f"{judgement.name} ", ""), (judgement.answer, judgement.tone)]
    reason = part.reason or "no reason given"
    spans += [(" - ", SOFT), (reason, SOFT)] if spans else [(reason, SOFT)]
    return _broken(6, f"{part.name}: " if part.name else "", spans)
