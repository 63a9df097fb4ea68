"""How responses are read from files of other tools: what is a case, where its parts are, what the file leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from eclose.readers.layouts import RecordLayout
from eclose.readers.spans.selection import CaseSelection
from eclose.reading.response import ReadSettings, TraceMode

__all__ = ["CaseSelection", "ImportSettings", "TraceMode"]


@dataclass(frozen=True)
class ImportSettings(ReadSettings):
    """Settings of reading questions and responses from a file."""

    format: RecordLayout = RecordLayout.AUTO
    """Layout of the records; found out by default."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Path of each field in a record, such as ``{"question": "input.text", "answer": "outputs[0]"}``."""
    model: str | None = None
    """Name of the model where the file has none."""
    dataset: str | None = None
    """Name of the dataset where the file has none."""
    cases: CaseSelection = field(default_factory=CaseSelection)

    @property
    def identity(self) -> dict[str, object]:
        """The settings that differ from the defaults, as manifests record them; empty where none does."""
        settings: dict[str, object] = {
            "format": None if self.format is RecordLayout.AUTO else self.format.value,
            "map": dict(self.columns),
            "model": self.model,
            "dataset": self.dataset,
            **super().identity,
        }
        if self.cases != CaseSelection():
            settings["cases"] = asdict(self.cases)
        return {name: value for name, value in settings.items() if value}
