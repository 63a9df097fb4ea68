"""Comment for a pull request in Markdown: outcome of a gate, the gap, the changes and the worst response.

Texts from files are escaped as in the Markdown report, so they cannot form links, mention users or break tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eclose.diagnosis.compare import RateDifference
from eclose.diagnosis.diagnose import Diagnosis
from eclose.diagnosis.gate_rules import GateBaseRun, GateOutcome, GateReport
from eclose.diagnosis.number_format import add_no_break_spaces, format_count
from eclose.metrics.rates import Metric
from eclose.readers.judged_run import JudgedCase
from eclose.report.context import ReportContext
from eclose.report.formats.markdown import escape_markdown
from eclose.report.headline import build_report_headline
from eclose.report.overview import SideBySide, compare_base_rates, find_worst_example
from eclose.report.sections import list_report_cautions
from eclose.stats.intervals import Estimate
from eclose.stats.rate_correction import CorrectedRate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.report.overview import WorstExample

COMMENT_MARK = "<!-- eclose reliability -->"
"""First line of every comment. The action finds an earlier comment by it and replaces that one."""
MAX_CAUTIONS = 4
"""Cautions that a comment prints; the report has all of them."""
_OUTCOME_WORDS = {
    GateOutcome.PASSED: "✅ passed",
    GateOutcome.FAILED: "❌ failed",
    GateOutcome.UNDECIDED: "⚠️ cannot tell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentFacts:
    """Parts of a ``GateResult`` that a comment prints."""

    report: GateReport
    diagnosis: Diagnosis
    cases: Sequence[JudgedCase]
    left_out: Sequence[tuple[str, str]]
    corrected: Mapping[Metric, CorrectedRate]
    stale: Sequence[str]
    base: GateBaseRun | None
    settled_by_people: bool = False


def render_gate_comment(facts: CommentFacts, *, report_url: str | None = None) -> str:
    """Return the comment, which has fewer than 60 lines.

    Args:
        facts: Outcome of the gate, with its rates and responses.
        report_url: Address of the full report; None for a comment without a link.
    """
    return add_no_break_spaces("\n".join(_lines(facts, report_url))) + "\n"


def _lines(facts: CommentFacts, report_url: str | None) -> Iterator[str]:
    overall = facts.diagnosis.overall
    corrected = {metric: Estimate(rate.value, rate.interval) for metric, rate in facts.corrected.items()}
    context = ReportContext(
        corrected=corrected or None,
        validated=bool(corrected),
        settled_by_people=facts.settled_by_people,
        left_out=facts.left_out,
    )
    headline = {statement.kind: statement for statement in build_report_headline(facts.diagnosis, context)}
    gap = headline["gap"]
    yield COMMENT_MARK
    yield f"### Reliability: {_OUTCOME_WORDS[facts.report.outcome]}"
    yield ""
    if facts.stale:
        yield f"> **Stale judgments: {escape_markdown(facts.stale[0])}**\n"
    whose = f" ({gap.whose})" if gap.whose else ""
    judged = format_count(overall.responses, "response")
    if facts.left_out:
        judged = f"{overall.responses:,} judged responses ({len(facts.left_out):,} more were not judged)"
    yield f"Of {judged}, **{gap.figure} {gap.lead}**{whose}."
    if gap.detail and not gap.whose:
        yield f"{gap.detail}."
    yield ""
    for part in gap.parts:
        yield f"- {part.count:,} {part.lead}: {part.meaning}"
    yield ""
    yield "| limit | |"
    yield "| --- | --- |"
    for check in facts.report.checks:
        yield f"| {_OUTCOME_WORDS[check.outcome]} | {escape_markdown(check.message)} |"
    if facts.base is not None:
        differences = {
            metric: RateDifference(rate.run, rate.base, rate.difference) for metric, rate in facts.base.rates.items()
        }
        yield from _comparison(compare_base_rates(facts.base.name, differences))
    yield ""
    for sentence in list_report_cautions(facts.diagnosis, context)[:MAX_CAUTIONS]:
        yield f"- {escape_markdown(sentence)}"
    worst = find_worst_example(facts.cases)
    if worst is not None:
        yield from _example(worst)
    if report_url is not None:
        yield f"\n[Every response, in the full report](<{_clean_url(report_url)}>)"


def _comparison(sides: SideBySide) -> Iterator[str]:
    """Yield the comparison with the base run: a sentence, and a table where there are rates to compare."""
    yield f"\n**{escape_markdown(sides.title)}.** {escape_markdown(sides.sentence)}\n"
    if not sides.rows:
        return
    yield f"| {' | '.join(map(escape_markdown, sides.heads))} |"
    yield "|" + "|".join(" --- " for _ in sides.heads) + "|"
    for row in sides.rows:
        yield f"| {' | '.join(escape_markdown(f'{cell.text} {cell.small}'.strip()) for cell in row)} |"


def _example(worst: WorstExample) -> Iterator[str]:
    """Yield the worst response as a block that opens on a click."""
    yield f"\n<details><summary>{escape_markdown(worst.title)}</summary>\n"
    yield f"**{escape_markdown(worst.question)}**\n"
    for number, step in enumerate(worst.steps, start=1):
        passage = f" (rests on {escape_markdown(step.passage)})" if step.passage else ""
        yield f"{number}. {step.verdict}: {escape_markdown(step.text)}{passage}"
    if worst.more_steps:
        yield f"\nand {worst.more_steps:,} more"
    reference = f", reference: {escape_markdown(worst.reference)}" if worst.reference else ""
    yield f"\nSubmitted: **{escape_markdown(worst.answer)}**{reference}. {escape_markdown(worst.failure)}"
    yield "\n</details>"


def _clean_url(url: str) -> str:
    """Return the address without blanks, line breaks and angle brackets, which would end its link."""
    return "".join(character for character in url if character.isprintable() and character not in "<> ")
