"""Measure and close the local-global gap in multi-hop reasoning.

The names below are the public interface. Each is loaded when it is first used, so importing the package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.lazy_names import make_lazy_names

__version__: str
"""Version of the installed distribution, which the build takes from the tag of the release."""

if TYPE_CHECKING:
    from eclose.api.detect import adetect, detect
    from eclose.api.evaluate import aevaluate, evaluate
    from eclose.api.gate import GateResult, gate
    from eclose.api.generate import agenerate, generate
    from eclose.api.judge import Judge, ajudge, judge
    from eclose.api.resolve import resolve
    from eclose.api.results import Rates, Results, compare, diagnose
    from eclose.api.trend import TrendResult, trend
    from eclose.calls.client import CallSettings
    from eclose.calls.run import RunOptions, RunResult
    from eclose.detectors.settings import ChatDetectorSettings, LocalDetectorSettings
    from eclose.errors import EcloseError, RecordError, SettingError, UserError
    from eclose.generation import GenerateSettings
    from eclose.integrations.export import ExportResult, export
    from eclose.judging.settings import JudgeSettings
    from eclose.judging.show import JudgmentTrail, show_judgment
    from eclose.readers.import_settings import ImportSettings
    from eclose.readers.intake import IntakeSettings
    from eclose.reading.response import Reading, ReadSettings, read_response
    from eclose.testing import assert_reliable
    from eclose.values.family import Family
    from eclose.values.instance import Instance, Passage
    from eclose.values.judgment import Judgment
    from eclose.values.own_criterion import OwnCriterion
    from eclose.values.response import Response, Step, Trace, parse_completion
    from eclose.values.verdict import FailureClass, Verdict

# A second list beside the imports above, which only type checkers see: both name the same things.
_HOMES = {
    "eclose.api.detect": (
        "adetect",
        "detect",
    ),
    "eclose.api.evaluate": (
        "aevaluate",
        "evaluate",
    ),
    "eclose.api.gate": (
        "GateResult",
        "gate",
    ),
    "eclose.api.generate": (
        "agenerate",
        "generate",
    ),
    "eclose.api.judge": (
        "Judge",
        "ajudge",
        "judge",
    ),
    "eclose.api.resolve": ("resolve",),
    "eclose.api.results": (
        "Rates",
        "Results",
        "compare",
        "diagnose",
    ),
    "eclose.api.trend": (
        "TrendResult",
        "trend",
    ),
    "eclose.calls.client": ("CallSettings",),
    "eclose.calls.run": (
        "RunOptions",
        "RunResult",
    ),
    "eclose.detectors.settings": (
        "ChatDetectorSettings",
        "LocalDetectorSettings",
    ),
    "eclose.errors": (
        "EcloseError",
        "RecordError",
        "SettingError",
        "UserError",
    ),
    "eclose.generation": ("GenerateSettings",),
    "eclose.integrations.export": (
        "ExportResult",
        "export",
    ),
    "eclose.judging.settings": ("JudgeSettings",),
    "eclose.judging.show": (
        "JudgmentTrail",
        "show_judgment",
    ),
    "eclose.readers.import_settings": ("ImportSettings",),
    "eclose.readers.intake": ("IntakeSettings",),
    "eclose.reading.response": ("ReadSettings", "Reading", "read_response"),
    "eclose.testing": ("assert_reliable",),
    "eclose.values.family": ("Family",),
    "eclose.values.instance": (
        "Instance",
        "Passage",
    ),
    "eclose.values.judgment": ("Judgment",),
    "eclose.values.own_criterion": ("OwnCriterion",),
    "eclose.values.response": (
        "Response",
        "Step",
        "Trace",
        "parse_completion",
    ),
    "eclose.values.verdict": (
        "FailureClass",
        "Verdict",
    ),
}

__all__ = [
    "CallSettings",
    "ChatDetectorSettings",
    "EcloseError",
    "ExportResult",
    "FailureClass",
    "Family",
    "GateResult",
    "GenerateSettings",
    "ImportSettings",
    "Instance",
    "IntakeSettings",
    "Judge",
    "JudgeSettings",
    "Judgment",
    "JudgmentTrail",
    "LocalDetectorSettings",
    "OwnCriterion",
    "Passage",
    "Rates",
    "ReadSettings",
    "Reading",
    "RecordError",
    "Response",
    "Results",
    "RunOptions",
    "RunResult",
    "SettingError",
    "Step",
    "Trace",
    "TrendResult",
    "UserError",
    "Verdict",
    "adetect",
    "aevaluate",
    "agenerate",
    "ajudge",
    "assert_reliable",
    "compare",
    "detect",
    "diagnose",
    "evaluate",
    "export",
    "gate",
    "generate",
    "judge",
    "parse_completion",
    "read_response",
    "resolve",
    "show_judgment",
    "trend",
]

_IN_TRAIN = """
Comparison ConstructSettings Direction EClosureCollator EClosureLoss EClosureLossMixin Edge Selection SwitchResult
SwitchSettings TrainedVerifier TrainingResult aconstruct construct select switch_test train train_verifier
""".split()  # noqa: SIM905 - the names are read as a list

__getattr__, __dir__ = make_lazy_names(
    __name__,
    _HOMES,
    elsewhere=dict.fromkeys(_IN_TRAIN, "it is in eclose_train: pip install 'eclose[train]'"),
)
