"""The published JSON Schemas accept the files that commands write, and name commands that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eclose.files.jsonl import write_records
from eclose_world.demo import write_demo_files
from eclose_world.make.families import make_world_families

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SCHEMAS = REFERENCE / "schemas"
DEMO_FILES = ("instances.jsonl", "responses.jsonl", "judgments.jsonl")

jsonschema_rs = pytest.importorskip("jsonschema_rs")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schemas") / "demo"
    write_demo_files(folder, questions=20)
    return folder


def read(path):
    text = path.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]


def validator(name):
    return jsonschema_rs.validator_for(json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8")))


@pytest.mark.parametrize("name", DEMO_FILES)
def test_files_of_a_run_are_valid(demo, name):
    schema = validator(name.partition(".")[0])
    for record in read(demo / name):
        schema.validate(record)


def test_manifests_are_valid(demo):
    manifests = sorted(demo.glob("*.manifest.json"))
    assert manifests
    for path in manifests:
        validator("manifest").validate(read(path)[0])


def test_families_are_valid(tmp_path):
    families = make_world_families("short-easy", 3)
    write_records(tmp_path / "families.jsonl", [next(families) for _ in range(5)])
    for record in read(tmp_path / "families.jsonl"):
        validator("families").validate(record)


@pytest.mark.parametrize("name", ["miniature", "paper"])
def test_plans_are_valid(name):
    yaml = pytest.importorskip("yaml")
    plan = REFERENCE.parents[1] / "packages" / "eclose-train" / "recipes" / "experiment" / f"{name}.yaml"
    validator("plan").validate(yaml.safe_load(plan.read_text("utf-8")))


@pytest.mark.parametrize("name", ["responses", "judgments", "families"])
def test_a_record_without_its_id_is_refused(demo, tmp_path, name):
    if name == "families":
        test_families_are_valid(tmp_path)
        record = read(tmp_path / "families.jsonl")[0]
    else:
        record = read(demo / f"{name}.jsonl")[0]
    key = next(key for key in record if key == "id" or key.endswith("_id"))
    del record[key]
    assert not validator(name).is_valid(record)


def test_every_schema_documents_its_fields():
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_text("utf-8"))
        assert schema.get("description"), path.name


def test_the_commands_that_write_the_files_exist():
    rows = [
        line.split("|") for line in (REFERENCE / "formats.md").read_text("utf-8").splitlines() if "schemas/" in line
    ]
    commands = [row[3].strip().strip("`") for row in rows if "eclose" in row[3]]
    assert commands
    for command in commands:
        page = REFERENCE / "cli" / f"{command.split()[1]}.md"
        assert f"Usage: {command}" in page.read_text("utf-8"), command
