"""``eclose families show`` as a user meets it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import UserError
from eclose.files.jsonl import encode_json_line, read_records, write_records
from eclose.values.family import Family
from tests.construction.family_making import full_family

runner = CliRunner()


def run(*arguments):
    result = runner.invoke(app, ["families", "show", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    runner.invoke(app, ["world", "make", "--families", "12", "--out", str(folder)])
    return folder / "families.jsonl"


@pytest.fixture(scope="module")
def known(families):
    return list(read_records(families, Family))


def test_a_family_is_found_by_its_id_and_by_its_source_in_a_file_and_in_a_folder(families, known):
    family = known[3]
    told = run(families, family.id)
    assert told.exit_code == 0
    assert told.output.startswith(f"{family.id}\nsource {family.source.id} ·")
    assert family.gold.question in told.output
    assert "fails a gate" not in told.output
    assert run(families.parent, family.source.id).output == told.output


@pytest.mark.slow
def test_several_are_shown_in_the_order_asked_for_and_each_once(families, known):
    told = run(families, known[5].id, known[2].id, known[5].id).output
    heads = [line for line in told.splitlines() if line in {family.id for family in known}]
    assert heads == [known[5].id, known[2].id]


@pytest.mark.slow
def test_the_id_of_a_family_goes_before_that_of_a_source(tmp_path, known):
    one, other = known[:2]
    path = tmp_path / "families.jsonl"
    write_records(path, [replace(one, source=replace(one.source, id=other.id)), other])
    assert run(path, other.id).output.startswith(f"{other.id}\nsource {other.source.id} ·")
    # One source may have several families.
    write_records(path, [one, replace(one, id="second")])
    told = run(path, one.source.id).output.splitlines()
    assert one.id in told
    assert "second" in told


def test_an_unknown_id_names_the_nearest(families):
    with pytest.raises(
        UserError, match=r"no family and no source has the id 'family-world-2wiki-42-99'. Nearest: family-"
    ):
        run(families, "family-world-2wiki-42-99")
    with pytest.raises(UserError, match=r"'nothing'.*Nearest: .*'neither'.*Nearest: "):
        run(families, "nothing", "neither")


def test_other_passages_only_when_asked_for(families, known):
    family = known[0]
    other = family.gold.evidence[0]
    assert other.text not in run(families, family.id).output
    assert other.text in run(families, family.id, "--all").output


def test_without_an_id_families_are_listed(families, known):
    told = run(families)
    assert told.exit_code == 0
    assert told.output.splitlines()[0] == "12 families"
    assert all(family.id in told.output and family.gold.question in told.output for family in known)
    told = run(families, "--limit", 2).output.splitlines()
    first, second = sorted(family.id for family in known)[:2]
    assert told[0] == "the first 2 of 12 families by id"
    assert [line.split()[0] for line in told[2:4]] == [first, second]


@pytest.mark.slow
def test_a_page_of_one_of_several_and_of_the_first(families, known, tmp_path):
    out = tmp_path / "new" / "page.html"
    told = run(families, known[1].id, "--html", out)
    assert (told.exit_code, told.output.strip()) == (0, f"{out}: 1 family")
    assert f'<h1 class="id"><bdi>{known[1].id}</bdi></h1>' in out.read_text("utf-8")
    assert run(families, known[1].id, known[0].id, "--html", out).output.strip() == f"{out}: 2 families"
    assert out.read_text("utf-8").count('<article class="family"') == 2
    told = run(families, "--html", out, "--limit", 3).output
    assert told.strip() == f"{out}: the first 3 of 12 families by id"
    html = out.read_text("utf-8")
    assert html.count('<article class="family"') == 3
    assert "The first 3 of 12 families by id" in html
    assert 'id="contents"' in html


@pytest.mark.slow
def test_a_page_holds_at_most_fifty_unless_told(tmp_path):
    family = full_family()
    path, out = tmp_path / "families.jsonl", tmp_path / "page.html"
    write_records(path, [replace(family, id=f"f{number:03}") for number in reversed(range(60))])
    assert run(path, "--html", out).output.strip() == f"{out}: the first 50 of 60 families by id"
    html = out.read_text("utf-8")
    assert "<bdi>f049</bdi>" in html
    assert "<bdi>f050</bdi>" not in html


def test_the_page_never_replaces_the_families(families):
    before = families.read_bytes()
    with pytest.raises(UserError, match="is the file of families itself"):
        run(families, "--html", families)
    with pytest.raises(UserError, match="is the file of families itself"):
        run(families.parent, "--html", families.parent / "." / families.name)
    assert families.read_bytes() == before


def test_what_cannot_be_read_is_counted_and_told(tmp_path, known):
    path = tmp_path / "families.jsonl"
    path.write_bytes(b'{"id": "x"}\n' + encode_json_line(known[0]) + b"\nnot json\n")
    told = run(path, known[0].id)
    assert told.exit_code == 3
    assert known[0].gold.question in told.output
    assert "2 records could not be read, such as" in told.output
    assert "line 1" in told.output


def test_a_family_that_fails_a_gate_is_shown_nevertheless(tmp_path, known):
    path = tmp_path / "families.jsonl"
    write_records(path, [replace(known[0], gold=replace(known[0].gold, answer="Atlantis"))])
    told = run(path, known[0].id)
    assert told.exit_code == 0
    assert "fails a gate: gold: gold_answer: 'Atlantis' does not match" in told.output


@pytest.mark.parametrize(("make", "message"), [
    (lambda path: path.mkdir(), "no families.jsonl and no Parquet"),
    (str, "there is no such file"),
    (lambda path: path.write_text(""), "there is no family in this file"),
    (lambda path: path.write_text('{"question": "x", "evidence": []}\n'), "looks like an instance, not a family"),
])  # fmt: skip
def test_what_is_no_file_of_families_is_refused(tmp_path, make, message):
    path = tmp_path / "given"
    make(path)
    with pytest.raises(UserError, match=message):
        run(path, "x")


def test_the_help_names_the_marks():
    shown = " ".join(run("--help").output.split())
    assert "[-gone-] and {+new+}" in shown
    assert "[ID]..." in shown
