"""What a run's folder tells of its families, counted and read, never typed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest

from eclose.construction.audit.sample import draw_audit_sample, read_families_by_split
from eclose.construction.publishing.dataset_facts import (
    AuditSummary,
    find_dataset_licence,
    find_origin_manifest,
    read_run_facts,
)
from eclose.construction.settings import ConstructSettings, hash_role_guidelines
from eclose.construction.split import split_families
from eclose.errors import RecordError
from eclose.store.records.jsonl import write_records
from eclose.store.records.outcome_counts import RecordCounts
from eclose.store.runs.manifest import Manifest, hash_files
from eclose.world.make.families import make_world_families

FUNNEL = {"world-short-easy": {"Sources": 15, "Packed": 10}, "unknown": {"Sources": 10, "Packed": 10}}


@pytest.fixture(scope="module")
def families():
    generated = list(islice(make_world_families("short-easy", 7), 20))
    return generated[:10] + [
        replace(family, source=replace(family.source, benchmark=None)) for family in generated[10:]
    ]


def manifest(folder, settings=None, **more):
    models = {"constructor": {"model": "a/x", "weights": "w"}, "verifier": {"model": "b/y"}}
    return Manifest(
        "construct",
        {**models, **(settings or ConstructSettings(attempts=2)).identity, "format": "ours"},
        {"instances.jsonl": "sha256:cd"},
        hash_files([folder / "families.jsonl"]),
        RecordCounts(25, 20, {"screen: unique": 5}),
        {"read": RecordCounts(25, 25), "screen": RecordCounts(25, 20, {"unique": 4}, {"no reply": 1})},
        {"funnel": FUNNEL, **more},
        version="9.9.9",
    )


@pytest.fixture
def run(tmp_path, families):
    write_records(tmp_path / "families.jsonl", families)
    split_families(tmp_path)
    manifest(tmp_path).write(tmp_path / "families.jsonl.manifest.json")
    return tmp_path


def test_what_a_run_tells(run):
    facts = read_run_facts(run)
    assert facts.counts == {
        "unknown": {"train": 9, "validation": 1},
        "world-short-easy": {"train": 9, "validation": 1},
    }
    assert facts.files == {"train": "train.jsonl", "validation": "development.jsonl"}
    assert (facts.maker, facts.funnel) == ("models", FUNNEL)
    assert facts.rejected == {"screen": {"unique": 4, "no reply": 1}}
    assert (facts.constructor, facts.verifier, facts.reverifier, facts.attempts) == ("a/x", "b/y", None, 2)
    assert (facts.guidelines, facts.inputs) == (hash_role_guidelines(), {"instances.jsonl": "sha256:cd"})
    assert (facts.token_limit, facts.tokenizer, facts.version, facts.audit) == (8_192, None, "9.9.9", None)
    assert set(facts.settings) == {
        "attempts",
        "edits",
        "format",
        "max_tokens",
        "replies",
        "reverify",
        "reverify_temperature",
        "seed",
        "temperature",
    }
    assert facts.licences == {name: find_dataset_licence(name) for name in facts.counts}


def test_reasons_by_part_where_the_run_noted_them(run):
    noted = {"target": {"soundness": 5}, "question": {}}
    manifest(run, rejected=noted).write(run / "families.jsonl.manifest.json")
    assert read_run_facts(run).rejected == {"target": {"soundness": 5}}


def test_where_a_tokenizer_lies_is_not_told(run):
    for name, expected in (("/home/somebody/models/tiny", "tiny"), ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B")):
        manifest(run, ConstructSettings(tokenizer=name)).write(run / "families.jsonl.manifest.json")
        assert read_run_facts(run).tokenizer == expected


def test_without_a_manifest_only_the_families_are_known(run):
    (run / "families.jsonl.manifest.json").unlink()
    facts = read_run_facts(run)
    assert sum(facts.counts["unknown"].values()) == 10
    assert (facts.maker, facts.constructor, facts.version, facts.attempts) == (None, None, None, None)


def test_a_split_without_families_is_no_file_to_load(run):
    (run / "development.jsonl").write_text("")
    assert read_run_facts(run).files == {"train": "train.jsonl"}
    assert read_run_facts(run).counts["unknown"] == {"train": 9, "validation": 0}


def test_a_line_that_cannot_be_read_is_not_passed_over(run):
    with (run / "train.jsonl").open("a") as file:
        file.write("{\n")
    with pytest.raises(RecordError, match="line 19"):
        read_run_facts(run)


def test_a_part_is_made_by_whoever_made_the_whole(run):
    assert find_origin_manifest(run / "train.jsonl") == find_origin_manifest(run / "families.jsonl")
    assert find_origin_manifest(run / "elsewhere.jsonl") is None


def test_a_part_of_families_that_were_made_anew_is_not_known(run, families):
    write_records(run / "families.jsonl", families[:5])
    manifest(run).write(run / "families.jsonl.manifest.json")
    assert find_origin_manifest(run / "families.jsonl") is not None
    assert find_origin_manifest(run / "train.jsonl") is None


def test_families_of_the_world(tmp_path, families):
    write_records(tmp_path / "families.jsonl", families)
    counts = RecordCounts(21, 20, {"no question edit": 1})
    Manifest("world families", {"seed": 7}, {}, {}, counts).write(tmp_path / "families.jsonl.manifest.json")
    facts = read_run_facts(tmp_path)
    assert (facts.maker, facts.settings) == ("world", {"seed": 7})
    assert facts.rejected == {"world families": {"no question edit": 1}}


@pytest.mark.parametrize("name", ["audit-report.json", "audit/audit-report.json"])
def test_an_audit_of_these_families(run, name):
    (run / name).parent.mkdir(exist_ok=True)
    key = draw_audit_sample(read_families_by_split(run), n=4, seed=1, annotators=2)
    report = {"corpus": key.corpus, "audited": {"unknown": 2, "world-short-easy": 3}, "open": ["f-1"]}
    (run / name).write_text(json.dumps(report))
    assert read_run_facts(run).audit == AuditSummary(name, 5, 1)
    lines = (run / "train.jsonl").read_text().splitlines(keepends=True)
    (run / "train.jsonl").write_text("".join(reversed(lines)))
    assert read_run_facts(run).audit == AuditSummary(name, 5, 1)
    (run / "train.jsonl").write_text("".join(lines[1:]))
    assert read_run_facts(run).audit is None
