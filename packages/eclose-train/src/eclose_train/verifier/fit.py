"""Train a verifier on counterfactual families, measure its controls, and write it with a card and a manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eclose.errors import UserError
from eclose.files.atomic import AtomicFile, write_json
from eclose.files.jsonl import read_records
from eclose.files.manifest import Manifest, hash_files
from eclose.files.outcome_counts import RecordCounts
from eclose.files.run_folder import list_paths
from eclose.stats.ranking import ScoredResponses, assign_folds, auroc, recall_at_retention
from eclose.values.family import Family
from eclose_train.verifier.features import SHORTCUT_FEATURES
from eclose_train.verifier.linear import (
    FEATURE_NAMES,
    PENALTIES,
    SUPPORT_SHORTCUT,
    LinearVerifier,
    VerifierHead,
    build_feature_matrix,
    compute_features,
    fit_linear_head,
    save_linear_verifier,
    select_features,
)
from eclose_train.verifier.rows import build_verifier_rows, check_edits_under_both_labels, count_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.stats.arrays import Flags, Floats, Indices
    from eclose_train.verifier.rows import VerifierRow

CARD_FILE = "card.json"
CARD_PAGE = "README.md"
MANIFEST_FILE = "manifest.json"
NO_BENCHMARK = "no benchmark named"
FOLDS = 5
LARGEST_LOSS = 0.015
"""Held-out AUROC that is given up for a stronger penalty: small weights hold better on texts unlike the families. On
real traces, R@95 rose from 27 % at the weakest penalty to 40 % at the one chosen so (decision 0041)."""
OVERLAP_FEATURES = {
    VerifierHead.SUPPORT: "step words in the evidence",
    VerifierHead.ALIGNMENT: "question words in the last step",
    VerifierHead.CLOSURE: "answer words in the last step",
}
"""Trivial word overlap of each head: one feature, no training."""


@dataclass(frozen=True, slots=True)
class HeadControl:
    """Separation of a head's rows by one score, on held-out families."""

    head: VerifierHead
    score: str
    """What the rows are scored by: all features, those without shortcuts, shortcuts alone, or word overlap."""
    edit: str
    """Rows of one edit, or ``all``."""
    holds: int
    fails: int
    auroc: float | None
    recall: float | None
    """Share of failures found where 95 % of the true rows are spared."""


class HeadRows:
    """The rows of one head as a matrix of features, with labels and folds."""

    def __init__(self, head: VerifierHead, rows: Sequence[VerifierRow], seed: int) -> None:
        self.head = head
        self.rows = [row for row in rows if row.head is head]
        self.labels: Flags = np.array([row.label for row in self.rows], dtype=bool)
        features = [compute_features(head, row.input)[0] for row in self.rows]
        self._matrix = build_feature_matrix(features, FEATURE_NAMES[head])
        families, owners = np.unique(np.array([row.family_id for row in self.rows]), return_inverse=True)
        if len(families) < FOLDS:
            raise UserError(
                f"{len(families)} families are too few to train and check a verifier: give at least {FOLDS}."
            )
        self.folds: Indices = assign_folds(np.zeros(len(families), np.intp), FOLDS, rng=np.random.default_rng(seed))[
            owners
        ]

    def take(self, names: Sequence[str]) -> Floats:
        """Return the columns of some features."""
        order = {name: column for column, name in enumerate(FEATURE_NAMES[self.head])}
        columns: Floats = self._matrix[:, [order[name] for name in names]]
        return columns

    def predict_held_out(self, names: Sequence[str], penalty: float) -> Floats:
        """Return the score of every row by a head that was trained without its fold."""
        matrix, scores = self.take(names), np.zeros(len(self.rows))
        for fold in range(FOLDS):
            held_out = self.folds == fold
            head = fit_linear_head(matrix[~held_out], self.labels[~held_out], names, penalty)
            scores[held_out] = head.predict(matrix[held_out])
        return scores


def choose_penalty(rows: HeadRows, names: Sequence[str]) -> float:
    """Return the strongest penalty whose held-out AUROC is at most ``LARGEST_LOSS`` below the best."""
    reached = {
        penalty: auroc(_to_scored(rows.predict_held_out(names, penalty), rows.labels)) or 0.0 for penalty in PENALTIES
    }
    best = max(reached.values())
    return max(penalty for penalty, area in reached.items() if area >= best - LARGEST_LOSS)


def measure_controls(rows: HeadRows, penalty: float) -> list[HeadControl]:
    """Return the controls of a head: every score on all rows, and by edit."""
    head = rows.head
    shortcuts = (SUPPORT_SHORTCUT,) if head is VerifierHead.SUPPORT else SHORTCUT_FEATURES
    overlap = OVERLAP_FEATURES[head]
    scores = {
        "all features": rows.predict_held_out(select_features(head), penalty),
        "without shortcuts": rows.predict_held_out(select_features(head, shortcuts=False), penalty),
        "shortcuts alone": rows.predict_held_out(shortcuts, penalty),
        f"word overlap ({overlap})": rows.take((overlap,))[:, 0],
    }
    edits = list(dict.fromkeys(row.edit.value for row in rows.rows))
    groups = {"all": np.ones(len(rows.rows), dtype=bool)}
    if len(edits) > 1:
        groups |= {edit: np.array([row.edit.value == edit for row in rows.rows]) for edit in edits}
    controls = []
    for name, values in scores.items():
        for edit, members in groups.items():
            scored = _to_scored(values[members], rows.labels[members])
            holds = int(scored.reliable.sum())
            controls.append(
                HeadControl(
                    head=head,
                    score=name,
                    edit=edit,
                    holds=holds,
                    fails=len(scored.scores) - holds,
                    auroc=auroc(scored),
                    recall=recall_at_retention(scored),
                )
            )
    return controls


def _to_scored(scores: Floats, labels: Flags) -> ScoredResponses:
    return ScoredResponses(scores, ~labels, labels)


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
                "-" if control.auroc is None else f"{control.auroc:.3f}",
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


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass(frozen=True)
class TrainedVerifier:
    """A trained verifier, its folder and its card."""

    verifier: LinearVerifier
    folder: Path
    card: VerifierCard


def refuse_used_folder(folder: Path) -> None:
    """Raise UserError where a folder exists and has content."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder. Name another folder with --out.")


def train_verifier(
    families: Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    seed: int = 0,
    shortcuts: bool = True,
) -> TrainedVerifier:
    """Train a verifier of dependencies on counterfactual families: whether steps, trace and answer follow.

    Every family gives labelled rows for free: its views as they are, and parts of two views crossed. Both labels of a
    row have the same edits. A card states rows, benchmarks and controls on held-out families.

    Args:
        families: File of families as JSON Lines, or several.
        out: Folder to write; it must be new or empty.
        seed: Seed of the edits that are drawn and of the folds.
        shortcuts: Whether features of form alone are used, the number of steps and the conclusion word.

    Returns:
        The verifier with its folder and card; ``eclose.detect(run, detector="verifier", verifier=out)`` scores with it.

    Raises:
        UserError: The families cannot be read, are too few, or the folder is in use.

    Examples:
        >>> trained = eclose_train.train_verifier("families.jsonl", "verifier")
        >>> trained.verifier.heads
        (<VerifierHead.SUPPORT: 'support'>, <VerifierHead.ALIGNMENT: 'alignment'>, <VerifierHead.CLOSURE: 'closure'>)
    """
    files = list_paths(families)
    folder = Path(out)
    refuse_used_folder(folder)
    family_list = [family for path in files for family in read_records(path, Family)]
    if not family_list:
        raise UserError(f"{', '.join(map(str, files))}: holds no family.")
    rows = build_verifier_rows(family_list, seed)
    controls: list[HeadControl] = []
    verifier = train_linear_verifier(rows, seed=seed, shortcuts=shortcuts, controls=controls)
    save_linear_verifier(verifier, folder)
    settings = {"kind": "linear", "seed": seed, "shortcuts": shortcuts}
    card = _build_card(verifier.name, settings, files, family_list, rows, controls)
    _write_card(folder, card)
    return TrainedVerifier(verifier, folder, card)


def _build_card(
    name: str,
    settings: dict[str, Any],
    files: Sequence[Path],
    families: Sequence[Family],
    rows: Sequence[VerifierRow],
    controls: Sequence[HeadControl],
) -> VerifierCard:
    benchmarks = Counter(family.source.benchmark or NO_BENCHMARK for family in families)
    counts = sorted(count_rows(rows).items())
    return VerifierCard(
        name=name,
        kind=settings["kind"],
        settings=settings,
        inputs=hash_files(files),
        benchmarks=dict(benchmarks.most_common()),
        families=len(families),
        rows=tuple(RowCount(head, edit, pairing, label, count) for (head, edit, pairing, label), count in counts),
        controls=tuple(controls),
    )


def train_linear_verifier(
    rows: Sequence[VerifierRow],
    *,
    seed: int = 0,
    shortcuts: bool = True,
    controls: list[HeadControl] | None = None,
) -> LinearVerifier:
    """Train a linear verifier on rows; each head's penalty is chosen on held-out families.

    The controls of every head are appended to the list ``controls``; they are not measured where it is None.

    Raises:
        UserError: An edit occurs under one label only, or there are too few families.
    """
    # Here and not only where rows are built: a caller may have filtered them.
    check_edits_under_both_labels(rows)
    heads = {}
    for head in VerifierHead:
        if not any(row.head is head for row in rows):
            continue
        head_rows = HeadRows(head, rows, seed)
        names = select_features(head, shortcuts=shortcuts)
        penalty = choose_penalty(head_rows, names)
        heads[head] = fit_linear_head(head_rows.take(names), head_rows.labels, names, penalty)
        if controls is not None:
            controls.extend(measure_controls(head_rows, penalty))
    if not heads:
        raise UserError("There are no rows to train a verifier on.")
    return LinearVerifier(heads)


def _write_card(folder: Path, card: VerifierCard) -> None:
    """Write card, page and manifest; the manifest last, since it lists the others."""
    write_json(folder / CARD_FILE, card.to_json(), allow_nan=False)
    with AtomicFile(folder / CARD_PAGE) as file:
        file.write(card.to_markdown().encode())
    outputs = sorted(path for path in folder.iterdir() if path.name != MANIFEST_FILE)
    counts = RecordCounts(card.families, card.families)
    rows = {"rows": {f"{row.head}, {row.edit}, {row.pairing}, {str(row.label).lower()}": row.rows for row in card.rows}}
    manifest = Manifest("verifier train", card.settings, card.inputs, hash_files(outputs), counts, run=rows)
    manifest.write(folder / MANIFEST_FILE)
