"""``eclose families export --format datasets`` as a user meets it."""

from __future__ import annotations

import json
from shutil import copytree

import pytest
import yaml
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.families import FamilySource
from eclose.files.jsonl import encode_json_line
from eclose_train.families import publish as dataset
from eclose_train.families.split import split_families

pytest.importorskip("pyarrow")

runner = CliRunner()


def run(*arguments):
    result = runner.invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """As a run leaves it: all families, and the two parts."""
    run_folder = tmp_path_factory.mktemp("made")
    run("world", "make", "--families", 12, "--profile", "short-easy", "--out", run_folder)
    split_families(run_folder)
    return run_folder


@pytest.fixture
def folder(made, tmp_path):
    return copytree(made, tmp_path / "run")


def export(given, *more):
    out = (given if given.is_dir() else given.parent).with_name("dataset")
    return run("families", "export", given, "--format", "datasets", "--out", out, *more), out


def back(*paths):
    return b"".join(encode_json_line(record.value) + b"\n" for record in FamilySource("families", paths).scan())


def names(out):
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


def test_a_run_becomes_two_splits_and_a_card(folder):
    result, out = export(folder)
    assert result.exit_code == 0
    assert "12 received = 12 accepted + 0 rejected + 0 quarantined" in result.output
    assert names(out) == ["README.md", "data/train-00000.parquet", "data/validation-00000.parquet", "manifest.json"]
    assert back(out / "data/train-00000.parquet") == (folder / "train.jsonl").read_bytes()
    assert back(out / "data/validation-00000.parquet") == (folder / "development.jsonl").read_bytes()
    (config,) = yaml.safe_load((out / "README.md").read_text().split("---\n")[1])["configs"]
    assert config["data_files"] == [
        {"split": "train", "path": "data/train-*.parquet"},
        {"split": "validation", "path": "data/validation-*.parquet"},
    ]
    assert "| world-short-easy | 11 | 1 | 12 |" in (out / "README.md").read_text()


def test_a_file_becomes_one_split(folder):
    _, out = export(folder / "development.jsonl")
    assert back(out / "data/train-00000.parquet") == (folder / "development.jsonl").read_bytes()
    assert "| world-short-easy | 1 | 1 |" in (out / "README.md").read_text()


@pytest.mark.slow
def test_the_datasets_library_loads_it(folder, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    _, out = export(folder)
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 11, "validation": 1}
    first = json.loads((folder / "train.jsonl").read_text().splitlines()[0])
    row = loaded["train"][0]
    assert row["gold"]["trace"] == first["gold"]["trace"]
    assert row["evidence_edits"][0]["intervention"] is None
    loaded["train"].to_parquet(tmp_path / "again.parquet")
    assert back(tmp_path / "again.parquet") == (folder / "train.jsonl").read_bytes()


@pytest.mark.slow
def test_again_does_nothing_and_a_change_is_refused(folder):
    _, out = export(folder)
    before = {path: (out / path).stat().st_mtime_ns for path in names(out)}
    assert "(done before, nothing to do)" in export(folder)[0].output
    assert before == {path: (out / path).stat().st_mtime_ns for path in names(out)}
    (out / "README.md").write_text("mine")
    with pytest.raises(UserError, match=r"README.md was changed after it was written.*--force"):
        export(folder)
    with pytest.raises(UserError, match="made from other families"):
        export(folder / "train.jsonl")
    assert export(folder, "--force")[0].exit_code == 0
    assert (out / "README.md").read_text() != "mine"


def test_force_leaves_no_table_of_before(folder):
    _, out = export(folder)
    (out / "data/train-00001.parquet").write_bytes(b"left of a longer one")
    (out / "data/mine.parquet").write_bytes(b"somebody's")
    export(folder / "train.jsonl", "--force")
    assert names(out) == ["README.md", "data/mine.parquet", "data/train-00000.parquet", "manifest.json"]


def test_a_folder_of_somebody_is_left_alone(folder, tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/README.md").write_text("mine")
    with pytest.raises(UserError, match="may belong to other work"):
        export(folder)
    assert names(tmp_path / "dataset") == ["README.md"]


def test_what_a_killed_run_left_is_in_nobodys_way(folder, tmp_path):
    (tmp_path / "dataset/.making.x").mkdir(parents=True)
    (tmp_path / "dataset/.making.x/train-00000.parquet").write_bytes(b"half")
    _, out = export(folder)
    assert not list(out.glob(".making*"))


def test_an_error_leaves_no_tables(folder, monkeypatch):
    def full(making, split, families):
        (making / "train-00000.parquet").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dataset, "write_families_parquet", full)
    with pytest.raises(UserError, match=r"No space left on device.*free some space"):
        export(folder)
    assert names(folder.with_name("dataset")) == []


def test_the_run_itself_is_never_written_to(folder):
    for source in (folder, folder / "train.jsonl"):
        with pytest.raises(SettingError, match="holds the families"):
            run("families", "export", source, "--format", "datasets", "--out", folder, "--force")


@pytest.mark.slow
def test_what_is_no_family_is_counted_and_explained(folder):
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"id": "x"}\n' + (folder / "train.jsonl").read_text().splitlines()[0] + "\n")
    result, out = export(folder)
    assert result.exit_code == 3
    assert "14 received = 12 accepted + 1 rejected (duplicate 1) + 1 quarantined (wrong record 1)" in result.output
    assert "train.jsonl, line 12" in (out / "quarantined.jsonl").read_text()
    assert export(folder)[0].exit_code == 3
    split_families(folder)
    assert export(folder, "--force")[0].exit_code == 0
    assert "quarantined.jsonl" not in names(out)


def test_an_empty_split_is_not_told_of(folder):
    (folder / "development.jsonl").write_text("")
    _, out = export(folder)
    assert names(out) == ["README.md", "data/train-00000.parquet", "manifest.json"]
    assert "validation-" not in (out / "README.md").read_text()


def test_a_folder_without_its_parts(tmp_path):
    run("world", "make", "--families", 2, "--profile", "short-easy", "--out", tmp_path / "run")
    with pytest.raises(UserError, match=r"has no train.jsonl and no development.jsonl"):
        export(tmp_path / "run")


@pytest.mark.parametrize("option", [("--edits", "all"), ("--demonstrations", 2), ("--order", "question_first")])
def test_options_of_prompts_are_refused(folder, option):
    with pytest.raises(SettingError, match=f"{option[0]}: is for rows with a prompt"):
        export(folder, *option)
