"""How responses are read from files of other tools: what is a case, where its parts are, what the file leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from eclose.errors import SettingError
from eclose.readers.spans.selection import CaseSelection

__all__ = ["CaseSelection", "ImportSettings", "TraceMode"]


class TraceMode(StrEnum):
    """Where the steps of a response come from."""

    MARKED = "marked"
    """From what the file marks as steps; an answer without them has no trace."""
    PROSE = "prose"
    """Also from the sentences of an answer that has no marked steps."""


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings of reading responses from a file of another tool."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Path of each field in a record, such as ``{"question": "input.text", "answer": "outputs[0]"}``."""
    model: str | None = None
    """Name of the model where the file has none."""
    dataset: str | None = None
    """Name of the dataset where the file has none."""
    trace: TraceMode = TraceMode.MARKED
    """The mode, or its name such as ``"prose"``."""
    cases: CaseSelection = field(default_factory=CaseSelection)

    def __post_init__(self) -> None:
        """Take the mode of the trace by its name as well; raise SettingError for an unknown one."""
        try:
            object.__setattr__(self, "trace", TraceMode(self.trace))
        except ValueError as error:
            raise SettingError(f"trace: {self.trace!r} is none of {', '.join(TraceMode)}.") from error

    @property
    def identity(self) -> dict[str, object]:
        """The settings that differ from the defaults, as manifests record them; empty where none does."""
        settings: dict[str, object] = {"map": dict(self.columns), "model": self.model, "dataset": self.dataset}
        if self.trace is not TraceMode.MARKED:
            settings["trace"] = self.trace.value
        if self.cases != CaseSelection():
            settings["cases"] = asdict(self.cases)
        return {name: value for name, value in settings.items() if value}
