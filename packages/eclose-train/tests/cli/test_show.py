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
    result = run(families, family.id)
    assert result.exit_code == 0
    assert result.output.startswith(f"{family.id}\nsource {family.source.id} ·")
    assert family.gold.question in result.output
    assert "fails a gate" not in result.output
    assert run(families.parent, family.source.id).output == result.output


@pytest.mark.slow
def test_several_are_shown_in_the_order_asked_for_and_each_once(families, known):
    output = run(families, known[5].id, known[2].id, known[5].id).output
    heads = [line for line in output.splitlines() if line in {family.id for family in known}]
    assert heads == [known[5].id, known[2].id]


@pytest.mark.slow
def test_the_id_of_a_family_goes_before_that_of_a_source(tmp_path, known):
    family, other = known[:2]
    path = tmp_path / "families.jsonl"
    write_records(path, [replace(family, source=replace(family.source, id=other.id)), other])
    assert run(path, other.id).output.startswith(f"{other.id}\nsource {other.source.id} ·")
    # One source may have several families.
    write_records(path, [family, replace(family, id="second")])
    output = run(path, family.source.id).output.splitlines()
    assert family.id in output
    assert "second" in output


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
    result = run(families)
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == "12 families"
    assert all(family.id in result.output and family.gold.question in result.output for family in known)
    result = run(families, "--limit", 2).output.splitlines()
    first, second = sorted(family.id for family in known)[:2]
    assert result[0] == "the first 2 of 12 families by id"
    assert [line.split()[0] for line in result[2:4]] == [first, second]


@pytest.mark.slow
def test_a_page_of_one_of_several_and_of_the_first(families, known, tmp_path):
    out = tmp_path / "new" / "page.html"
    result = run(families, known[1].id, "--html", out)
    assert (result.exit_code, result.output.strip()) == (0, f"{out}: 1 family")
    assert f'<h1 class="id"><bdi>{known[1].id}</bdi></h1>' in out.read_text("utf-8")
    assert run(families, known[1].id, known[0].id, "--html", out).output.strip() == f"{out}: 2 families"
    assert out.read_text("utf-8").count('<article class="family"') == 2
    result = run(families, "--html", out, "--limit", 3).output
    assert result.strip() == f"{out}: the first 3 of 12 families by id"
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
    result = run(path, known[0].id)
    assert result.exit_code == 3
    assert known[0].gold.question in result.output
    assert "2 records could not be read, such as" in result.output
    assert "line 1" in result.output


def test_a_family_that_fails_a_gate_is_shown_nevertheless(tmp_path, known):
    path = tmp_path / "families.jsonl"
    write_records(path, [replace(known[0], gold=replace(known[0].gold, answer="Atlantis"))])
    result = run(path, known[0].id)
    assert result.exit_code == 0
    assert "fails a gate: gold: gold_answer: 'Atlantis' does not match" in result.output


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
    help_text = " ".join(run("--help").output.split())
    assert "[-gone-] and {+new+}" in help_text
    assert "[ID]..." in help_text
