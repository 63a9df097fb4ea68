"""Measure and close the local-global gap in multi-hop reasoning.

Importing this package imports nothing else: each name below is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from eclosure.core.answers import match, match_any, normalize
    from eclosure.core.edges import Comparison, Direction, Edge, Margin
    from eclosure.core.family import EvidenceEdit, Family, QuestionEdit, View, ViewKind
    from eclosure.core.gates import check_family
    from eclosure.core.instance import Instance, Passage
    from eclosure.core.judgment import Ineligibility, Judgment, LocalFailure, StepJudgment
    from eclosure.core.reading import read_log, read_response
    from eclosure.core.response import Response, Step, Trace, parse_completion
    from eclosure.core.verdict import FailureClass, SettledVerdict, TraceGroup, Verdict
    from eclosure.errors import EclosureError, RecordError, SettingError, UserError

_HOMES = {
    "eclosure.core.answers": ("match", "match_any", "normalize"),
    "eclosure.core.edges": ("Comparison", "Direction", "Edge", "Margin"),
    "eclosure.core.family": ("EvidenceEdit", "Family", "QuestionEdit", "View", "ViewKind"),
    "eclosure.core.gates": ("check_family",),
    "eclosure.core.instance": ("Instance", "Passage"),
    "eclosure.core.judgment": ("Ineligibility", "Judgment", "LocalFailure", "StepJudgment"),
    "eclosure.core.reading": ("read_log", "read_response"),
    "eclosure.core.response": ("Response", "Step", "Trace", "parse_completion"),
    "eclosure.core.verdict": ("FailureClass", "SettledVerdict", "TraceGroup", "Verdict"),
    "eclosure.errors": ("EclosureError", "RecordError", "SettingError", "UserError"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Comparison",
    "Direction",
    "EclosureError",
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
