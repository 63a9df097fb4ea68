"""A family as lines of text: what ``families show`` prints.

On a terminal lines are folded and words that changed are coloured, struck out when they are gone and bold when they
are new. Elsewhere a paragraph is a line, and changed words stand in ``[-old-]`` and ``{+new+}``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import typer

from eclose.cli.shared.output import plural, printable
from eclose.diagnosis.report.families.findings import BAD, GOOD
from eclose.diagnosis.report.families.view import GOLD
from eclose.diagnosis.report.word_diff import DiffMark, is_changed, mark_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from eclose.diagnosis.report.families.findings import FindingDisplay, FindingPart, JudgementDisplay
    from eclose.diagnosis.report.families.view import (
        ChangeDisplay,
        FamilyDisplay,
        PassageDisplay,
        PassageReference,
        StepDisplay,
        ViewDisplay,
    )
    from eclose.diagnosis.report.word_diff import MarkedText

WIDTH = 100
"""Wider lines are hard to read."""

HEAD, SOFT = "head", "soft"
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
"""Stretches of text, each with what it is."""


class Line(NamedTuple):
    """A paragraph: what it begins with, where the rest of it is folded to, and its text."""

    indent: int
    label: str
    spans: Spans
    style: str = ""
    """Of the label."""


def print_family(family: FamilyDisplay, *, everything: bool = False) -> None:
    """Print it all; the passages that do not matter in full only when asked for."""
    from rich.console import Console

    console = Console(highlight=False)
    # A terminal that can show no style would show old and new words alike.
    styled = sys.stdout.isatty() and console.color_system is not None
    for line in family_lines(family, everything=everything):
        if styled:
            _print_styled(console, line)
        else:
            typer.echo(plain(line))


def plain(line: Line) -> str:
    """The line with marks in place of colours."""
    text = "".join(_MARKS.get(kind, "{}").format(printable(text)) for text, kind in line.spans)
    return (" " * line.indent + printable(line.label) + text).rstrip()


def _print_styled(console: Console, line: Line) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    text, label = Text(), " " * line.indent + printable(line.label)
    before = ""
    for part, kind in line.spans:
        # Beside each other the two would read as one word.
        text.append(" " if (before, kind) == (DiffMark.OLD, DiffMark.NEW) else "")
        text.append(printable(part), _COLOURS.get(kind, ""))
        before = kind
    folded = Table.grid()
    if label:
        folded.add_column(width=cell_len(label), no_wrap=True)
    folded.add_column(overflow="fold")
    folded.add_row(*([Text(label, _COLOURS.get(line.style, ""))] if label else ()), text)
    console.print(folded, width=min(console.width, WIDTH))


# --- what is told, in order ----------------------------------------------------------------------------------------


def family_lines(family: FamilyDisplay, *, everything: bool = False) -> Iterator[Line]:
    """All of a family, paragraph by paragraph."""
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


def _line(indent: int, label: str = "", *spans: tuple[str, str], style: str = "") -> Line:
    return Line(indent, label, spans, style)


def _text(indent: int, label: str, words: MarkedText, *, quiet: bool = False) -> Iterator[Line]:
    """A text of a record."""
    spans = ((piece.text, SOFT if quiet and piece.mark is DiffMark.SAME else piece.mark) for piece in words)
    return _broken(indent, label, spans)


def _broken(indent: int, label: str, spans: Iterable[tuple[str, str]]) -> Iterator[Line]:
    """Line breaks of a text begin new lines, indented like its first: none of them can pass for one of ours."""
    rows: list[list[tuple[str, str]]] = [[]]
    for text, kind in spans:
        first, *more = text.replace("\r\n", "\n").split("\n")
        rows[-1].append((first, kind))
        rows += ([(row, kind)] for row in more)
    for number, row in enumerate(rows):
        shown = tuple(span for span in row if span[0])
        if number == 0 or shown:
            yield Line(indent, label if number == 0 else " " * len(label), shown, SOFT)


def _view(view: ViewDisplay) -> Iterator[Line]:
    yield _line(0, "", (view.name, HEAD))
    if view.change is not None:
        yield from _change(view.change)
    quiet = view.name != GOLD
    yield from _text(2, "Question  ", view.question, quiet=quiet and not is_changed(view.question))
    for step in view.steps:
        yield from _step(step, quiet=quiet)
    if not any(step.support_recorded for step in view.steps):
        yield _line(5, "", ("what the steps rest on is not known", SOFT))
    for number in view.omitted_steps:
        yield _line(5, "", (f"step {number} of Gold has no counterpart here", SOFT))
    yield from _text(2, "Answer    ", view.answer)
    yield _line(2, "Support   ", (_listed(view.support) or "none", ""), style=SOFT)


def _change(change: ChangeDisplay) -> Iterator[Line]:
    if change.passage is not None:
        yield _line(2, "Changed   ", (str(change.passage), ""), style=SOFT)
    elif change.component:
        yield _line(2, "Changed   ", (change.component, ""), style=SOFT)
    if not change.claim_recorded:
        yield _line(12, "", ("which claim it is about is not told", SOFT))
    if change.claim:
        yield from _text(12, "claim: ", mark_same(change.claim))
    for one in change.replacements:
        yield _line(12, "", (one.old, DiffMark.OLD), (" became ", SOFT), (one.new, DiffMark.NEW))
    for kept in change.keep:
        yield _line(12, "kept: ", (kept, ""), style=SOFT)


def _step(step: StepDisplay, *, quiet: bool) -> Iterator[Line]:
    quiet = quiet and step.unchanged
    yield from _text(2, f"{step.number}. ", step.words, quiet=quiet)
    told = [f"rests on {resting(step)}"] if step.support_recorded else []
    if step.counterpart not in {None, step.number}:
        told.append(f"step {step.counterpart} of Gold")
    if step.first_affected:
        told.append("the first step that depends on the change")
    if told:
        yield _line(5, "", (" · ".join(told), SOFT))


def resting(step: StepDisplay) -> str:
    """What a step rests on, in words."""
    parts = [*map(str, step.passages), *(f"step {number}" for number in step.premises)]
    return ", ".join(parts) or "nothing that is named"


def _listed(references: Iterable[PassageReference]) -> str:
    return ", ".join(map(str, references))


def _passages(family: FamilyDisplay, *, everything: bool) -> Iterator[Line]:
    if family.relevant_passages:
        yield _line(0)
        yield _line(0, "", ("Passages that matter", HEAD))
    for passage in family.relevant_passages:
        yield from _passage(passage)
    others = family.other_passages
    if others:
        hint = "" if everything else " (--all shows their text)"
        yield _line(0)
        yield _line(0, "", (plural(len(others), "other passage"), HEAD), (hint, SOFT))
    for passage in others:
        yield _line(2, f"[{passage.index}] ", (passage.title, ""))
        if everything:
            yield from _text(6, "", mark_same(passage.text))


def _passage(passage: PassageDisplay) -> Iterator[Line]:
    yield _line(2, f"[{passage.index}] ", (passage.title, HEAD), (f"  {' · '.join(passage.notes)}", SOFT))
    for version in passage.versions:
        label = f"{version.view}: " if len(passage.versions) > 1 else ""
        if is_changed(version.title):
            yield from _text(6, f"{label}title: ", version.title)
        yield from _text(6, label, version.text)
    if not passage.versions:
        yield from _text(6, "", mark_same(passage.text))


def _finding(finding: FindingDisplay) -> Iterator[Line]:
    verdict = ("nothing against it", GOOD)
    if finding.objections:
        verdict = (f"against it: {', '.join(finding.objections)}", BAD)
    again = ", once more" if finding.again else ""
    yield _line(2, "", (finding.question, HEAD), (f"  {finding.subject}", SOFT))
    yield _line(4, "", (f"{finding.role} by {finding.judge}{again}: ", SOFT), verdict)
    for part in finding.parts:
        yield from _part(part)


def _part(part: FindingPart) -> Iterator[Line]:
    spans: list[tuple[str, str]] = []
    for judgement in part.judgements:
        spans += [*([(", ", "")] if spans else ()), *_judged(judgement)]
    reason = part.reason or "no reason given"
    spans += [(" - ", SOFT), (reason, SOFT)] if spans else [(reason, SOFT)]
    return _broken(6, f"{part.name}: " if part.name else "", spans)


def _judged(judgement: JudgementDisplay) -> Iterator[tuple[str, str]]:
    yield f"{judgement.name} ", ""
    yield judgement.answer, judgement.tone
