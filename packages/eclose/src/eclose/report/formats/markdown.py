"""The report as Markdown, for a pull request, a wiki or a terminal.

Names of datasets, models, judges and reasons come from files. They are escaped so that they cannot form a link, an
image, markup or the end of a cell.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING

from eclose.diagnosis.compare import name_outcome
from eclose.diagnosis.number_format import add_no_break_spaces, format_count, to_one_line
from eclose.diagnosis.response_failure import describe_response_failure
from eclose.report import sections
from eclose.report.comparison import describe_run_comparison, tabulate_run_comparison
from eclose.report.context import ReportContext
from eclose.report.document import ReportTable, ReportTableCell, build_report_tables, list_metric_glossary
from eclose.report.explorer import OUTCOME_WORDS
from eclose.report.headline import PEOPLE_FIGURE, build_report_headline
from eclose.report.marks import build_response_flow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.diagnosis.diagnose import Diagnosis, JudgedCase
    from eclose.report.context import BaseComparison
    from eclose.report.headline import HeadlineStatement
    from eclose.report.marks import FlowBar

MAX_EXAMPLES = 10
"""Number of failing responses listed one by one."""
# In characters, of the id and of the sentence of an example.
_MAX_LENGTH = 200
# Special anywhere in a line of CommonMark or GitHub's dialect. A colon or "www." can make a bare address a link; "@"
# and "#" can notify a person or link an issue; braces are special to generators of Markdown pages.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&|~$@#]|:(?=\S)|(?<=\bwww)\.", re.IGNORECASE)
# Markdown has no mark for underlining; hosts accept the element.
_RANK_MARKS = {1: ("**", "**"), 2: ("<u>", "</u>")}
# The start of a list, a heading or a rule.
_START = re.compile(r"^(\d+)?(?:(?<!\d)(?=[-+=])|(?<=\d)(?=[.)](?:\s|$)))")


def escape_markdown(text: str) -> str:
    """Return the text printed literally. Only special characters are escaped, so words and numbers stay readable."""
    return _START.sub(r"\g<0>\\", _SPECIAL.sub(r"\\\g<0>", to_one_line(text)))


def escape_markdown_cell(text: str) -> str:
    """Return a text of this package for a cell of a table."""
    return text.replace("|", "\\|").replace("*", "\\*")


def render_markdown_report(
    diagnosis: Diagnosis, cases: Sequence[JudgedCase] = (), context: ReportContext | None = None
) -> str:
    """Return the report without the explorer: its tables and the first few failing responses."""
    return add_no_break_spaces("\n".join(_lines(diagnosis, cases, context or ReportContext()))) + "\n"


def _lines(diagnosis: Diagnosis, cases: Sequence[JudgedCase], context: ReportContext) -> Iterator[str]:
    overall = diagnosis.overall
    judges = ", ".join(map(escape_markdown, diagnosis.judges))
    origin = PEOPLE_FIGURE if context.settled_by_people else f"judged by {judges}"
    yield f"# {escape_markdown(context.title)}"
    yield ""
    for warning in filter(None, (" ".join(context.stale_warnings), " ".join(context.selected))):
        yield f"> **{escape_markdown(warning)}**"
        yield ""
    responses, questions = format_count(overall.responses, "response"), format_count(overall.questions, "question")
    yield f"{responses} to {questions}, {origin}."
    yield ""
    # Trust in the judge and cautions come before any figure.
    trust = map(escape_markdown, (context.trust, *sections.describe_judge_agreement(context)))
    heading = "Labels" if context.settled_by_people else "Validation"
    yield f"> **{heading}.** {' '.join(trust)}"
    for sentence in sections.describe_judge_flips(diagnosis):
        yield f">\n> {escape_markdown(sentence)}"
    for sentence in sections.list_report_cautions(diagnosis, context):
        yield f">\n> {escape_markdown(sentence)}"
    yield "\n## First: is the evidence enough?\n"
    yield " ".join(sections.describe_evidence_sufficiency(diagnosis))
    yield ""
    for kind, number, reliable, gap in sections.list_rates_by_evidence(diagnosis):
        shares = f"reliable **{escape_markdown_cell(reliable)}**, in the gap **{escape_markdown_cell(gap)}**"
        yield f"- {kind} ({number}): {shares}."
    if context.corrected:
        yield f"\n{sections.EVIDENCE_NOTE}"
    yield f"\n## Then: of {format_count(overall.responses, 'response')} …\n"
    for statement in build_report_headline(diagnosis, context):
        yield from _statement(statement)
    own_rates = " All counts and all other rates are the judge's own, with its errors." if context.corrected else ""
    yield f"\nBrackets are 95 % intervals over questions.{own_rates}"
    yield "\n## Where responses are lost\n"
    for bar in build_response_flow(diagnosis):
        yield _test(bar)
    if context.base:
        yield from _comparison(context.base)
    for table in build_report_tables(diagnosis, context):
        yield from make_markdown_table(table)
    yield from _examples(cases)
    yield "\n## Glossary\n"
    for letter, name, meaning in list_metric_glossary():
        yield f"- **{letter}** {name}: {meaning}"
    if context.about:
        yield "\n## About\n"
        for name, value in context.about.items():
            yield f"- {escape_markdown(name)}: {escape_markdown(value)}"


def _comparison(base: BaseComparison) -> Iterator[str]:
    yield f"\n## Compared with {escape_markdown(base.name)}\n"
    for sentence in base.cautions:
        yield f"> {escape_markdown(sentence)}\n"
    for sentence in describe_run_comparison(base):
        yield f"- {escape_markdown(sentence)}"
    for table in tabulate_run_comparison(base):
        yield from make_markdown_table(table, "###")


def _statement(statement: HeadlineStatement) -> Iterator[str]:
    whose = f" ({statement.whose})" if statement.whose else ""
    yield f"- **{statement.figure} {statement.lead}**{whose}. {statement.meaning}"
    named = statement.whose and statement.whose != PEOPLE_FIGURE
    judged = f"{statement.beside}: " if statement.beside else "To the judge " if named else ""
    yield f"  - {judged}{statement.counted}"
    for part in statement.parts:
        yield f"  - {part.count:,} {part.lead}: {part.meaning}"
    if statement.detail:
        yield f"  - {statement.detail}"


def _test(bar: FlowBar) -> str:
    lost = ", ".join(f"{part.count:,} {part.name}" for part in bar.lost) or "none lost"
    return f"- {bar.question} {bar.passed.count:,} of {bar.total:,} {bar.passed.name} ({lost})."


def make_markdown_table(table: ReportTable, level: str = "##") -> Iterator[str]:
    """Yield the lines of a table beneath its title; ``level`` marks the heading."""
    yield f"\n{level} {table.title}\n"
    yield f"| {' | '.join(map(escape_markdown_cell, table.full_heads))} |"
    yield "|" + "|".join(" --- " for _ in table.heads) + "|"
    # A row may be shorter than the head: fill it up with empty cells.
    for row in table.rows:
        texts = [f"*{escape_markdown(row[0].text)}*"] if table.is_heading(row) else map(_cell, row)
        yield f"| {' | '.join(cell for cell, _ in zip_longest(texts, table.heads, fillvalue=''))} |"
    if table.note:
        yield f"\n{escape_markdown_cell(table.note)}"


def _cell(cell: ReportTableCell) -> str:
    """Return a cell, the best value in bold and the second underlined; its details are numbers of this package."""
    before, behind = _RANK_MARKS.get(cell.rank, ("", ""))
    return " ".join((f"{before}{escape_markdown(cell.text)}{behind}", *map(escape_markdown_cell, cell.details)))


def _examples(cases: Sequence[JudgedCase]) -> Iterator[str]:
    """Yield the first failing responses, a line each."""
    # Undecided responses are not examples of failure.
    failing = [case for case in cases if case.verdict.reliable is False]
    if not failing:
        return
    yield f"\n## Responses that fail: {min(MAX_EXAMPLES, len(failing))} of {len(failing):,}\n"
    for case in failing[:MAX_EXAMPLES]:
        outcome = OUTCOME_WORDS[name_outcome(case.verdict)]
        response_id, failure = case.response.id, describe_response_failure(case)
        yield f"- {escape_markdown(_short(response_id))} ({outcome}): {escape_markdown(_short(failure))}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"
