"""``eclose metrics`` and the command as a whole, as a user meets them."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app

runner = CliRunner()


@pytest.fixture
def verdicts(tmp_path):
    assert runner.invoke(app, ["data", "example", "--out", str(tmp_path)]).exit_code == 0
    return tmp_path / "example-verdicts.jsonl"


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "eclose.cli.main", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_tables(verdicts):
    result = runner.invoke(app, ["metrics", str(verdicts), "--by", "model"])
    assert result.exit_code == 0, result.output
    assert "12 responses to 3 questions" in result.output
    # Twelve responses, one of them undecided; two are in the gap for want of closure, one for want of alignment: 3/11.
    assert [line.split()[:2] for line in result.output.splitlines() if line.startswith("LGG")] == [["LGG", "27.3"]]
    assert "Fewer than 20 questions" in result.output
    # Groups carry their denominators, and what is open: one of the three responses has no A and no C.
    assert "By model: % (hits/judged, +unjudged)" in result.output
    (timed_out,) = [line for line in result.output.splitlines() if line.startswith("timed-out-model")]
    assert "50.0 (1/2, +1)" in timed_out
    assert "answer_decoupling" in result.output
    assert "not decided" in result.output


def test_json_has_counts_and_null_for_what_is_undefined(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"response_id": "r", "instance_id": "i", "verdict": {"L": 1, "A": 1, "C": 1, "Acc": 1}}\n')
    result = runner.invoke(app, ["metrics", str(path), "--json"])
    (group,) = json.loads(result.output)["groups"]
    assert group["metrics"]["LggShare"]["value"] is None
    assert group["metrics"]["LggShare"]["interval"] is None
    assert group["metrics"]["LggShare"]["interval_method"] is None
    assert group["metrics"]["TRR"] | {"interval": None} == {
        "value": 1.0,
        "interval": None,
        "interval_method": "Clopper-Pearson, clustered by question",
        "wilson": pytest.approx([0.207, 1], abs=1e-3),
        "hits": 1,
        "n": 1,
        "unjudged": 0,
        "bounds": [1.0, 1.0],
    }


def test_inconsistent_responses_are_pointed_at(tmp_path):
    def shown(count):
        path = tmp_path / "some.jsonl"
        path.write_text(
            "".join(
                f'{{"response_id": "r{n}", "instance_id": "i", "verdict": {{"L": 1, "A": 1, "C": 1, "Acc": 0}}}}\n'
                for n in range(count)
            )
        )
        return runner.invoke(app, ["metrics", str(path)]).output

    assert "1 response is reliable by every label and yet wrong: check it again (r0)." in shown(1)
    assert "1 response to 1 question\n" in shown(1)
    assert "7 responses are reliable by every label and yet wrong: check them again (r0, r1, r2, r3, r4, ...)" in shown(
        7
    )
    assert "reliable by every label" not in shown(0)


def rows(path, *labels):
    """One response to each of as many questions, with these labels of L, A, C and Acc."""
    names = ("L", "A", "C", "Acc")
    path.write_text(
        "".join(
            json.dumps({"response_id": f"r{n}", "instance_id": f"i{n}", "verdict": dict(zip(names, row, strict=True))})
            + "\n"
            for n, row in enumerate(labels)
        )
    )
    return str(path)


def test_an_interval_is_never_without_width(tmp_path):
    path = rows(tmp_path / "v.jsonl", *[(1, 1, 1, 1)] * 30, *[(0, 1, 1, 1)] * 10)
    output = runner.invoke(app, ["metrics", path]).output
    # 40 of 40: the lower end of Clopper and Pearson is 0.025^(1/40) = 91.2 %.
    (accuracy,) = [line for line in output.splitlines() if line.startswith("Acc")]
    assert accuracy.split()[:5] == ["Acc", "100.0", "[91.2,", "100.0]", "40"]
    assert "Fewer than" not in output


@pytest.mark.slow
def test_the_papers_intervals_of_the_gap_are_printed(tmp_path):
    """Section 3.3: 145 of 313 insufficient and 132 of 484 wrong responses are in the gap, and 7.0 % of sound ones."""
    gap, unsound, sufficient = (1, 0, 1), (0, 0, 1), (1, 1, 1)
    labels = [(*gap, 0)] * 132 + [(*gap, 1)] * 13 + [(*unsound, 0)] * 153 + [(*unsound, 1)] * 15
    labels += [(*sufficient, 0)] * 199 + [(*sufficient, 1)] * 1_715 + [(0, 1, 1, 1)] * 371
    path = rows(tmp_path / "v.jsonl", *labels)
    lines = {
        line.split()[0]: line.split()[1:] for line in runner.invoke(app, ["metrics", path]).output.splitlines() if line
    }
    assert lines["LggShare"][:6] == ["46.3", "[40.7,", "52.0]", "313", "[40.9,", "51.9]"]
    assert lines["LggRisk"][:6] == ["27.3", "[23.4,", "31.5]", "484", "[23.5,", "31.4]"]
    assert lines["LggSound"][0] == "7.0"
    document = json.loads(runner.invoke(app, ["metrics", path, "--json"]).output)
    assert document["groups"][0]["metrics"]["LggRisk"]["wilson"] == pytest.approx([0.235, 0.314], abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there is no verdict in this file"),
        ('{"response_id": "r"}\n', "line 1: instance_id: is missing; verdict: is missing"),
        ('{"response_id": "r", "instance_id": "i", "verdict": {"L": "yes"}}\n', "verdict.locally_sound: should be"),
        ('{"response_id": "r", "instance_id": "i", "verdict": {"L": 1, "locally_sound": true}}\n', "keep one"),
        ('{"response_id": "r", "instance_id": "i", "verdict": {}}\n' * 2, "'r' has two verdicts"),
        ('{"id": "r", "instance_id": "i", "trace": {"steps": []}}\n', "line 1: looks like a response, not a verdict"),
    ],
)
def test_mistakes_are_sentences(tmp_path, content, message):
    path = tmp_path / "verdicts.jsonl"
    path.write_text(content)
    result = run("metrics", str(path))
    assert result.returncode == 2
    assert result.stderr.startswith(f"eclose: {path}")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_an_unknown_grouping_is_refused(verdicts):
    result = run("metrics", str(verdicts), "--by", "colour")
    assert (result.returncode, "Choose from: benchmark, model, method, seed." in result.stderr) == (2, True)


@pytest.mark.slow
def test_a_missing_file_is_a_sentence():
    result = run("metrics", "nowhere.jsonl")
    assert (result.returncode, result.stderr) == (
        2,
        "eclose: nowhere.jsonl: there is no such file. Check the path.\n",
    )


@pytest.mark.slow
def test_the_version():
    assert run("--version").stdout.startswith("eclose ")


@pytest.mark.slow
def test_a_reader_that_leaves_early_sees_no_traceback(verdicts):
    """The reading end is closed before anything is written."""
    script = "import sys; sys.argv = ['eclose', *sys.argv[1:]]; from eclose.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "metrics", str(verdicts)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    process.wait()
    assert errors == ""


@pytest.mark.slow
def test_an_example_is_not_written_over_something_else(tmp_path):
    (tmp_path / "example-verdicts.jsonl").write_text("mine")
    result = run("data", "example", "--out", str(tmp_path))
    assert result.returncode == 2
    assert (tmp_path / "example-verdicts.jsonl").read_text() == "mine"


@pytest.mark.slow
def test_the_help_explains_the_columns():
    help_text = run("metrics", "--help").stdout
    assert "LggShare  the gap's share of globally insufficient responses" in help_text
    assert "bounds    the least and greatest" in help_text


@pytest.mark.slow
def test_examples_are_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "example-verdicts.jsonl").mkdir()
    result = run("data", "example", "--out", str(tmp_path))
    assert (result.returncode, "exists with other content" in result.stderr) == (2, True)
    assert list((tmp_path / "example-verdicts.jsonl").iterdir()) == []


@pytest.mark.slow
def test_a_full_disk_behind_the_output_is_a_sentence(verdicts):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "eclose.cli.main", "metrics", str(verdicts)]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "eclose: No space left on device\n")
