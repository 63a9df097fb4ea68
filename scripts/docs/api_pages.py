"""Pages of the Python reference: every exported name once, rendered from its docstring when the site is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pages import DOCS

import eclose

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = DOCS / "reference" / "api"


class ApiPage(NamedTuple):
    """Title, introduction and names of a page."""

    title: str
    introduction: str
    names: str


PAGES = {
    "evaluate": ApiPage(
        "Evaluate",
        "Judge responses, read the results, hold them against limits, and send them on.",
        """evaluate aevaluate judge ajudge show_judgment diagnose compare gate assert_reliable export
        generate agenerate split_run Results RunResult Rates MetricRate Comparison BaseComparison GateResult
        ExportResult JudgmentTrail TraceGroup""",
    ),
    "detect": ApiPage(
        "Detect",
        "Score responses without a reference answer, and compare detectors with verdicts.",
        "detect adetect write_detector_report train_verifier TrainedVerifier",
    ),
    "train": ApiPage(
        "Construct and train",
        "Build counterfactual families, train and select an adapter, and test what it prefers.",
        """construct aconstruct check_family train select switch_test TrainingResult Selection SwitchResult
        EClosureCollator EClosureLoss EClosureLossMixin""",
    ),
    "settings": ApiPage(
        "Settings",
        "Values that the functions take where the defaults do not fit.",
        """CallSettings JudgeSettings GenerateSettings BatchSettings CaseSelection RunOptions ImportSettings
        RecordLayout TraceMode SourceLabels ReportFormat ChatDetectorSettings LocalDetectorSettings StudySettings
        ConstructSettings SwitchSettings RaySettings""",
    ),
    "records": ApiPage(
        "Records",
        "Questions, responses, judgments and families. All are immutable, and each has a file format.",
        """Instance Passage Response Trace Step Judgment StepJudgment Verdict SettledVerdict FailureClass LocalFailure
        Ineligibility Family View ViewKind Edge Direction EvidenceEdit QuestionEdit resolve parse_response
        parse_completion parse_agent_log match_answer match_any_answer normalize_answer""",
    ),
    "errors": ApiPage(
        "Errors",
        "What the functions raise. All derive from `EcloseError`; the message says what to do.",
        "EcloseError UserError SettingError RecordError",
    ),
}


def make_pages() -> dict[Path, str]:
    """Return the pages; exit where a name is on none or on several."""
    listed = [name for page in PAGES.values() for name in page.names.split()]
    wrong = sorted({name for name in {*listed, *eclose.__all__} if listed.count(name) != (name in eclose.__all__)})
    if wrong:
        raise SystemExit(f"scripts/docs/api_pages.py must list each exported name once: {', '.join(wrong)}.")
    return {FOLDER / f"{stem}.md": _format_page(page) for stem, page in PAGES.items()}


def _format_page(page: ApiPage) -> str:
    parts = [f"# {page.title}\n", f"{page.introduction}\n"]
    parts += [f"::: eclose.{name}\n" for name in page.names.split()]
    return "\n".join(parts)
