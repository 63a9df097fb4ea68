"""``eclose world`` as a user meets it."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

import eclose.readers.load
import eclose_world.make.instances
from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records
from eclose.values.judgment import Judgment
from eclose.values.verdict import SettledVerdict

runner = CliRunner()


def run(*arguments):
    result = runner.invoke(app, ["world", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.slow
def test_make_and_judge_agree(tmp_path):
    run("make", "--questions", 30, "--out", tmp_path, "--failure", "path_deviation=0.4", "--failure", "L3=0.3")
    result = run("judge", tmp_path / "responses.jsonl")
    assert "30 received = 30 accepted" in result.output
    assert (tmp_path / "verdicts.jsonl").read_text() == (tmp_path / "planted.jsonl").read_text()
    assert '"aligned":false' in (tmp_path / "verdicts.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["confusable-short", "confusable-long"])
def test_make_and_judge_agree_where_relations_are_close_in_meaning(profile, tmp_path):
    failures = ("path_deviation=0.2", "incomplete_reasoning=0.2", "answer_decoupling=0.2", "L1=0.2")
    options = [word for failure in failures for word in ("--failure", failure)]
    run("make", "--questions", 60, "--profile", profile, "--out", tmp_path, *options)
    run("judge", tmp_path / "responses.jsonl")
    assert (tmp_path / "verdicts.jsonl").read_text() == (tmp_path / "planted.jsonl").read_text()
    # A conclusion word stands at the start of the last step or nowhere.
    lines = (tmp_path / "responses.jsonl").read_text().splitlines()
    traces = [json.loads(line)["completion"].split("\n")[:-1] for line in lines]
    concluded = [[bool(re.match(r"\d+\. (So|Therefore|It follows|This means|Hence|Thus)\b", step)) for step in trace]
                 for trace in traces]  # fmt: skip
    assert not any(any(steps[:-1]) for steps in concluded)
    assert 0.3 < sum(steps[-1] for steps in concluded) / len(concluded) < 0.8


@pytest.mark.slow
def test_making_again_does_nothing(tmp_path):
    command = ("make", "--questions", 3, "--out", tmp_path)
    run(*command)
    before = (tmp_path / "instances.jsonl").stat().st_mtime_ns
    assert run(*command).output.count("(done before, nothing to do)") == 3
    assert (tmp_path / "instances.jsonl").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="other settings"):
        run("make", "--questions", 4, "--out", tmp_path)


@pytest.mark.slow
def test_failures_that_are_not_possible_are_counted(tmp_path):
    output = run("make", "--questions", 60, "--out", tmp_path, "--failure", "L2=1").output
    spared = int(re.search(r"L2 asked for, not possible (\d+)", output)[1])
    planted = [json.loads(line)["verdict"] for line in (tmp_path / "planted.jsonl").read_text().splitlines()]
    assert sum(verdict["locally_sound"] for verdict in planted) == spared > 0


@pytest.mark.slow
def test_families_count_what_they_pass_over(tmp_path):
    output = run("make", "--families", 5, "--profile", "hotpot", "--out", tmp_path).output
    counts = re.search(r"(\d+) received = 5 accepted \+ (\d+) rejected", output)
    assert int(counts[1]) == 5 + int(counts[2])
    assert len((tmp_path / "families.jsonl").read_text().splitlines()) == 5


def test_sources_do_not_say_what_is_wrong_with_them(tmp_path):
    run("make", "--sources", 20, "--ineligible", 0.5, "--out", tmp_path)
    planted = [json.loads(line) for line in (tmp_path / "sources.planted.jsonl").read_text().splitlines()]
    sources = [json.loads(line) for line in (tmp_path / "sources.jsonl").read_text().splitlines()]
    assert [record["instance_id"] for record in planted] == [source["id"] for source in sources]
    kinds = {record["kind"] for record in planted if record["kind"]}
    assert 0 < sum(record["kind"] is not None for record in planted) < 20
    assert not any(kind in json.dumps(source) for kind in kinds for source in sources)


def test_what_cannot_be_read_is_counted(tmp_path):
    run("make", "--questions", 2, "--out", tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "responses.jsonl").read_text().splitlines()]
    rows[0]["trace"]["steps"][0]["text"] = "Hm, well."
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = run("judge", tmp_path / "mine.jsonl", "--out", tmp_path / "mine-verdicts.jsonl").output
    assert "cannot read" in output
    assert json.loads((tmp_path / "mine-verdicts.jsonl").read_text().splitlines()[0])["verdict"]["correct"] is True


def test_a_response_without_its_question_is_a_mistake(tmp_path):
    run("make", "--questions", 1, "--out", tmp_path)
    (tmp_path / "alone.jsonl").write_text(
        '{"id": "r", "instance_id": "nobody", "trace": {"steps": []}, "answer": "x"}\n'
    )
    with pytest.raises(UserError, match="there is no instance 'nobody'"):
        run("judge", tmp_path / "alone.jsonl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("make", "--out", "x"), "give --questions"),
        (("make", "--questions", "1", "--out", "x", "--failure", "L9=1"), "unknown failure 'L9'"),
        (("make", "--questions", "1", "--out", "x", "--failure", "L1"), "a name and a rate"),
        (("make", "--questions", "1", "--out", "x", "--failure", "L1=nan"), "'L1=nan': a rate is a finite number"),
        (("make", "--questions", "1", "--out", "x", "--failure", "L1=inf"), "a finite number from 0 to 1"),
        (("make", "--questions", "1", "--out", "x", "--failure", "L1=-0.1"), "a finite number from 0 to 1"),
        (("make", "--families", "1", "--out", "x", "--failure", "L1=2"), "a finite number from 0 to 1"),
        (
            ("make", "--questions", "1", "--out", "x", "--failure", "L1=0.1", "--failure", "L1=0.2"),
            "L1 was given before, with the rate 0.1",
        ),
        (("serve", "--fault", "drop=nan"), "a finite number from 0 to 1"),
        (("serve", "--fault", "fire=1"), "no fault 'fire'"),
    ],
)
def test_mistakes_are_sentences(arguments, message):
    with pytest.raises(SettingError, match=message):
        run(*arguments)


@pytest.fixture
def world(tmp_path):
    run("make", "--questions", 6, "--out", tmp_path, "--failure", "path_deviation=0.5")
    return tmp_path


def test_each_item_is_made_once(tmp_path, monkeypatch):
    places = []
    original = eclose_world.make.instances.make_world_item
    monkeypatch.setattr(
        eclose_world.make.instances, "make_world_item", lambda *place: places.append(place) or original(*place)
    )
    run("make", "--questions", 4, "--out", tmp_path)
    assert len(places) == 4
    (tmp_path / "planted.jsonl").unlink()
    before = (tmp_path / "instances.jsonl").stat().st_mtime_ns
    assert run("make", "--questions", 4, "--out", tmp_path).output.count("(done before, nothing to do)") == 2
    assert (tmp_path / "planted.jsonl").exists()
    assert (tmp_path / "instances.jsonl").stat().st_mtime_ns == before


def test_what_is_no_file_of_responses_is_named(world, monkeypatch):
    monkeypatch.chdir(world)
    with pytest.raises(UserError, match=r"^\.: is a folder"):
        run("judge", ".")
    with pytest.raises(UserError, match=r"nope\.jsonl: there is no such file"):
        run("judge", "nope.jsonl")
    (world / "instances.jsonl").unlink()
    with pytest.raises(UserError, match=r"instances\.jsonl: there is no such file"):
        run("judge", "responses.jsonl")


@pytest.mark.parametrize(
    "order", [lambda rows: rows, lambda rows: rows[::-1], lambda rows: [*rows[3:], rows[0]], lambda rows: rows[1::2]]
)
def test_the_order_of_the_questions_does_not_matter(world, order):
    run("judge", world / "responses.jsonl")
    rows = (world / "responses.jsonl").read_text().splitlines(keepends=True)
    expected = (world / "verdicts.jsonl").read_text().splitlines(keepends=True)
    (world / "mine.jsonl").write_text("".join(order(rows)))
    run("judge", world / "mine.jsonl", "--out", world / "mine-verdicts.jsonl")
    assert (world / "mine-verdicts.jsonl").read_text() == "".join(order(expected))


def test_questions_in_order_are_read_once_and_not_kept(world, monkeypatch):
    rows = [json.loads(line) for line in (world / "responses.jsonl").read_text().splitlines()]
    twice = [row | {"id": f"{row['id']}/{number}"} for row in rows for number in range(2)]
    (world / "twice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in twice))
    reads = []
    original = eclose.readers.load.scan_instances
    monkeypatch.setattr(eclose.readers.load, "scan_instances", lambda *a, **k: reads.append(a) or original(*a, **k))
    assert "12 received = 12 accepted" in run("judge", world / "twice.jsonl").output
    assert len(reads) == 1


def test_one_id_for_two_questions_is_a_mistake(world):
    rows = [json.loads(line) for line in (world / "instances.jsonl").read_text().splitlines()]
    rows[1]["id"] = rows[0]["id"]
    (world / "twice.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="for other content"):
        run("judge", world / "responses.jsonl", "--instances", world / "twice.jsonl")


def test_judgments_are_written_and_tell_why(world):
    rows = [json.loads(line) for line in (world / "responses.jsonl").read_text().splitlines()]
    rows[0]["trace"]["steps"][0]["text"] = "Hm, well."
    (world / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ("judge", world / "mine.jsonl", "--judgments", world / "judgments.jsonl")
    first = run(*command).output
    judgments = list(read_records(world / "judgments.jsonl", Judgment))
    assert len(judgments) == 6
    assert judgments[0].unjudged
    verdicts = list(read_records(world / "verdicts.jsonl", SettledVerdict))
    assert [judgment.verdict for judgment in judgments] == [row.verdict for row in verdicts]
    # The table comes after the counts, and again from the file when nothing is left to do.
    table = first[first.index("Not judged") :]
    assert first.index("6 received") < first.index("Not judged")
    again = run(*command).output
    assert again.count("(done before, nothing to do)") == 2
    assert again.endswith(table)
    assert "--judgments FILE" in run(*command[:2]).output
    with pytest.raises(SettingError, match="both would write"):
        run("judge", world / "mine.jsonl", "--judgments", world / "verdicts.jsonl")


def test_responses_that_cannot_be_read_show_in_the_exit_code(world):
    (world / "mine.jsonl").write_text((world / "responses.jsonl").read_text() + "{\n")
    for _ in range(2):
        result = run("judge", world / "mine.jsonl")
        assert result.exit_code == 3
        assert "7 received = 6 accepted + 0 rejected + 1 quarantined (not JSON 1)" in result.output
        assert f"{world / 'verdicts.jsonl.quarantined.jsonl'}" in result.output
    wrong = run("judge", world / "instances.jsonl", "--out", world / "wrong.jsonl")
    assert "no record could be read: is this the right file?" in wrong.output


@pytest.mark.slow
def test_serving_until_told_to_stop():
    process = subprocess.Popen(
        [sys.executable, "-m", "eclose.cli.main", "world", "serve", "--fault", "rate_limit=0.1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = re.search(r"http://\S+", process.stdout.readline())[0]
        with urllib.request.urlopen(f"{address}/models", timeout=10) as reply:
            assert json.load(reply)["object"] == "list"
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    process.stdout.close()
