"""Train a verifier on counterfactual families, and write it with a card and a manifest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eclose.core.family import Family
from eclose.detection.verifier.card import CARD_FILE, CARD_PAGE, RowCount, VerifierCard
from eclose.detection.verifier.controls import HeadRows, choose_penalty, measure_controls
from eclose.detection.verifier.files import refuse_used_folder, save_linear_verifier, write_json
from eclose.detection.verifier.heads import VerifierHead
from eclose.detection.verifier.linear import LinearVerifier, fit_linear_head, select_features
from eclose.detection.verifier.rows import build_verifier_rows, check_edits_under_both_labels, count_rows
from eclose.errors import UserError
from eclose.store.records.atomic import AtomicFile
from eclose.store.records.jsonl import read_records
from eclose.store.records.outcome_counts import RecordCounts
from eclose.store.runs.folder import list_paths
from eclose.store.runs.manifest import Manifest, hash_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.detection.verifier.controls import HeadControl
    from eclose.detection.verifier.rows import VerifierRow

MANIFEST_FILE = "manifest.json"
NO_BENCHMARK = "no benchmark named"


@dataclass(frozen=True)
class TrainedVerifier:
    """A trained verifier, its folder and its card."""

    verifier: LinearVerifier
    folder: Path
    card: VerifierCard


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
        >>> trained = eclose.train_verifier("families.jsonl", "verifier")
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
        name,
        settings["kind"],
        settings,
        hash_files(files),
        dict(benchmarks.most_common()),
        len(families),
        tuple(RowCount(head, edit, pairing, label, count) for (head, edit, pairing, label), count in counts),
        tuple(controls),
    )


def train_linear_verifier(
    rows: Sequence[VerifierRow],
    *,
    seed: int = 0,
    shortcuts: bool = True,
    controls: list[HeadControl] | None = None,
) -> LinearVerifier:
    """Train a linear verifier on rows; each head's penalty is chosen on held-out families.

    Args:
        rows: Labelled rows of any heads.
        seed: Seed of the folds.
        shortcuts: Whether features of form alone are used.
        controls: List to append the controls of every head to; they are not measured where it is None.

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
    write_json(folder / CARD_FILE, card.to_json())
    with AtomicFile(folder / CARD_PAGE) as file:
        file.write(card.to_markdown().encode())
    outputs = sorted(path for path in folder.iterdir() if path.name != MANIFEST_FILE)
    counts = RecordCounts(card.families, card.families)
    rows = {"rows": {f"{row.head}, {row.edit}, {row.pairing}, {str(row.label).lower()}": row.rows for row in card.rows}}
    manifest = Manifest("verifier train", card.settings, card.inputs, hash_files(outputs), counts, run=rows)
    manifest.write(folder / MANIFEST_FILE)
