"""Families as tables and back: byte for byte, in bounded pieces, in one shape."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice

import pytest

from eclose.errors import RecordError, UserError
from eclose.files.families import FamilySource, write_families_parquet
from eclose.files.jsonl import encode_json_line, read_records, write_records
from eclose.values.family import FamilyFinding, FamilyProvenance, PassageIntervention, TextReplacement
from eclose_world.make.families import make_world_families

parquet = pytest.importorskip("pyarrow.parquet")

SAID = (
    {"warranted": True, "support": [0, 1], "defect": None},
    {"soundness": {"steps": [{"id": 1, "sound": True, "share": 1.0, "small": 1e-7}]}, "z": 1, "a": "é\u2028\n\"'"},
    {},
)


@pytest.fixture(scope="module")
def families():
    """Families of the world, some with all that a constructor adds and some with as little as there can be."""
    return [(_full, _bare, lambda family: family)[number % 3](family) for number, family in enumerate(_made(30))]


def _made(count):
    return islice(make_world_families("short-easy", 7), count)


def _full(family):
    findings = tuple(FamilyFinding("screen_seed", "m", reply, ("a",) * n, again=n == 1) for n, reply in enumerate(SAID))
    edit = replace(
        family.evidence_edits[0],
        intervention=PassageIntervention("A claim.", (TextReplacement("old", "new"),), ("kept",)),
    )
    return replace(
        family,
        source=replace(family.source, aliases=("x", ""), support_ids=()),
        evidence_edits=(edit, *family.evidence_edits[1:]),
        question_edit=replace(family.question_edit, component="what is asked"),
        findings=findings,
        provenance=FamilyProvenance("a", "b", "sha256:ab", {"target": 2, "question": 1}, "c"),
    )


def _bare(family):
    source = replace(family.source, reference_answer=None, benchmark=None, support_ids=None, kind=None, hops=None)
    return replace(family, source=source, gold=replace(family.gold, proof=()))


def read_families(*paths):
    for record in FamilySource("families", paths).scan():
        if record.error is not None:
            raise record.error
        yield record.value


def lines(families):
    return [encode_json_line(family) for family in families]


@pytest.mark.slow
def test_there_and_back_byte_for_byte(tmp_path, families):
    write_records(tmp_path / "families.jsonl", families)
    (path,) = write_families_parquet(tmp_path, "train", read_records(tmp_path / "families.jsonl", type(families[0])))
    assert path.name == "train-00000.parquet"
    write_records(tmp_path / "back.jsonl", read_families(path))
    assert (tmp_path / "back.jsonl").read_bytes() == (tmp_path / "families.jsonl").read_bytes()


@pytest.mark.slow
def test_row_groups_and_files_are_bounded(tmp_path, families):
    many = [replace(family, id=f"{family.id}/{copy}") for copy in range(10) for family in families]
    paths = write_families_parquet(tmp_path, "train", iter(many), group_bytes=1, shard_bytes=1)
    assert [path.name for path in paths] == [f"train-{number:05}.parquet" for number in range(5)]
    (whole,) = write_families_parquet(tmp_path, "validation", iter(many), group_bytes=1)
    assert parquet.ParquetFile(whole).num_row_groups == 5
    assert lines(read_families(*paths)) == lines(read_families(whole)) == lines(many)


def test_families_are_taken_as_they_come(tmp_path, families):
    """A group is written before the families of the next are asked for."""
    written = []

    def counted():
        for number in range(200):
            written.append(sum(path.stat().st_size for path in tmp_path.glob("*.parquet")))
            yield replace(families[0], id=str(number))

    write_families_parquet(tmp_path, "train", counted(), group_bytes=1, shard_bytes=1)
    assert written[0] == 0
    assert 0 < written[130] < written[199]


def test_the_columns_are_the_same_whatever_the_families_hold(tmp_path, families):
    (full,) = write_families_parquet(tmp_path, "full", families)
    (bare,) = write_families_parquet(tmp_path, "bare", families[1:2])
    assert parquet.read_schema(full) == parquet.read_schema(bare)
    assert str(parquet.read_schema(full).field("id").type) == "string"
    assert "said: string" in str(parquet.read_schema(full).field("findings").type)


def test_a_list_that_is_empty_is_not_a_list_that_is_unknown(tmp_path, families):
    (path,) = write_families_parquet(tmp_path, "train", families)
    sources = parquet.read_table(path)["source"].to_pylist()
    assert [source["support_ids"] for source in sources[:2]] == [[], None]
    assert sources[1]["aliases"] == []


def test_no_families_no_file(tmp_path):
    assert write_families_parquet(tmp_path, "train", []) == []
    assert list(tmp_path.iterdir()) == []


def test_what_no_table_can_hold_is_named(tmp_path, families):
    huge = replace(families[0], source=replace(families[0].source, hops=2**70))
    with pytest.raises(UserError, match="does not fit into a table"):
        write_families_parquet(tmp_path, "train", [huge])


def test_a_table_of_something_else_is_refused_with_its_place(tmp_path, families):
    (path,) = write_families_parquet(tmp_path, "train", families[:1])
    table = parquet.read_table(path)
    parquet.write_table(table.drop_columns(["gold"]), tmp_path / "less.parquet")
    with pytest.raises(RecordError, match=r"less\.parquet row 1: .*gold: is missing"):
        list(read_families(tmp_path / "less.parquet"))
    parquet.write_table(table.append_column("more", table["id"]), tmp_path / "more.parquet")
    with pytest.raises(RecordError, match="more: no such field"):
        list(read_families(tmp_path / "more.parquet"))


def test_without_pyarrow_it_says_what_to_install(tmp_path, families, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'eclose\[parquet\]'"):
        write_families_parquet(tmp_path, "train", families)
