"""Families in every form that users have them: the same values, the same lines, the same hash."""

import json
from dataclasses import replace
from inspect import signature
from itertools import islice
from types import SimpleNamespace

import pytest

from eclose.errors import RecordError, SettingError, UserError
from eclose.files.families import scan_families, write_families_parquet
from eclose.files.jsonl import encode_json_line, write_records
from eclose.files.manifest import hash_file, read_manifest
from eclose_train.families.files import (
    FamilySplit,
    HubAddress,
    find_family_files,
    open_families,
    push_dataset,
    write_family_lines,
)
from eclose_world.make.families import make_world_families

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def families():
    return list(islice(make_world_families("short-easy", 3), 5))


@pytest.fixture
def dataset(tmp_path, families):
    """The folder of an export: three families to train on, two held out."""
    folder = tmp_path / "dataset" / "data"
    folder.mkdir(parents=True)
    write_families_parquet(folder, "train", families[:3])
    write_families_parquet(folder, "validation", families[3:])
    return folder.parent


def values(source):
    return [record.value for record in source.scan()]


def test_every_form_gives_the_same_lines(tmp_path, families, dataset):
    write_records(tmp_path / "families.jsonl", families)
    (table,) = write_families_parquet(tmp_path, "all", families)
    rows = [json.loads(encode_json_line(family)) for family in families]
    forms = [str(tmp_path / "families.jsonl"), table, dataset, families, iter(families), rows]
    hashes = set()
    for number, form in enumerate(forms):
        source = open_families(form)
        assert values(source) == families
        assert values(source) == families, "a source is read as often as needed"
        hashes.add(hash_file(write_family_lines(source, tmp_path / f"{number}.jsonl")))
    assert hashes == {hash_file(tmp_path / "families.jsonl")}


@pytest.mark.slow
def test_rows_of_the_datasets_library(tmp_path, families, dataset, monkeypatch):
    datasets = pytest.importorskip("datasets")
    tables = datasets.load_dataset(str(dataset), cache_dir=str(tmp_path / "cache"))
    assert values(open_families(tables["train"])) == families[:3]
    assert values(open_families(tables, FamilySplit.HELD_OUT)) == families[3:]
    assert open_families(tables["train"]).name == "datasets.arrow_dataset.Dataset"
    with pytest.raises(UserError, match="no split validation, only train"):
        open_families({"train": []}, FamilySplit.HELD_OUT)
    # A table made from JSON Lines has nulls where lines omit defaults.
    bare = [replace(family, gold=replace(family.gold, proof=())) for family in families[:1]] + families[1:2]
    table = datasets.Dataset.from_list([json.loads(encode_json_line(family)) for family in bare])
    assert values(open_families(table)) == bare


def test_a_folder_is_read_by_split(tmp_path, families, dataset):
    assert values(open_families(dataset, FamilySplit.TRAIN)) == families[:3]
    assert values(open_families(dataset, FamilySplit.HELD_OUT)) == families[3:]
    run = tmp_path / "run"
    for name, part in (("families", families), ("train", families[:4]), ("development", families[4:])):
        write_records(run / f"{name}.jsonl", part)
    assert [find_family_files(run, split)[0].name for split in (None, *FamilySplit)] == [
        "families.jsonl",
        "train.jsonl",
        "development.jsonl",
    ]
    (tmp_path / "shards").mkdir()
    write_families_parquet(tmp_path / "shards", "part", families)
    assert values(open_families(tmp_path / "shards", FamilySplit.HELD_OUT)) == families


def test_a_missing_split_is_no_other_split(dataset, tmp_path):
    for table in (dataset / "data").glob("validation-*"):
        table.unlink()
    with pytest.raises(UserError, match=r"no families of the split validation \(only train-00000\.parquet\)"):
        open_families(dataset, FamilySplit.HELD_OUT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no families\.jsonl and no Parquet"):
        open_families(tmp_path / "empty")


def test_tables_are_converted_once_and_never_over_other_families(tmp_path, families, dataset):
    path = tmp_path / "run" / "families.jsonl"
    write_family_lines(open_families(dataset, FamilySplit.TRAIN), path)
    manifest = read_manifest(tmp_path / "run" / "families.jsonl.manifest.json")
    assert manifest.settings == {"source": str(dataset)}
    assert list(manifest.inputs) == ["train-00000.parquet"]
    assert (manifest.counts.received, manifest.outputs) == (3, {"families.jsonl": hash_file(path)})
    before = path.stat().st_ino
    write_family_lines(open_families(dataset, FamilySplit.TRAIN), path)
    assert path.stat().st_ino == before, "not written again"
    write_family_lines(open_families(families[:3]), path)
    with pytest.raises(UserError, match="holds other families than list"):
        write_family_lines(open_families(families), path)
    assert len(path.read_bytes().splitlines()) == 3


def test_a_row_that_is_no_family_stops_the_conversion(tmp_path, families):
    with pytest.raises(RecordError, match=r"list record 2: .*gold: is missing"):
        write_family_lines(open_families([families[0], {"id": "x", "source": None}]), tmp_path / "families.jsonl")
    with pytest.raises(RecordError, match="record 1: "):
        write_family_lines(open_families([{"id": 3, "gold": "text", "source": []}]), tmp_path / "families.jsonl")
    assert not list(tmp_path.iterdir())


def test_rows_of_several_tables_are_told_apart(families, dataset):
    write_families_parquet(dataset / "data", "again", families[:1])
    records = list(scan_families(open_families(dataset)))
    assert [record.where for record in records[:2]] == ["again-00000.parquet row 1", "train-00000.parquet row 1"]
    assert [record.rejected for record in records[:3]] == [None, "duplicate", None]


# ---- hub ----


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf://datasets/a/b", HubAddress("a/b")),
        ("hf:/datasets/a/b", HubAddress("a/b")),
        ("hf://datasets/a/b@refs%2Fpr%2F1", HubAddress("a/b", "refs/pr/1")),
        ("hf://datasets/a/b@main/data/x.parquet", HubAddress("a/b", "main", "data/x.parquet")),
        ("datasets/a/b", None),
        ("hf://models/a/b", None),
    ],
)
def test_addresses(text, address):
    assert HubAddress.parse(text) == address


@pytest.fixture
def hub(monkeypatch, dataset):
    """The client of the hub, replaced at its outermost functions, which must be called as they are declared."""
    client = pytest.importorskip("huggingface_hub")
    calls = []
    snapshot = dataset.rename(dataset.with_name("0" * 40))

    def record(name, function, result):
        declared = signature(function)

        def call(*arguments, **settings):
            declared.bind(*arguments, **settings)
            calls.append((name, settings))
            return result

        return call

    upload = record("upload", client.HfApi.upload_folder, SimpleNamespace(oid="1" * 40))
    monkeypatch.setattr(client.HfApi, "upload_folder", upload)
    monkeypatch.setattr(client.HfApi, "create_repo", record("create", client.HfApi.create_repo, None))
    monkeypatch.setattr(client, "snapshot_download", record("fetch", client.snapshot_download, str(snapshot)))
    return calls


def test_a_hub_is_contacted_only_when_asked(hub, families, tmp_path):
    with pytest.raises(SettingError, match=r"hf://datasets/a/b: is on a hub\. Pass --hub"):
        open_families("hf://datasets/a/b")
    assert not hub
    source = open_families("hf://datasets/a/b@main", FamilySplit.TRAIN, hub=True)
    assert [name for name, _ in hub] == ["fetch"]
    assert (hub[0][1]["repo_type"], hub[0][1]["revision"]) == ("dataset", "main")
    assert values(source) == families[:3]
    write_family_lines(source, tmp_path / "families.jsonl")
    pinned = read_manifest(tmp_path / "families.jsonl.manifest.json").settings["source"]
    assert pinned == f"hf://datasets/a/b@{'0' * 40}"
    file = open_families("hf://datasets/a/b/data/validation-00000.parquet", hub=True)
    assert values(file) == families[3:]


def test_a_push_creates_a_private_dataset_and_replaces_old_tables(hub, tmp_path):
    assert push_dataset(tmp_path, "a/b") == f"hf://datasets/a/b@{'1' * 40}"
    (_, created), (_, uploaded) = hub
    assert created == {"repo_type": "dataset", "private": True, "exist_ok": True}
    assert uploaded["delete_patterns"] == "data/*.parquet"
    assert uploaded["folder_path"] == tmp_path


def test_what_the_hub_refuses_is_an_error_of_one_line(monkeypatch):
    client = pytest.importorskip("huggingface_hub")

    def refuse(**settings):
        raise client.errors.LocalEntryNotFoundError("cannot be reached\nsecond line")

    monkeypatch.setattr(client, "snapshot_download", refuse)
    with pytest.raises(UserError, match=r"^hf://datasets/a/b: cannot be fetched \(cannot be reached\)\.$"):
        open_families("hf://datasets/a/b", hub=True)
