"""``eclose verifier`` as a user meets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from eclose import Response
from eclose.cli.main import app
from eclose.files.jsonl import write_records
from tests.verifier.verifier_families import make_family

if TYPE_CHECKING:
    from pathlib import Path

runner = CliRunner()


@pytest.fixture
def families(tmp_path: Path) -> Path:
    write_records(tmp_path / "families.jsonl", [make_family(f"f{number}") for number in range(10)])
    return tmp_path / "families.jsonl"


@pytest.mark.slow
def test_training_prints_controls_and_the_folder(families: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, ["verifier", "train", str(families), "--out", str(tmp_path / "verifier")])

    assert result.exit_code == 0, result.output
    assert "10 families" in result.output
    assert "word overlap (answer words in the last step)" in result.output
    assert f"{tmp_path / 'verifier'}: written" in result.output.replace("\n", "")
    assert (tmp_path / "verifier" / "verifier.json").is_file()


@pytest.mark.slow
def test_a_run_is_scored_with_a_trained_verifier(families: Path, tmp_path: Path) -> None:
    runner.invoke(app, ["verifier", "train", str(families), "--out", str(tmp_path / "verifier")])
    family = make_family()
    write_records(tmp_path / "instances.jsonl", [family.source])
    response = Response("r1", family.source.id, family.gold.trace, family.gold.answer)
    write_records(tmp_path / "responses.jsonl", [response])
    arguments = ["detect", str(tmp_path), "--detector", "verifier", "--verifier", str(tmp_path / "verifier")]

    dry = runner.invoke(app, [*arguments, "--dry-run"])
    assert "no calls and no cost" in dry.output
    assert not (tmp_path / "scores-verifier.jsonl").exists()
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 received = 1 accepted" in result.output
    assert (tmp_path / "scores-verifier.jsonl").is_file()
