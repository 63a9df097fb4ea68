"""The card of a verifier: what it was trained on, and what it reaches on held-out families beside simple controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eclose.detection.verifier.controls import FOLDS, HeadControl

if TYPE_CHECKING:
    from collections.abc import Sequence

CARD_FILE = "card.json"
CARD_PAGE = "README.md"


@dataclass(frozen=True, slots=True)
class RowCount:
    """Number of training rows of one kind."""

    head: str
    edit: str
    pairing: str
    label: bool
    rows: int


@dataclass(frozen=True, slots=True)
class VerifierCard:
    """Training and controls of a verifier."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Content hash of each file of families."""
    benchmarks: Mapping[str, int]
    """Families by benchmark."""
    families: int
    rows: tuple[RowCount, ...]
    controls: tuple[HeadControl, ...]
    """Controls on the same rows; those named ``all features`` are the verifier's own figures."""

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON values."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return the card as a page."""
        sections = (self._introduction(), self._row_table(), self._control_table(), _LIMITS)
        return "\n\n".join(sections) + "\n"

    def _introduction(self) -> str:
        benchmarks = ", ".join(f"{name} ({count:,})" for name, count in self.benchmarks.items())
        files = "\n".join(f"- `{name}`: {content}" for name, content in self.inputs.items())
        settings = ", ".join(f"{name}: {value}" for name, value in self.settings.items())
        return (
            f"# Verifier {self.name}\n\nA {self.kind} verifier of dependencies: the probability that evidence supports"
            " the steps, that the trace pursues the question, and that it establishes the answer. Low values mean"
            f" failure.\n\n## Training\n\n{self.families:,} counterfactual families of {benchmarks}.\nSettings:"
            f" {settings}.\n\n{files}"
        )

    def _row_table(self) -> str:
        rows = [
            (row.head, row.edit, row.pairing, "true" if row.label else "false", f"{row.rows:,}") for row in self.rows
        ]
        note = "Every edit of a text occurs under both labels of its head; training refuses rows in which it does not."
        return f"## Rows\n\n{note}\n\n" + _format_table(("head", "edit", "parts", "label", "rows"), rows)

    def _control_table(self) -> str:
        rows = [
            (
                control.head,
                control.score,
                control.edit,
                f"{control.holds:,} / {control.fails:,}",
                _format_share(control.auroc, 3),
                "-" if control.recall is None else f"{100 * control.recall:.0f} %",
            )
            for control in self.controls
        ]
        note = (
            f"On rows of held-out families ({FOLDS} folds). R@95 is the share of false rows found where 95 % of the"
            " true ones are spared. Shortcuts are the number of steps and the conclusion word: features of form that"
            " separate failures only where these follow one style."
        )
        head = ("head", "scored by", "edit", "true / false", "AUROC", "R@95")
        return f"## Controls\n\n{note}\n\n" + _format_table(head, rows)


_LIMITS = """## Limits

- These rows are made from families. On responses of a model, and on other texts, figures are lower: measure them on
  your own labelled responses (`eclose detect evaluate`).
- Probabilities are not calibrated for responses. Thresholds do not transfer between benchmarks: set them on your own
  responses (`eclose detect calibrate`).
- The penalty of a linear head is chosen on the folds of the table, which flatters its figures slightly."""


def _format_share(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
