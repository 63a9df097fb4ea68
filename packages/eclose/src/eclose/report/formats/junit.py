"""The report as JUnit XML: one test case per response, for continuous integration servers."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from eclose.diagnosis.number_format import format_count
from eclose.diagnosis.response_failure import describe_response, describe_response_failure
from eclose.diagnosis.show_invisible import reveal_invisible_chars
from eclose.metrics.repeats import count_label_flips
from eclose.report.context import ReportContext
from eclose.report.explorer import OUTCOME_WORDS, ResponseFacts, derive_response_facts, get_response_group
from eclose.report.sections import describe_judge_agreement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.diagnosis.diagnose import JudgedCase

# Characters that XML 1.0 cannot contain, not even as references.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_responses_junit(cases: Sequence[JudgedCase], context: ReportContext | None = None) -> str:
    """Return the XML document: a suite per dataset and model, a failure per unreliable response."""
    context = context or ReportContext()
    # One suite per dataset and model, as the tables group responses.
    suites: dict[tuple[str, str], list[ResponseFacts]] = defaultdict(list)
    for case in cases:
        group = get_response_group(case, "benchmark"), get_response_group(case, "model")
        suites[group].append(derive_response_facts(case))
    # Servers expect the totals on the root element as well.
    tests, failures, skipped = _counts([facts for suite in suites.values() for facts in suite])
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    # The name is all that some servers show of a suite.
    name = f"{context.title} (stale judgments)" if context.stale else context.title
    left_out = len(context.left_out)
    totals = f'tests="{tests + left_out}" failures="{failures}" skipped="{skipped + left_out}"'
    lines.append(f"<testsuites name={_attribute(name)} {totals}>")
    for (benchmark, model), suite in sorted(suites.items()):
        lines += _suite(benchmark, model, suite, context)
    if context.left_out:
        lines += _left_out_suite(context.left_out)
    return "\n".join([*lines, "</testsuites>", ""])


def _counts(suite: Sequence[ResponseFacts]) -> tuple[int, int, int]:
    """Return the numbers of tests, failures and skipped tests."""
    labels = [facts.verdict.reliable for facts in suite]
    return len(labels), labels.count(False), labels.count(None)


def _suite(benchmark: str, model: str, suite: Sequence[ResponseFacts], context: ReportContext) -> Iterator[str]:
    tests, failures, skipped = _counts(suite)
    name = f"{benchmark} / {model}"
    yield (f'<testsuite name={_attribute(name)} tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}">')
    yield f"<properties>{''.join(_properties(suite, context))}</properties>"
    for facts in suite:
        # Servers make folders of the dots in a name.
        yield from _test(f"{benchmark.replace('.', '_')}.{model.replace('.', '_')}", facts)
    yield "</testsuite>"


def _left_out_suite(left_out: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of the suite of responses without a judgment, which neither pass nor fail."""
    count = len(left_out)
    yield f'<testsuite name="without a judgment" tests="{count}" failures="0" errors="0" skipped="{count}">'
    for response_id, reason in left_out:
        yield f'<testcase classname="without a judgment" name={_attribute(response_id)}>'
        yield f"<skipped message={_attribute(reason)}/>"
        yield "</testcase>"
    yield "</testsuite>"


def _properties(suite: Sequence[ResponseFacts], context: ReportContext) -> Iterator[str]:
    """Yield properties on the trust in the judge: stale files, validation, and consistency where it was asked again."""
    for sentence in context.stale_warnings:
        yield f'<property name="stale" value={_attribute(sentence)}/>'
    validation = " ".join((context.trust, *describe_judge_agreement(context)))
    yield f'<property name="validation" value={_attribute(validation)}/>'
    for name, counts in count_label_flips(facts.case.judgment for facts in suite).items():
        sentence = f"{counts.flipped:,} of {format_count(counts.responses, 'response')} got both answers"
        yield f'<property name="flips {name}" value={_attribute(sentence)}/>'


def _test(classname: str, facts: ResponseFacts) -> Iterator[str]:
    start = f"<testcase classname={_attribute(classname)} name={_attribute(facts.case.response.id)}"
    if facts.verdict.reliable:
        yield f"{start}/>"
        return
    yield f"{start}>"
    # An undecided response neither passes nor fails.
    if facts.verdict.reliable is None:
        yield f"<skipped message={_attribute(_why_open(facts.case))}/>"
    else:
        kind, message = OUTCOME_WORDS[facts.outcome], describe_response_failure(facts.case)
        text = escape(_xml(_response_text(facts.case)))
        yield f"<failure type={_attribute(kind)} message={_attribute(message)}>{text}</failure>"
    yield "</testcase>"


def _response_text(case: JudgedCase) -> str:
    """Return question, reasoning and answer, and what is wrong with them, to be read in a log."""
    steps = [f"{number}. {step}" for number, step in enumerate(case.response.trace.texts, start=1)]
    failure = describe_response(case)
    step = f"Step {failure['first_unsound_step']}"
    fields = {
        "Submitted": case.response.answer or "(none)",
        "Reference": failure["reference_answer"],
        "Kind": failure["kind"],
        "Class": failure["failure_class"],
        step: failure["first_unsound_text"],
        "Judge": failure["judge_sentence"],
        "Quote": failure["quote"],
        "Pursued": failure["pursued"],
        "Established": failure["established"],
        "Missing evidence": failure["missing_evidence"],
        **{name: json.dumps(value, ensure_ascii=False) for name, value in case.response.columns.items()},
    }
    lines = [f"{name}: {text}" for name, text in fields.items() if text is not None]
    return "\n".join([f"Question: {case.instance.question}", *steps, *lines])


def _why_open(case: JudgedCase) -> str:
    reasons = [f"{criterion.value}: {reason}" for criterion, reason in case.judgment.unjudged.items()]
    return f"not judged ({'; '.join(reasons)})" if reasons else "not judged"


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _xml(text: str) -> str:
    """Return the text with every character that XML cannot contain replaced."""
    # A single forbidden character makes the whole file unreadable for a server.
    return _NOT_XML.sub("\ufffd", reveal_invisible_chars(text))
