"""Tests for training verifiers and their folders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from eclose.errors import UserError
from eclose.files.jsonl import write_records
from eclose.files.manifest import hash_file, read_manifest
from eclose_train.verifier.fit import FOLDS, TrainedVerifier, train_linear_verifier, train_verifier
from eclose_train.verifier.linear import VerifierHead, VerifierInput
from eclose_train.verifier.rows import RowEdit, build_verifier_rows
from eclose_train.verifier.score import load_verifier
from tests.verifier.verifier_families import make_family

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("families") / "families.jsonl"
    write_records(path, [make_family(f"f{number}") for number in range(2 * FOLDS)])
    return path


@pytest.fixture(scope="module")
def trained(families: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainedVerifier:
    return train_verifier(families, tmp_path_factory.mktemp("trained") / "verifier")


def test_a_folder_holds_verifier_card_and_manifest(families: Path, trained: TrainedVerifier) -> None:
    folder = trained.folder
    manifest = read_manifest(folder / "manifest.json")

    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "card.json",
        "manifest.json",
        "verifier.json",
    ]
    assert manifest.counts.accepted == 10
    assert manifest.inputs == {"families.jsonl": hash_file(families)}
    assert manifest.outputs["verifier.json"] == hash_file(folder / "verifier.json")
    assert sum(manifest.run["rows"].values()) == len(build_verifier_rows([make_family(f"f{n}") for n in range(10)]))


def test_a_verifier_reads_back_with_its_name(trained: TrainedVerifier) -> None:
    assert load_verifier(trained.folder).name == trained.verifier.name
    assert trained.verifier.heads == tuple(VerifierHead)


def test_a_verifier_learns_to_tell_crossed_answers(trained: TrainedVerifier) -> None:
    steps = ("Ada Lovelace directed Solaris.", "Ada Lovelace was born in Lima.", "Thus, the answer is Lima.")
    right, wrong = trained.verifier.score(
        [VerifierInput("Where was the director of Solaris born?", steps, answer) for answer in ("Lima", "Cairo")]
    )

    assert right[VerifierHead.CLOSURE] > 0.5 > wrong[VerifierHead.CLOSURE]


def test_the_card_states_rows_benchmarks_and_controls(trained: TrainedVerifier) -> None:
    card = json.loads((trained.folder / "card.json").read_text())
    page = (trained.folder / "README.md").read_text()

    assert card["benchmarks"] == {"no benchmark named": 10}
    assert "| closure | unedited | crossed answer | false | 30 |" in page
    scores = {control["score"] for control in card["controls"] if control["head"] == "closure"}
    overlap = "word overlap (answer words in the last step)"
    assert scores == {"all features", "without shortcuts", "shortcuts alone", overlap}
    assert {(control["holds"] > 0, control["fails"] > 0) for control in card["controls"]} == {(True, True)}


@pytest.mark.slow
def test_shortcut_features_are_left_out_on_request(families: Path, tmp_path: Path) -> None:
    folder = train_verifier(families, tmp_path / "verifier", shortcuts=False).folder
    features = json.loads((folder / "verifier.json").read_text())["heads"]["closure"]["features"]

    assert "number of steps" not in features
    assert "answer words in the last step" in features


def test_training_refuses_filtered_rows_with_an_edit_under_one_label() -> None:
    rows = build_verifier_rows([make_family(f"f{number}") for number in range(FOLDS)])
    filtered = [row for row in rows if row.edit is not RowEdit.TRUNCATED or row.label]

    with pytest.raises(UserError, match="'truncated' are 10 true and 0 false"):
        train_linear_verifier(filtered)


def test_too_few_families_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "families.jsonl", [make_family()])

    with pytest.raises(UserError, match="1 families are too few"):
        train_verifier(tmp_path / "families.jsonl", tmp_path / "verifier")
    assert not (tmp_path / "verifier").exists()


def test_a_folder_in_use_is_refused(families: Path, tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "notes.txt").write_text("mine")

    with pytest.raises(UserError, match="is not an empty folder"):
        train_verifier(families, tmp_path / "verifier")


def test_a_folder_without_a_verifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no verifier.json"):
        load_verifier(tmp_path)
    (tmp_path / "verifier.json").write_text("{}")
    with pytest.raises(UserError, match="is no verifier"):
        load_verifier(tmp_path)
    (tmp_path / "verifier.json").write_text('{"kind": "forest"}')
    with pytest.raises(UserError, match="unknown kind 'forest'"):
        load_verifier(tmp_path)
