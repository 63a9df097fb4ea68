"""``eclosure metrics`` and the command as a whole, as a user meets them."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from eclosure.cli.main import app

runner = CliRunner()


@pytest.fixture
def verdicts(tmp_path):
    assert runner.invoke(app, ["data", "example", "--out", str(tmp_path)]).exit_code == 0
    return tmp_path / "example-verdicts.jsonl"


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "eclosure.cli.main", *arguments], capture_output=True, text=True, check=False
    )


def test_tables(verdicts):
    result = runner.invoke(app, ["metrics", str(verdicts), "--by", "model", "--resamples", "50"])
    assert result.exit_code == 0, result.output
    assert "12 responses to 3 questions" in result.output
    # Twelve responses, one of them undecided; two are in the gap for want of closure, one for want of alignment: 3/11.
    assert [line.split()[:2] for line in result.output.splitlines() if line.startswith("LGG")] == [["LGG", "27.3"]]
    assert "small-model" in result.output
    assert "answer_decoupling" in result.output
    assert "not decided" in result.output


def test_json_has_counts_and_null_for_what_is_undefined(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"response_id": "r", "instance_id": "i", "verdict": {"L": 1, "A": 1, "C": 1, "Acc": 1}}\n')
    result = runner.invoke(app, ["metrics", str(path), "--json", "--resamples", "20"])
    (group,) = json.loads(result.output)["groups"]
    assert group["metrics"]["LggShare"]["value"] is None
    assert group["metrics"]["LggShare"]["interval"] is None
    assert group["metrics"]["TRR"] | {"interval": None} == {
        "value": 1.0,
        "interval": None,
        "undefined_resamples": 0,
        "hits": 1,
        "n": 1,
        "unjudged": 0,
        "bounds": [1.0, 1.0],
    }


def test_inconsistent_responses_are_pointed_at(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"response_id": "r", "instance_id": "i", "verdict": {"L": 1, "A": 1, "C": 1, "Acc": 0}}\n')
    assert "1 responses are reliable by every label and yet wrong" in runner.invoke(app, ["metrics", str(path)]).output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there is no verdict in this file"),
        ('{"response_id": "r"}\n', "line 1: instance_id: is missing; verdict: is missing"),
        ('{"response_id": "r", "instance_id": "i", "verdict": {"L": "yes"}}\n', "verdict.locally_sound: should be"),
        ('{"response_id": "r", "instance_id": "i", "verdict": {"L": 1, "locally_sound": true}}\n', "keep one"),
        ('{"response_id": "r", "instance_id": "i", "verdict": {}}\n' * 2, "'r' has two verdicts"),
    ],
)
def test_mistakes_are_sentences(tmp_path, content, message):
    path = tmp_path / "verdicts.jsonl"
    path.write_text(content)
    result = run("metrics", str(path))
    assert result.returncode == 2
    assert result.stderr.startswith(f"eclosure: {path}")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_grouping_is_refused(verdicts):
    result = run("metrics", str(verdicts), "--by", "colour")
    assert (result.returncode, "Choose from: benchmark, model, method, seed." in result.stderr) == (2, True)


def test_a_missing_file_is_a_sentence():
    result = run("metrics", "nowhere.jsonl")
    assert (result.returncode, result.stderr) == (
        2,
        "eclosure: nowhere.jsonl: there is no such file. Check the path.\n",
    )


def test_the_version():
    assert run("--version").stdout.startswith("eclosure ")


def test_a_reader_that_leaves_early_sees_no_traceback(verdicts):
    """The reading end is closed before anything is written."""
    script = "import sys; sys.argv = ['eclosure', *sys.argv[1:]]; from eclosure.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "metrics", str(verdicts)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    process.wait()
    assert errors == ""


def test_an_example_is_not_written_over_something_else(tmp_path):
    (tmp_path / "example-verdicts.jsonl").write_text("mine")
    result = run("data", "example", "--out", str(tmp_path))
    assert result.returncode == 2
    assert (tmp_path / "example-verdicts.jsonl").read_text() == "mine"
