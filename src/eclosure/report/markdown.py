"""The diagnosis as Markdown, for a pull request, a wiki or a terminal.

Names of datasets, models, judges and reasons come from files. They are escaped so that nothing in them is a link, an
image, markup or the end of a cell.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING

from eclosure.diagnose import broken_link
from eclosure.report.against import against_sentences, against_tables
from eclosure.report.facets import OUTCOMES, seen
from eclosure.report.headline import headline
from eclosure.report.notes import Notes
from eclosure.report.story import (
    EVIDENCE_NOTE,
    agreement_sentences,
    cautions,
    evidence_rates,
    evidence_sentences,
    flip_sentences,
    flow,
)
from eclosure.report.tables import Cell, Table, all_tables, glossary
from eclosure.report.words import one_line, plural, unbroken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclosure.diagnose import Case, Diagnosis
    from eclosure.report.against import Against
    from eclosure.report.headline import Statement
    from eclosure.report.story import Stage

NAMED = 10
"""How many failing responses are told one by one."""
_LONGEST = 200
# What means something anywhere in a line of CommonMark or GitHub's dialect. A colon or "www." can make a bare address a
# link; "@" and "#" can notify a person or point at an issue; braces mean something to what builds pages of Markdown.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$@#]|:(?=\S)|(?<=\bwww)\.", re.IGNORECASE)
# What makes a list, a heading or a rule of the beginning of a line.
_START = re.compile(r"^(\d+)?(?:(?<!\d)(?=[-+=])|(?<=\d)(?=[.)](?:\s|$)))")


def escape(text: str) -> str:
    """Text as it is, whatever it says. Only what could mean something is escaped: words and numbers stay readable."""
    return _START.sub(r"\g<0>\\", _SPECIAL.sub(r"\\\g<0>", one_line(text)))


def own(text: str) -> str:
    """Our own words inside a cell."""
    return text.replace("|", "\\|").replace("*", "\\*")


def markdown(diagnosis: Diagnosis, cases: Sequence[Case] = (), notes: Notes | None = None) -> str:
    """The whole report, without the explorer: its tables and the first few responses that fail."""
    return unbroken("\n".join(_lines(diagnosis, cases, notes or Notes()))) + "\n"


def _lines(diagnosis: Diagnosis, cases: Sequence[Case], notes: Notes) -> Iterator[str]:
    overall = diagnosis.overall
    judges = ", ".join(map(escape, diagnosis.judges))
    yield f"# {escape(notes.title)}"
    yield ""
    if notes.stale:
        yield f"> **{escape(' '.join(notes.stale_told))}**"
        yield ""
    yield f"{plural(overall.responses, 'response')} to {plural(overall.questions, 'question')}, judged by {judges}."
    yield ""
    yield f"> **Validation.** {' '.join(map(escape, (notes.trust, *agreement_sentences(notes))))}"
    for told in flip_sentences(diagnosis):
        yield f">\n> {escape(told)}"
    for told in cautions(diagnosis, notes):
        yield f">\n> {escape(told)}"
    yield "\n## First: is the evidence enough?\n"
    yield " ".join(evidence_sentences(diagnosis))
    yield ""
    for kind, responses, reliable, gap in evidence_rates(diagnosis):
        yield f"- {kind} ({responses}): reliable **{own(reliable)}**, in the gap **{own(gap)}**."
    if notes.corrected:
        yield f"\n{EVIDENCE_NOTE}"
    yield f"\n## Then: of {plural(overall.responses, 'response')} …\n"
    for statement in headline(diagnosis, notes):
        yield from _statement(statement)
    own_rates = " All other counts and rates are the judge's own." if notes.corrected else ""
    yield f"\nBrackets are 95 % intervals over questions.{own_rates}"
    yield "\n## Where responses are lost\n"
    for stage in flow(diagnosis):
        yield _stage(stage)
    if notes.against:
        yield from _against(notes.against)
    for table in all_tables(diagnosis, notes):
        yield from _table(table)
    yield from _examples(cases)
    yield "\n## Glossary\n"
    for letter, name, told in glossary():
        yield f"- **{letter}** {name}: {told}"
    if notes.about:
        yield "\n## About\n"
        for name, told in notes.about.items():
            yield f"- {escape(name)}: {escape(told)}"


def _against(against: Against) -> Iterator[str]:
    yield f"\n## Against {escape(against.name)}\n"
    for told in against.cautions:
        yield f"> {escape(told)}\n"
    for told in against_sentences(against):
        yield f"- {escape(told)}"
    for table in against_tables(against):
        yield from _table(table, "###")


def _statement(statement: Statement) -> Iterator[str]:
    whose = f" ({statement.whose})" if statement.whose else ""
    yield f"- **{statement.figure} {statement.lead}**{whose}. {statement.meaning}"
    judged = f"{statement.beside}: " if statement.beside else "To the judge " if statement.whose else ""
    yield f"  - {judged}{statement.counted}"
    for part in statement.parts:
        yield f"  - {part.count:,} {part.lead}: {part.meaning}"
    if statement.detail:
        yield f"  - {statement.detail}"


def _stage(stage: Stage) -> str:
    lost = ", ".join(f"{part.count:,} {part.name}" for part in stage.lost) or "none lost"
    return f"- {stage.asked} {stage.kept.count:,} of {stage.total:,} {stage.kept.name} ({lost})."


def _table(table: Table, level: str = "##") -> Iterator[str]:
    yield f"\n{level} {table.title}\n"
    yield f"| {' | '.join(map(own, table.heads))} |"
    yield "|" + "|".join(" --- " for _ in table.heads) + "|"
    for row in table.rows:
        yield f"| {' | '.join(cell for cell, _ in zip_longest(map(_cell, row), table.heads, fillvalue=''))} |"
    if table.note:
        yield f"\n{own(table.note)}"


def _cell(cell: Cell) -> str:
    """The details are numbers of ours."""
    return " ".join((escape(cell.text), *map(own, cell.details)))


def _examples(cases: Sequence[Case]) -> Iterator[str]:
    failing = [case for case in cases if case.verdict.reliable is False]
    if not failing:
        return
    yield f"\n## Responses that fail: {min(NAMED, len(failing))} of {len(failing):,}\n"
    for case in failing[:NAMED]:
        outcome = OUTCOMES[seen(case).outcome]
        yield f"- {escape(_short(case.response.id))} ({outcome}): {escape(_short(broken_link(case)))}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
