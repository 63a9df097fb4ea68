"""Pages of the Python reference: every exported name once, rendered from its docstring when the site is built.

Names of ``eclose_train`` are those that ``eclose`` lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pages import DOCS

import eclose
import eclose_train

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = DOCS / "reference" / "api"


class ApiPage(NamedTuple):
    """Title, introduction and names of a page."""

    title: str
    introduction: str
    names: str
    elsewhere: str = ""
    """Names of modules, which the packages do not export."""


PAGES = {
    "evaluate": ApiPage(
        "Evaluate",
        "Judge responses, read the results, hold them against limits, and send them on.",
        """evaluate aevaluate Judge judge ajudge show_judgment diagnose compare gate trend assert_reliable export
        generate agenerate Results RunResult Rates GateResult TrendResult ExportResult JudgmentTrail""",
        """eclose.diagnosis.label_file.write_labels eclose.api.results.MetricRate eclose.report.context.BaseComparison
        eclose.values.verdict.TraceGroup""",
    ),
    "detect": ApiPage(
        "Detect",
        "Score responses without a reference answer, and compare detectors with verdicts.",
        "detect adetect train_verifier TrainedVerifier",
        "eclose.report.detectors.write.write_detector_report",
    ),
    "train": ApiPage(
        "Construct and train",
        "Build counterfactual families, train and select an adapter, and test what it prefers (`eclose[train]`).",
        """construct aconstruct train select switch_test TrainingResult Selection SwitchResult EClosureCollator
        EClosureLoss EClosureLossMixin Comparison""",
        "eclose.values.family_rules.check_family",
    ),
    "settings": ApiPage(
        "Settings",
        "Values that the functions take where the defaults do not fit.",
        """CallSettings JudgeSettings GenerateSettings RunOptions ImportSettings IntakeSettings ReadSettings
        ChatDetectorSettings LocalDetectorSettings ConstructSettings SwitchSettings OwnCriterion""",
        """eclose.calls.batches.run.BatchSettings eclose.calls.cluster.workers.RaySettings
        eclose.readers.spans.selection.CaseSelection eclose.readers.layouts.RecordLayout
        eclose.reading.response.TraceMode eclose.generation.SourceLabels
        eclose.report.formats.file_formats.ReportFormat eclose.detectors.study_statistics.StudySettings""",
    ),
    "records": ApiPage(
        "Records",
        "Questions, responses, judgments and families. All are immutable, and each has a file format.",
        """Instance Passage Response Trace Step Judgment Verdict FailureClass Family Edge Direction resolve
        parse_completion read_response Reading""",
        """eclose.values.judgment.StepJudgment eclose.values.judgment.LocalFailure eclose.values.judgment.Ineligibility
        eclose.values.verdict.SettledVerdict eclose.values.family.View eclose.values.family.ViewKind
        eclose.values.family.EvidenceEdit eclose.values.family.QuestionEdit eclose.values.answers.match_answer
        eclose.values.answers.match_any_answer eclose.values.answers.normalize_answer""",
    ),
    "errors": ApiPage(
        "Errors",
        "What the functions raise. All derive from `EcloseError`; the message says what to do.",
        "EcloseError UserError SettingError RecordError",
    ),
}


def make_pages() -> dict[Path, str]:
    """Return the pages; exit where a name is on none or on several."""
    exported = {*eclose.__all__, *eclose_train.__all__}
    listed = [name for page in PAGES.values() for name in page.names.split()]
    wrong = sorted({name for name in {*listed, *exported} if listed.count(name) != (name in exported)})
    if wrong:
        raise SystemExit(f"scripts/docs/api_pages.py must list each exported name once: {', '.join(wrong)}.")
    return {FOLDER / f"{stem}.md": _format_page(page) for stem, page in PAGES.items()}


def _format_page(page: ApiPage) -> str:
    homes = dict.fromkeys(eclose_train.__all__, "eclose_train") | dict.fromkeys(eclose.__all__, "eclose")
    names = [f"{homes[name]}.{name}" for name in page.names.split()] + page.elsewhere.split()
    return "\n".join([f"# {page.title}\n", f"{page.introduction}\n", *(f"::: {name}\n" for name in names)])
