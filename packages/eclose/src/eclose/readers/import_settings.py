"""How responses are read from files of other tools: what is a case, where its parts are, what the file leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from eclose.readers.spans.selection import CaseSelection
from eclose.reading.response import ReadSettings, TraceMode

__all__ = ["CaseSelection", "ImportSettings", "TraceMode"]


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings of reading responses from a file of another tool."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Path of each field in a record, such as ``{"question": "input.text", "answer": "outputs[0]"}``."""
    model: str | None = None
    """Name of the model where the file has none."""
    dataset: str | None = None
    """Name of the dataset where the file has none."""
    trace: TraceMode = TraceMode.AUTO
    """The mode, or its name such as ``"marked"``."""
    answer_markers: tuple[str, ...] = ()
    """Further texts of lines that name the answer; a regular expression as ``/.../``."""
    trace_markers: tuple[str, ...] = ()
    """Further texts of lines that name the trace."""
    language: str = "auto"
    """Code of the responses' language; ``auto`` to detect it."""
    judge_arguments: bool = False
    """Whether sentences in the arguments of an agent's calls are claims."""
    reader: str | None = None
    """``FILE.py:FUNCTION`` that reads responses instead of eclose."""
    cases: CaseSelection = field(default_factory=CaseSelection)

    def __post_init__(self) -> None:
        """Take the mode of the trace by its name as well; raise SettingError for an unknown one."""
        object.__setattr__(self, "trace", self.reading.trace)

    @property
    def reading(self) -> ReadSettings:
        """The settings of reading one response."""
        return ReadSettings(
            trace=self.trace,
            answer_markers=tuple(self.answer_markers),
            trace_markers=tuple(self.trace_markers),
            language=self.language,
            judge_arguments=self.judge_arguments,
            reader=self.reader,
        )

    @property
    def identity(self) -> dict[str, object]:
        """The settings that differ from the defaults, as manifests record them; empty where none does."""
        settings: dict[str, object] = {"map": dict(self.columns), "model": self.model, "dataset": self.dataset}
        settings |= self.reading.identity
        if self.cases != CaseSelection():
            settings["cases"] = asdict(self.cases)
        return {name: value for name, value in settings.items() if value}
