"""Measure and close the local-global gap in multi-hop reasoning.

Importing this package imports nothing else: each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eclose.core.answers import match, match_any, normalize
    from eclose.core.edges import Comparison, Direction, Edge, Margin
    from eclose.core.family import EvidenceEdit, Family, QuestionEdit, View, ViewKind
    from eclose.core.gates import check_family
    from eclose.core.instance import Instance, Passage
    from eclose.core.judgment import Ineligibility, Judgment, LocalFailure, StepJudgment
    from eclose.core.parse_trace import read_log, read_response
    from eclose.core.response import Response, Step, Trace, parse_completion
    from eclose.core.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
    from eclose.errors import EcloseError, RecordError, SettingError, UserError

_HOMES = {
    "eclose.core.answers": ("match", "match_any", "normalize"),
    "eclose.core.edges": ("Comparison", "Direction", "Edge", "Margin"),
    "eclose.core.family": ("EvidenceEdit", "Family", "QuestionEdit", "View", "ViewKind"),
    "eclose.core.gates": ("check_family",),
    "eclose.core.instance": ("Instance", "Passage"),
    "eclose.core.judgment": ("Ineligibility", "Judgment", "LocalFailure", "StepJudgment"),
    "eclose.core.parse_trace": ("read_log", "read_response"),
    "eclose.core.response": ("Response", "Step", "Trace", "parse_completion"),
    "eclose.core.verdict": ("FailureClass", "SettledVerdict", "TraceGroup", "Verdict"),
    "eclose.errors": ("EcloseError", "RecordError", "SettingError", "UserError"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Comparison",
    "Direction",
    "EcloseError",
    "Edge",
    "EvidenceEdit",
    "FailureClass",
    "Family",
    "Ineligibility",
    "Instance",
    "Judgment",
    "LocalFailure",
    "Margin",
    "Passage",
    "QuestionEdit",
    "RecordError",
    "Response",
    "SettingError",
    "SettledVerdict",
    "Step",
    "StepJudgment",
    "Trace",
    "TraceGroup",
    "UserError",
    "Verdict",
    "View",
    "ViewKind",
    "check_family",
    "match",
    "match_any",
    "normalize",
    "parse_completion",
    "read_log",
    "read_response",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__") and name.endswith("__")]
    return sorted({*own, *__all__})
