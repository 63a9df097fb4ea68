"""One test case for each response, as continuous integration servers read it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from eclose.core.invisible_chars import reveal_invisible
from eclose.diagnosis.diagnose import broken_link
from eclose.diagnosis.report.context import ReportContext
from eclose.diagnosis.report.filters import OUTCOMES, ResponseFacts, derive_facts, group_value
from eclose.diagnosis.report.format import plural
from eclose.diagnosis.report.summary import agreement_sentences
from eclose.metrics.repeat_consistency import count_flips

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.diagnosis.diagnose import Case

# What XML 1.0 has no way to write, not even as a reference.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(cases: Sequence[Case], notes: ReportContext | None = None) -> str:
    """The XML document: a suite for each dataset and model, a failure for each response that is not reliable."""
    notes = notes or ReportContext()
    suites: dict[tuple[str, str], list[ResponseFacts]] = defaultdict(list)
    for case in cases:
        suites[group_value(case, "benchmark"), group_value(case, "model")].append(derive_facts(case))
    tests, failures, skipped = _counts([one for suite in suites.values() for one in suite])
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    name = f"{notes.title} (stale judgments)" if notes.stale else notes.title
    lines.append(f'<testsuites name={_attribute(name)} tests="{tests}" failures="{failures}" skipped="{skipped}">')
    for (benchmark, model), suite in sorted(suites.items()):
        lines += _suite(benchmark, model, suite, notes)
    return "\n".join([*lines, "</testsuites>", ""])


def _counts(suite: Sequence[ResponseFacts]) -> tuple[int, int, int]:
    labels = [one.verdict.reliable for one in suite]
    return len(labels), labels.count(False), labels.count(None)


def _suite(benchmark: str, model: str, suite: Sequence[ResponseFacts], notes: ReportContext) -> Iterator[str]:
    tests, failures, skipped = _counts(suite)
    name = f"{benchmark} / {model}"
    yield (f'<testsuite name={_attribute(name)} tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}">')
    yield f"<properties>{''.join(_properties(suite, notes))}</properties>"
    for one in suite:
        yield from _test(f"{_part(benchmark)}.{_part(model)}", one)
    yield "</testsuite>"


def _properties(suite: Sequence[ResponseFacts], notes: ReportContext) -> Iterator[str]:
    """How far to trust the judge of a suite: against people, and against itself where it was asked again."""
    for sentence in notes.stale_told:
        yield f'<property name="stale" value={_attribute(sentence)}/>'
    validation = " ".join((notes.trust, *agreement_sentences(notes)))
    yield f'<property name="validation" value={_attribute(validation)}/>'
    for name, one in count_flips(each.case.judgment for each in suite).items():
        told = f"{one.flipped:,} of {plural(one.responses, 'response')} got both answers"
        yield f'<property name="flips {name}" value={_attribute(told)}/>'


def _test(classname: str, one: ResponseFacts) -> Iterator[str]:
    opened = f"<testcase classname={_attribute(classname)} name={_attribute(one.case.response.id)}"
    if one.verdict.reliable:
        yield f"{opened}/>"
        return
    yield f"{opened}>"
    if one.verdict.reliable is None:
        yield f"<skipped message={_attribute(_why_open(one.case))}/>"
    else:
        kind = _attribute(OUTCOMES[one.outcome])
        yield f"<failure type={kind} message={_attribute(broken_link(one.case))}>{_text(_told(one.case))}</failure>"
    yield "</testcase>"


def _told(case: Case) -> str:
    """Question, reasoning and answer, to read in a log."""
    steps = [f"{number}. {step}" for number, step in enumerate(case.response.trace.texts, start=1)]
    return "\n".join([f"Question: {case.instance.question}", *steps, f"Submitted: {case.response.answer or '(none)'}"])


def _why_open(case: Case) -> str:
    told = [f"{criterion.value}: {reason}" for criterion, reason in case.judgment.unjudged.items()]
    return f"not judged ({'; '.join(told)})" if told else "not judged"


def _part(name: str) -> str:
    """Servers make folders of the dots in a class name."""
    return name.replace(".", "_")


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _text(text: str) -> str:
    return escape(_xml(text))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", reveal_invisible(text))
