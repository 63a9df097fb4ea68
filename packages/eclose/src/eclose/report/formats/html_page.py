"""The report as an HTML page: one file that needs no network, no server and no other file.

The template escapes every value, and the data of the explorer never becomes markup. A content security policy allows
only the script and the style of the page, by their hashes.

The explorer has an index of all responses, and their details in chunks that are unpacked when needed. Texts that
several responses share (question, passages) are stored once. A block is JSON, deflated, in base 64.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from eclose.diagnosis.response_failure import describe_response_failure
from eclose.prompts import disclosure
from eclose.report import explorer, sections
from eclose.report.comparison import describe_run_comparison, tabulate_run_comparison
from eclose.report.context import NOT_VALIDATED, ReportContext
from eclose.report.document import ReportTable, build_report_tables, list_metric_glossary
from eclose.report.explorer import RunSample, sample_report_cases
from eclose.report.formats.html_template import csp_source_hash, load_page_template, read_page_text
from eclose.report.headline import PEOPLE_FIGURE, build_report_headline
from eclose.report.marks import build_response_flow, layout_composition_charts, layout_difference_plot, layout_rate_plot
from eclose.report.overview import WorstExample, compare_side_by_side, find_worst_example
from eclose.report.scores import build_score_entries, build_unscored_facet, layout_score_plot
from eclose.report.wording import CODE_WORDS, LABEL_WORDS
from eclose.values.judgment import Criterion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eclose.diagnosis.diagnose import Diagnosis, JudgedCase
    from eclose.report.scores import ScoreColumn
    from eclose.values.instance import Instance
    from eclose.values.judgment import StepJudgment
    from eclose.values.three_valued import Label

# A chunk is unpacked when one of its responses is looked at: small enough to be instant, large enough to compress.
# Passages are much longer than responses, so a chunk holds fewer of them (decision 0022).
RESPONSES_PER_CHUNK = 128
EVIDENCE_PER_CHUNK = 16

_DISCLOSED: Mapping[str, type[Any]] = {
    "evidence": disclosure.SufficiencyMaterial,
    Criterion.LOCAL_SOUNDNESS.value: disclosure.SoundnessMaterial,
    Criterion.ALIGNMENT.value: disclosure.AlignmentMaterial,
    Criterion.CLOSURE.value: disclosure.ClosureMaterial,
    Criterion.COMPLETENESS.value: disclosure.CompletenessMaterial,
    Criterion.CORRECTNESS.value: disclosure.CorrectnessMaterial,
}
"""What each judge is shown, by criterion."""
_FIELD_WORDS = {
    "question": "question",
    "evidence": "passages",
    "steps": "reasoning",
    "answer": "submitted answer",
    "reference": "reference answer",
}


@dataclass(frozen=True, slots=True)
class ExplorerPayload:
    """The packed blocks of a page."""

    index: str
    details: tuple[str, ...]
    evidence: tuple[str, ...]


def make_explorer_payload(
    cases: Sequence[JudgedCase],
    before: Mapping[str, str] | None = None,
    scores: Sequence[ScoreColumn] = (),
    worst: int | None = None,
) -> ExplorerPayload:
    """Return everything the explorer shows.

    Args:
        cases: The responses.
        before: Class of a response's partner in a base run, by response id.
        scores: Scores of detectors.
        worst: Position of the response that the list begins with; None for the first failure.
    """
    facts = [explorer.derive_response_facts(case, (before or {}).get(case.response.id, "")) for case in cases]
    return ExplorerPayload(
        compress_json({**_index(facts, scores), "worst": worst}),
        tuple(
            compress_json([_describe_response(case) for case in chunk]) for chunk in _chunks(cases, RESPONSES_PER_CHUNK)
        ),
        tuple(
            compress_json([[[passage.title, passage.text] for passage in evidence] for evidence in chunk])
            for chunk in _chunks(list(dict.fromkeys(case.instance.evidence for case in cases)), EVIDENCE_PER_CHUNK)
        ),
    )


def compress_json(value: object) -> str:
    """Return JSON, deflated, in base 64."""
    # A lone surrogate cannot be encoded and stays an escape.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    # Level 9: a report is written once and opened often.
    return base64.b64encode(zlib.compress(text, level=9)).decode("ascii")


def _number_distinct(values: Iterable[Any]) -> dict[Any, int]:
    """Return the distinct values, numbered in order of appearance."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _number_names(values: Iterable[str]) -> tuple[list[str], list[int]]:
    """Return the sorted names, and a column of numbers into them."""
    listed = list(values)
    numbers = _number_distinct(sorted(listed))
    return list(numbers), [numbers[name] for name in listed]


def _index(responses: Sequence[explorer.ResponseFacts], scores: Sequence[ScoreColumn]) -> dict[str, Any]:
    """Return the index: one column per property of the responses."""
    cases = [facts.case for facts in responses]
    # Questions of several responses share one set of passages.
    questions = _number_distinct(case.instance for case in cases)
    evidences = _number_distinct(case.instance.evidence for case in cases)
    (benchmarks, benchmark), (models, model) = (
        _number_names(explorer.get_response_group(case, by) for case in cases) for by in ("benchmark", "model")
    )
    judges, judge = _number_names(case.judgment.judge for case in cases)
    # Columns hold numbers, the names are stored once.
    # Abstentions come last, and a page without any does not name them.
    unused = {"abstained"}.difference(facts.outcome for facts in responses)
    outcomes = [outcome for outcome in explorer.OUTCOME_WORDS if outcome not in unused]
    entries = build_score_entries(scores, [case.response.id for case in cases])
    unscored = build_unscored_facet(entries)
    return {
        # From here on one entry for each response, in the same order.
        "ids": [case.response.id for case in cases],
        "answers": [case.response.answer for case in cases],
        "steps": [len(case.response.trace) for case in cases],
        "outcome": [outcomes.index(facts.outcome) for facts in responses],
        "question": [questions[case.instance] for case in cases],
        "questions": [_list_question(instance, evidences[instance.evidence]) for instance in questions],
        "benchmark": benchmark,
        "benchmarks": benchmarks,
        "model": model,
        "models": models,
        "judge": judge,
        "judges": judges,
        "facets": [*explorer.build_facet_columns(responses), *([unscored] if unscored else [])],
        "scores": entries,
        # From here on what does not depend on the responses.
        "chunks": {"details": RESPONSES_PER_CHUNK, "evidence": EVIDENCE_PER_CHUNK},
        "outcomes": [(outcome, explorer.OUTCOME_WORDS[outcome]) for outcome in outcomes],
        "criteria": _criteria(),
        "codes": {code.value: name for code, (name, _) in CODE_WORDS.items()},
    }


def _list_question(instance: Instance, evidence_number: int) -> list[Any]:
    """Return a question as the page shows it, with the number of its set of passages."""
    supporting, passages = instance.support_ids, enumerate(instance.evidence)
    marked = None if supporting is None else [number for number, passage in passages if passage.id in supporting]
    return [instance.question, instance.reference_answer, list(instance.aliases), instance.id, evidence_number, marked]


def _criteria() -> list[list[Any]]:
    """Return each criterion with its meaning, and what its judge was shown and was not shown."""
    rows: list[list[Any]] = []
    for name, disclosed in _DISCLOSED.items():
        names = {field.name for field in fields(disclosed)}
        visible = [words for field, words in _FIELD_WORDS.items() if field in names]
        hidden = [words for field, words in _FIELD_WORDS.items() if field not in names]
        rows.append([name, LABEL_WORDS[name], visible, hidden])
    return rows


def _describe_response(case: JudgedCase) -> dict[str, Any]:
    """Return one response as the page shows it; empty values are left out."""
    judgment, response = case.judgment, case.response
    steps = judgment.steps if judgment.stepwise else ()
    # A judgment of the response as a whole has no judgment for its steps.
    judged = [*steps, *[None] * (len(response.trace) - len(steps))]
    verdict = case.verdict
    labels = (judgment.evidence_sufficient, verdict.locally_sound, verdict.aligned, verdict.closed)
    values = {
        "broken": describe_response_failure(case),
        "steps": [_step(text, step, case) for text, step in zip(response.trace.texts, judged, strict=False)],
        "labels": [_number(label) for label in (*labels, verdict.complete, verdict.correct)],
        "reasons": {criterion.value: reason for criterion, reason in judgment.reasons.items()},
        "unjudged": judgment.missing_reasons,
        "pursued": judgment.pursued,
        "established": judgment.established,
        "missing": judgment.missing_evidence,
        "incomplete": response.incomplete and str(response.incomplete).replace("_", " "),
        "votes": {
            name: [_number(vote) for vote in votes] for name, votes in explorer.find_split_judge_votes(judgment).items()
        },
        # The raw text matters where no single answer line was found.
        "raw": response.completion if response.answer is None or response.answer_lines > 1 else None,
    }
    return {name: value for name, value in values.items() if value or name == "steps"}


def _number(label: Label) -> int:
    """Return a label as 0, 1, or 2 for unjudged."""
    return 2 if label is None else int(label)


def _step(text: str, step: StepJudgment | None, case: JudgedCase) -> list[Any]:
    """Return text, substantive, sound, code, reason, and the position of the quote or the quote itself."""
    if step is None:
        return [text, 2, 2, None, None, None]
    code = step.failure and step.failure.value
    return [text, _number(step.substantive), _number(step.sound), code, step.reason, _quote(step, case)]


def _quote(step: StepJudgment, case: JudgedCase) -> list[Any] | None:
    """Return ``[passage, start, end]`` in UTF-16 units, or ``[passage, quote]`` where the passage lacks the quote."""
    if step.support is None:
        return None
    index, quote = step.support.passage_index, step.support.quote
    evidence = case.instance.evidence
    text = evidence[index].text if 0 <= index < len(evidence) else ""
    # Judges quote a passage literally; a quote that is not found is shown as text.
    start = text.find(quote) if quote else -1
    if start < 0:
        return [index, quote]
    return [index, _units(text[:start]), _units(text[: start + len(quote)])]


def _units(text: str) -> int:
    """Return the length of a text as a browser counts it: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _chunks(values: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy. With the last two directives, a script that writes markup fails."""


MAX_LEFT_OUT_ROWS = 200
"""Responses without a judgment that the page lists by id; it counts all of them."""


def _tabulate_left_out(context: ReportContext) -> tuple[ReportTable, ...]:
    """Return the table of responses that could not be diagnosed; none where there are none."""
    if not context.left_out:
        return ()
    rows = context.left_out[:MAX_LEFT_OUT_ROWS]
    note = f"The first {MAX_LEFT_OUT_ROWS} of {len(context.left_out):,}." if len(context.left_out) > len(rows) else ""
    return (ReportTable.of("left-out", "Responses left out", ("response", "reason"), rows, note),)


def _make_payload(cases: Sequence[JudgedCase], worst: WorstExample | None, context: ReportContext) -> ExplorerPayload:
    before = context.base.before(cases) if context.base else None
    return make_explorer_payload(cases, before, context.scores, None if worst is None else worst.position)


def _format_security_policy(script: str, style: str) -> str:
    return CONTENT_SECURITY_POLICY.format(script=csp_source_hash(script), style=csp_source_hash(style))


def render_report_page(
    diagnosis: Diagnosis,
    cases: Sequence[JudgedCase] | RunSample,
    context: ReportContext | None = None,
    *,
    policy: bool = True,
) -> str:
    """Return the page of a run; of a large run it lists a sample of the responses, and says so.

    Args:
        diagnosis: Counts and rates of all responses.
        cases: All responses, or a sample of them that was chosen before.
        context: What the page prints beside the figures.
        policy: Whether the page has its content security policy. Without it, it must be just as safe, and tests open
            it that way as well.
    """
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only reports need

    context = context or ReportContext()
    sample = cases if isinstance(cases, RunSample) else sample_report_cases(cases)
    # The diagnosis of a large run counts responses that are not in memory.
    sample = replace(sample, left_out=max(0, diagnosis.overall.responses - len(sample.cases)))
    worst = find_worst_example(sample.cases)
    script, style = read_page_text("explorer.js"), read_page_text("page.css")
    html: str = load_page_template("page.html").render(
        diagnosis=diagnosis,
        context=context,
        validated=context.validated,
        not_validated=NOT_VALIDATED,
        people=PEOPLE_FIGURE if context.settled_by_people else "",
        headline=build_report_headline(diagnosis, context),
        evidence=sections.describe_evidence_sufficiency(diagnosis),
        evidence_rates=sections.list_rates_by_evidence(diagnosis),
        evidence_note=sections.EVIDENCE_NOTE if context.corrected else "",
        worst=worst,
        sides=compare_side_by_side(diagnosis, context),
        cautions=sections.list_linked_cautions(diagnosis, context),
        # The second sentence lists all labels, as a table of the page does.
        agreement=sections.describe_judge_agreement(context)[:1],
        agreements=sections.list_judge_agreement(context),
        flips=sections.describe_judge_flips(diagnosis),
        flow=build_response_flow(diagnosis),
        rates=layout_rate_plot(diagnosis, context),
        compositions=layout_composition_charts(diagnosis),
        tables=(*build_report_tables(diagnosis, context), *_tabulate_left_out(context)),
        glossary=tuple(list_metric_glossary()),
        base=context.base,
        base_sentences=describe_run_comparison(context.base) if context.base else (),
        base_tables=tabulate_run_comparison(context.base) if context.base else (),
        differences=layout_difference_plot(context.base.comparison) if context.base else None,
        scores=layout_score_plot(context.scores, cases.cases if isinstance(cases, RunSample) else cases),
        payload=_make_payload(sample.cases, worst, context),
        sample=sample,
        policy=_format_security_policy(script, style) if policy else "",
        # Inline, as the page must work from a mail attachment; of the package, not from files, so not escaped.
        script=Markup(script),
        style=Markup(style),
    )
    return html
