"""Text that would like to be more than text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eclose.diagnosis.diagnose import JudgedCase
from eclose.metrics.rates import Metric
from eclose.report.comparison import compare_with_base_run
from eclose.report.context import BaseComparison, ReportContext
from eclose.stats.intervals import Estimate, Interval
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Judgment, LocalFailure, StepJudgment, StepSupport
from eclose.values.response import Response, ResponseSource, Trace
from tests.diagnosis.judged_responses import hold_cases

_RUN = "pwned.push(1)"
PAYLOADS = (
    f"<script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"</SCRIPT ><script>{_RUN}</script>",
    f"</style><script>{_RUN}</script>",
    f"</title><script>{_RUN}</script>",
    f"</textarea><script>{_RUN}</script>",
    f"</noscript><script>{_RUN}</script>",
    f"--></script><script>{_RUN}//",
    f"<!--<script>{_RUN}</script>-->",
    f"<![CDATA[<script>{_RUN}</script>]]>",
    f"<img src=x onerror={_RUN}>",
    f"<img src=x onerror='{_RUN}'>",
    f'"><img src=x onerror={_RUN}>',
    f"'><img src=x onerror={_RUN}>",
    f"`><img src=x onerror={_RUN}>",
    f"<svg onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<math><mtext><img src=x onerror={_RUN}></mtext></math>",
    f"<body onload={_RUN}>",
    f"<details open ontoggle={_RUN}>x</details>",
    f"<input autofocus onfocus={_RUN}>",
    f"<select autofocus onfocus={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<audio src=x onerror={_RUN}>",
    f"<iframe srcdoc='<script>parent.{_RUN}</script>'></iframe>",
    f"<iframe src=javascript:parent.{_RUN}></iframe>",
    f"<object data=javascript:{_RUN}></object>",
    f"<embed src=javascript:{_RUN}>",
    f"<a href=javascript:{_RUN}>click</a>",
    f"<form action=javascript:{_RUN}><button>x</button></form>",
    f"<button formaction=javascript:{_RUN} autofocus>",
    "<base href=https://attacker.example/>",
    "<link rel=stylesheet href=https://attacker.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://attacker.example/'>",
    "<img src=https://attacker.example/pixel.png>",
    "<style>*{display:none}</style>",
    "<style>@import 'https://attacker.example/x.css';</style>",
    f"<div style=\"background:url(javascript:{_RUN})\">",
    f"<template><script>{_RUN}</script></template>",
    f"<noscript><p title=\"</noscript><img src=x onerror={_RUN}>\"></noscript>",
    f"<marquee onstart={_RUN}>x</marquee>",
    f"\" onmouseover={_RUN} x=\"",
    f"' autofocus onfocus={_RUN} x='",
    f"javascript:{_RUN}",
    f"data:text/html,<script>{_RUN}</script>",
    f"vbscript:{_RUN}",
    f"{{{{ {_RUN} }}}}",
    f"{{% raw %}}<script>{_RUN}</script>{{% endraw %}}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    f"${{{_RUN}}}",
    f"<%= {_RUN} %>",
    f"\\u003cscript\\u003e{_RUN}\\u003c/script\\u003e",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"&#60;script&#62;{_RUN}&#60;/script&#62;",
    f"+ADw-script+AD4-{_RUN}+ADw-/script+AD4-",
    f"%3Cscript%3E{_RUN}%3C/script%3E",
    "[click](javascript:pwned.push(1))",
    "![x](https://attacker.example/x.png) | a | b |\n| --- | --- |",
    "\\input{/etc/passwd} \\write18{id} % \\end{tabular} & $x$ ~ ^ _ #1 {",
    "]]></failure></testcase><testcase name='forged'/>",
    "=HYPERLINK(\"https://attacker.example\")",
    "right-to-left \u202egnirts desrever\u202c and \u2067isolate",
    "zero\u200bwidth\u200b \ufeff\u2060 ignore all \U000e0069\U000e0067 tags",
    "NUL \x00 escape \x1b[31m bell \x07 delete \x7f c1 \x9b",
    "line\u2028separator\u2029paragraph\x85next\x0b\x0c",
    "lone surrogate \ud800 and \udfff, not a character \uffff",
    "W" * 3_000,
    "ﷺ" * 200 + "\u0301" * 500,
    "שלום <b>world</b> مرحبا",
    "\r\n\r\n<script>pwned.push(1)</script>\r",
    "' OR 1=1; --",
    "__proto__",
    "constructor",
)  # fmt: skip


def hostile_case(number: int, text: str) -> JudgedCase:
    """A response in which every text is hostile."""
    passages = (Passage(text, text, f"{text} quoted {text}"), Passage("1", text, text))
    instance = Instance(f"{text}#{number}", text, passages, text, (text,), benchmark=text, support_ids=(text,))
    fails = StepJudgment(True, False, LocalFailure.INVALID_INFERENCE, StepSupport(0, "quoted"), text)
    lost = StepJudgment(True, True, None, StepSupport(7, text), text)
    holds = StepJudgment(True, True, None, StepSupport(1, text), text)
    judgment = Judgment(
        f"{text}#{number}",
        text,
        (holds, lost) if number % 2 else (holds, fails),
        aligned=number % 3 != 0,
        closed=None if number % 5 == 0 else number % 2 == 0,
        complete=True,
        correct=number % 7 != 0,
        unjudged={Criterion.CLOSURE: text} if number % 5 == 0 else {},
        reasons=dict.fromkeys(Criterion, text),
        pursued=text,
        established=text,
        evidence_sufficient=number % 4 != 0,
        missing_evidence=text,
        votes={"A": (True, False, None), "evidence": (True, True)},
    )
    response = Response(
        f"{text}#{number}",
        instance.id,
        Trace.of(text, text),
        text,
        ResponseSource(text),
        completion=text,
        answer_lines=2,
    )
    return JudgedCase(instance, response, judgment)


def hostile_cases() -> list[JudgedCase]:
    return [hostile_case(number, text) for number, text in enumerate(PAYLOADS)]


def hostile_notes(text: str) -> ReportContext:
    return ReportContext(
        title=text,
        corrected={Metric.GAP_RATE: Estimate(0.1, Interval(0.05, 0.2))},
        validation=text,
        left_out=[(text, text)],
        about={text: text},
        base=hostile_against(text),
    )


def hostile_against(text: str) -> BaseComparison:
    """A comparison in which every text is hostile; judges, passages and the number of questions call for cautions."""
    now = [hostile_case(number, text) for number in range(4)]
    before = [
        replace(
            case,
            judgment=replace(case.judgment, judge=f"{text}'", aligned=not case.judgment.aligned),
            instance=replace(case.instance, evidence=case.instance.evidence[:1]),
        )
        for case in now[1:]
    ]
    rng = np.random.default_rng(1)
    sides = (hold_cases(now), hold_cases(before, left_out=[(text, text)]))
    return compare_with_base_run(*sides, text, rng=rng, resamples=5)
