"""Measure and close the local-global gap in multi-hop reasoning.

The names below are the public interface. Each is loaded when it is first used, so importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__: str
"""Version of the installed distribution, which the build takes from the tag of the release."""

if TYPE_CHECKING:
    from eclose.api.data import agenerate, generate
    from eclose.api.detection import adetect, detect
    from eclose.api.judging import aevaluate, ajudge, evaluate, judge
    from eclose.api.models import resolve
    from eclose.benchmarks.import_settings import ImportSettings, TraceMode
    from eclose.benchmarks.layouts import RecordLayout
    from eclose.calls.batch.run import BatchSettings
    from eclose.calls.client import CallSettings
    from eclose.calls.ray.workers import RaySettings
    from eclose.calls.run import RunOptions, RunResult
    from eclose.construction.api import aconstruct, construct
    from eclose.construction.settings import ConstructSettings
    from eclose.core.answers import match_answer, match_any_answer, normalize_answer
    from eclose.core.family import EvidenceEdit, Family, QuestionEdit, View, ViewKind
    from eclose.core.family_gates import check_family
    from eclose.core.instance import Instance, Passage
    from eclose.core.judgment import Ineligibility, Judgment, LocalFailure, StepJudgment
    from eclose.core.parse_trace import parse_agent_log, parse_response
    from eclose.core.preference_comparisons import Comparison, Direction, Edge
    from eclose.core.response import Response, Step, Trace, parse_completion
    from eclose.core.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
    from eclose.detection.settings import ChatDetectorSettings, LocalDetectorSettings
    from eclose.detection.study_statistics import StudySettings
    from eclose.detection.verifier.training import TrainedVerifier, train_verifier
    from eclose.diagnosis.report.context import BaseComparison
    from eclose.diagnosis.report.detectors.write import write_detector_report
    from eclose.diagnosis.report.file_formats import ReportFormat
    from eclose.diagnosis.results import MetricRate, Rates, Results, compare, diagnose
    from eclose.diagnosis.run_counts import split_run
    from eclose.diagnosis.run_gate import GateResult, gate
    from eclose.errors import EcloseError, RecordError, SettingError, UserError
    from eclose.generation import GenerateSettings, SourceLabels
    from eclose.integrations.export.run import ExportResult, export
    from eclose.judging.settings import JudgeSettings
    from eclose.judging.show_judgment import JudgmentTrail, show_judgment
    from eclose.testing import assert_reliable
    from eclose.traces.selection import CaseSelection
    from eclose.training.api import SwitchResult, SwitchSettings, select, switch_test, train
    from eclose.training.loss.e_closure import EClosureCollator, EClosureLoss, EClosureLossMixin
    from eclose.training.run import TrainingResult
    from eclose.training.select import Selection

# A second list beside the imports above, which only type checkers see: both name the same things.
_HOMES = {
    "eclose.api.data": ("agenerate", "generate"),
    "eclose.api.detection": ("adetect", "detect"),
    "eclose.api.judging": ("aevaluate", "ajudge", "evaluate", "judge"),
    "eclose.api.models": ("resolve",),
    "eclose.benchmarks.import_settings": ("ImportSettings", "TraceMode"),
    "eclose.benchmarks.layouts": ("RecordLayout",),
    "eclose.calls.batch.run": ("BatchSettings",),
    "eclose.calls.client": ("CallSettings",),
    "eclose.calls.ray.workers": ("RaySettings",),
    "eclose.calls.run": ("RunOptions", "RunResult"),
    "eclose.construction.api": ("aconstruct", "construct"),
    "eclose.construction.settings": ("ConstructSettings",),
    "eclose.core.answers": ("match_answer", "match_any_answer", "normalize_answer"),
    "eclose.core.preference_comparisons": ("Comparison", "Direction", "Edge"),
    "eclose.core.family": ("EvidenceEdit", "Family", "QuestionEdit", "View", "ViewKind"),
    "eclose.core.family_gates": ("check_family",),
    "eclose.core.instance": ("Instance", "Passage"),
    "eclose.core.judgment": ("Ineligibility", "Judgment", "LocalFailure", "StepJudgment"),
    "eclose.core.parse_trace": ("parse_agent_log", "parse_response"),
    "eclose.core.response": ("Response", "Step", "Trace", "parse_completion"),
    "eclose.core.verdict": ("FailureClass", "SettledVerdict", "TraceGroup", "Verdict"),
    "eclose.detection.settings": ("ChatDetectorSettings", "LocalDetectorSettings"),
    "eclose.detection.study_statistics": ("StudySettings",),
    "eclose.detection.verifier.training": ("TrainedVerifier", "train_verifier"),
    "eclose.diagnosis.report.context": ("BaseComparison",),
    "eclose.diagnosis.report.detectors.write": ("write_detector_report",),
    "eclose.diagnosis.report.file_formats": ("ReportFormat",),
    "eclose.diagnosis.results": ("MetricRate", "Rates", "Results", "compare", "diagnose"),
    "eclose.diagnosis.run_counts": ("split_run",),
    "eclose.diagnosis.run_gate": ("GateResult", "gate"),
    "eclose.errors": ("EcloseError", "RecordError", "SettingError", "UserError"),
    "eclose.generation": ("GenerateSettings", "SourceLabels"),
    "eclose.integrations.export.run": ("ExportResult", "export"),
    "eclose.judging.settings": ("JudgeSettings",),
    "eclose.judging.show_judgment": ("JudgmentTrail", "show_judgment"),
    "eclose.testing": ("assert_reliable",),
    "eclose.traces.selection": ("CaseSelection",),
    "eclose.training.api": ("SwitchResult", "SwitchSettings", "select", "switch_test", "train"),
    "eclose.training.loss.e_closure": ("EClosureCollator", "EClosureLoss", "EClosureLossMixin"),
    "eclose.training.run": ("TrainingResult",),
    "eclose.training.select": ("Selection",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BaseComparison",
    "BatchSettings",
    "CallSettings",
    "CaseSelection",
    "ChatDetectorSettings",
    "Comparison",
    "ConstructSettings",
    "Direction",
    "EClosureCollator",
    "EClosureLoss",
    "EClosureLossMixin",
    "EcloseError",
    "Edge",
    "EvidenceEdit",
    "ExportResult",
    "FailureClass",
    "Family",
    "GateResult",
    "GenerateSettings",
    "ImportSettings",
    "Ineligibility",
    "Instance",
    "JudgeSettings",
    "Judgment",
    "JudgmentTrail",
    "LocalDetectorSettings",
    "LocalFailure",
    "MetricRate",
    "Passage",
    "QuestionEdit",
    "Rates",
    "RaySettings",
    "RecordError",
    "RecordLayout",
    "ReportFormat",
    "Response",
    "Results",
    "RunOptions",
    "RunResult",
    "Selection",
    "SettingError",
    "SettledVerdict",
    "SourceLabels",
    "Step",
    "StepJudgment",
    "StudySettings",
    "SwitchResult",
    "SwitchSettings",
    "Trace",
    "TraceGroup",
    "TraceMode",
    "TrainedVerifier",
    "TrainingResult",
    "UserError",
    "Verdict",
    "View",
    "ViewKind",
    "aconstruct",
    "adetect",
    "aevaluate",
    "agenerate",
    "ajudge",
    "assert_reliable",
    "check_family",
    "compare",
    "construct",
    "detect",
    "diagnose",
    "evaluate",
    "export",
    "gate",
    "generate",
    "judge",
    "match_answer",
    "match_any_answer",
    "normalize_answer",
    "parse_agent_log",
    "parse_completion",
    "parse_response",
    "resolve",
    "select",
    "show_judgment",
    "split_run",
    "switch_test",
    "train",
    "train_verifier",
    "write_detector_report",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = _read_version()
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # From now on the name is an ordinary attribute, and this function is not called for it again.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__") and name.endswith("__")]
    return sorted({*own, "__version__", *__all__})


def _read_version() -> str:
    # Reading metadata takes longer than importing this package.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version(__name__)
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "0+unknown"
