"""``eclose demo`` as a new user meets it, and what other commands make of what it leaves."""

from __future__ import annotations

import gzip
import re
import shutil
import socket
import sys

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.demo import RECORD_TYPES, DemoRun, find_shipped_file
from eclose.errors import UserError
from eclose.files.jsonl import read_records
from eclose.judging.validation_file import read_validation
from eclose.metrics.judge_against_people import JudgedLabel
from eclose.values.judgment import Judgment
from eclose.values.verdict import SettledVerdict

pytestmark = pytest.mark.slow
EXTRAS = ("aiohttp", "jsonschema_rs", "openai", "sqlalchemy", "yaml", "torch", "pyarrow", "matplotlib")


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder, and what was said while it was made, by a machine without a network and without any extra."""
    folder = tmp_path_factory.mktemp("new") / "demo"

    def no_network(*_):
        raise AssertionError("the demo needs no network")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket.socket, "connect", no_network)
        for name in EXTRAS:
            patched.setitem(sys.modules, name, None)
        return folder, command("demo", "--out", folder)


def test_it_leaves_a_run_like_any_other(made):
    folder, _ = made
    assert {path.name for path in folder.iterdir()} >= {
        "instances.jsonl", "responses.jsonl", "judgments.jsonl", "judgments.jsonl.manifest.json", "people.jsonl",
        "planted.jsonl", "validation.json", "report",
    }  # fmt: skip
    assert len({judgment.response_id for judgment in read_records(folder / "judgments.jsonl", Judgment)}) == 600
    page = (folder / "report" / "report.html").read_text("utf-8")
    assert "Validated against people on 100 of 600 responses" in page


def test_its_records_are_the_shipped_ones_byte_for_byte(made):
    folder, _ = made
    for name in RECORD_TYPES:
        assert (folder / name).read_bytes() == gzip.decompress(find_shipped_file(name).read_bytes())


def test_a_removed_file_is_written_again_and_the_others_stay(made, tmp_path):
    folder = shutil.copytree(made[0], tmp_path / "demo")
    (folder / "judgments.jsonl").unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.jsonl")}
    assert DemoRun(folder).write()
    assert (folder / "judgments.jsonl").read_bytes() == (made[0] / "judgments.jsonl").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_demo_says_where_to_go_on(made):
    folder, output = made
    assert f"Open {folder}/report/report.html in a browser: file:///" in output
    assert f"eclose gate {folder} --min-trr" in output


def test_it_separates_failures_of_retrieval_from_those_of_reasoning(made):
    _, output = made
    assert re.search(r"For \d+ of 300 questions \(\d+ responses\) the passages do not settle the question", output)
    assert "\x1b" not in output


def test_the_truth_it_tells_is_that_of_all_responses(made):
    folder, output = made
    match = re.search(r"^TRR +(\S+) % +(\S+) % \[[^]]+\] +(\S+) %$", output, re.MULTILINE)
    rows = list(read_records(folder / "planted.jsonl", SettledVerdict))
    assert len(rows) == 600
    reliables = [row.verdict.reliable for row in rows if row.verdict.reliable is not None]
    assert match[3] == f"{100 * sum(reliables) / len(reliables):.1f}"
    rate = read_validation(folder / "validation.json").corrected[JudgedLabel.RELIABILITY]
    assert match[1] == f"{100 * rate.judge:.1f}"


def test_again_there_is_nothing_to_do(made):
    folder, _ = made
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    output = command("demo", "--out", folder)
    assert f"{folder}: done before, nothing to do" in output
    assert f"Open {folder}/report/report.html" in output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_what_the_report_says_to_try_works(made, tmp_path):
    folder, _ = made
    assert "failed: TRR at least 85.0 %: " in command(
        "gate", folder, "--min-trr", "0.85", "--max-lgg", "0.05", code=100
    )
    assert "passed" in command("gate", folder, "--min-trr", "0.3", "--max-unjudged", "0.05")
    command("diagnose", folder, "--out", tmp_path / "report")
    assert (tmp_path / "report" / "report.html").exists()
    assert "100 of 600 responses are labelled" in command(
        "judge", "validate", folder, "--verdicts", folder / "people.jsonl", "--out", tmp_path / "validation.json"
    )


def test_the_same_demo_is_the_same_report(made, tmp_path):
    folder, _ = made
    command("demo", "--out", tmp_path / "demo")
    for name in ("report/report.html", "report/report.md", "judgments.jsonl", "validation.json"):
        assert (tmp_path / "demo" / name).read_bytes() == (folder / name).read_bytes()


def test_what_is_somebody_elses_is_not_overwritten(tmp_path):
    theirs = tmp_path / "instances.jsonl"
    theirs.write_text("{}\n")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert "it is not known what it was made from" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["instances.jsonl"]
    assert theirs.read_text() == "{}\n"
