"""The commands of ``eclose data``: what they write, print and answer."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from eclose.cli.data import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import read_records
from eclose.files.manifest import read_manifest
from eclose.values.instance import Instance
from eclose.values.response import Response

ROW = {"question": "Q?", "contexts": ["one"], "answer": "1. Because.\nFinal answer: R", "ground_truth": "A"}


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "\x1b" not in result.output
    return result


def eclose(*arguments):
    """The real command, in a process of its own."""
    command = [sys.executable, "-m", "eclose.cli.main", "data", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_convert_writes_instances_and_a_manifest(qa, tmp_path):
    out = tmp_path / "new" / "hotpot.jsonl"
    result = run("convert", qa / "tiny_hotpotqa.json", "--out", out)
    assert result.exit_code == 0
    assert "6 received = 6 accepted + 0 rejected + 0 quarantined" in result.output
    assert str(out) in result.output
    assert len(list(read_records(out, Instance))) == 6
    manifest = read_manifest(tmp_path / "new" / "hotpot.jsonl.manifest.json")
    assert manifest.settings == {"format": "hotpot"}
    assert list(manifest.inputs) == ["tiny_hotpotqa.json"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["hotpot.jsonl", "hotpot.jsonl.manifest.json"]


def test_convert_twice_does_nothing(qa, tmp_path):
    out = tmp_path / "a.jsonl"
    run("convert", qa / "tiny_hotpotqa.json", "--out", out)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = run("convert", qa / "tiny_hotpotqa.json", "--out", out, "--format", "hotpot")
    assert again.exit_code == 0
    assert "nothing to do" in again.output
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_convert_does_not_overwrite_other_work_unless_forced(qa, tmp_path):
    out = tmp_path / "a.jsonl"
    run("convert", qa / "tiny_hotpotqa.json", "--out", out)
    with pytest.raises(UserError, match="made from other inputs or with other settings"):
        run("convert", qa / "tiny_musique_ans.jsonl", "--out", out)
    assert len(list(read_records(out, Instance))) == 6
    run("convert", qa / "tiny_2wikimultihopqa.json", "--out", out, "--force")
    assert len(list(read_records(out, Instance))) == 4


def test_convert_quarantines_what_it_cannot_read(qa, tmp_path):
    source = tmp_path / "in.jsonl"
    good = (qa / "tiny_musique_ans.jsonl").read_text()
    source.write_text(good + good.splitlines()[0] + '\n{"id": "x", "paragraphs": 7}\n{"cut')
    for _ in range(2):  # the second time nothing is done, and the answer is the same
        result = run("convert", source, "--out", tmp_path / "out.jsonl.gz")
        assert result.exit_code == 3
        expected = "9 received = 6 accepted + 1 rejected (duplicate 1) + 2 quarantined (not JSON 1, wrong record 1)"
        assert expected in result.output
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).count(b"\n") == 6
    explained = [json.loads(line) for line in (tmp_path / "out.jsonl.gz.quarantined.jsonl").read_text().splitlines()]
    assert [entry["where"] for entry in explained] == ["line 8", "line 9"]
    assert "question: is missing; paragraphs: should be a valid array" in explained[0]["error"]
    assert read_manifest(tmp_path / "out.jsonl.gz.manifest.json").counts.conserved


def test_convert_that_breaks_off_leaves_nothing(qa, tmp_path):
    source = tmp_path / "in.json"
    source.write_bytes((qa / "tiny_hotpotqa.json").read_bytes()[:-500])
    with pytest.raises(UserError, match="breaks off after record 5"):
        run("convert", source, "--out", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_convert_takes_aliases(qa, tmp_path):
    raw = json.loads((qa / "tiny_2wikimultihopqa.json").read_text())
    raw_record = next(record for record in raw if record["answer_id"])
    aliases = lines(
        tmp_path / "id_aliases.json", {"Q_id": raw_record["answer_id"], "aliases": ["Other"], "demonyms": ["Name"]}
    )
    run("convert", qa / "tiny_2wikimultihopqa.json", "--out", tmp_path / "a.jsonl", "--aliases", aliases)
    instances = {instance.id: instance for instance in read_records(tmp_path / "a.jsonl", Instance)}
    assert instances[raw_record["_id"]].accepted_answers == (raw_record["answer"], "Other", "Name")
    assert len(read_manifest(tmp_path / "a.jsonl.manifest.json").inputs) == 2
    with pytest.raises(SettingError, match="--aliases: is for 2WikiMultiHopQA"):
        run("convert", qa / "tiny_hotpotqa.json", "--out", tmp_path / "b.jsonl", "--aliases", aliases)


def test_convert_writes_responses_beside_instances(tmp_path):
    source = lines(tmp_path / "in.jsonl", ROW, {**ROW, "question": "R?", "answer": None}, {**ROW, "contexts": 3})
    out, responses = tmp_path / "a.jsonl", tmp_path / "r.jsonl"
    result = run("convert", source, "--out", out, "--responses", responses)
    assert result.exit_code == 3
    assert "3 received = 1 accepted + 1 rejected (no response 1) + 1 quarantined" in result.output
    (response,) = read_records(responses, Response)
    assert response.answer == "R"
    assert response.instance_id in {instance.id for instance in read_records(out, Instance)}
    with pytest.raises(SettingError, match="both would write"):
        run("convert", source, "--out", tmp_path / "c.jsonl", "--responses", tmp_path / "c.jsonl")


def test_convert_keeps_its_hands_off_its_input(tmp_path):
    """Whatever the input is called, it is there afterwards as it was."""
    for name in ("a.jsonl", "a.jsonl.quarantined.jsonl", "a.jsonl.manifest.json"):
        source = lines(tmp_path / name, ROW)
        before = source.read_bytes()
        with pytest.raises(SettingError, match="is an input and would be overwritten"):
            run("convert", source, "--out", tmp_path / "a.jsonl", "--force")
        assert [path.name for path in tmp_path.iterdir()] == [name]
        assert source.read_bytes() == before
        source.unlink()


def test_files_that_differ_in_their_ending_alone_do_not_share_anything(tmp_path):
    source = lines(tmp_path / "in.jsonl", ROW, {**ROW, "contexts": 3})
    run("convert", source, "--out", tmp_path / "t.jsonl", "--responses", tmp_path / "t.jsonl.gz")
    again = run("convert", source, "--out", tmp_path / "t.jsonl", "--responses", tmp_path / "t.jsonl.gz")
    assert again.output.count("(done before, nothing to do)") == 2
    with pytest.raises(SettingError, match="both would write"):
        run("convert", source, "--out", tmp_path / "u.jsonl", "--responses", tmp_path / "u.jsonl.manifest.json")


def test_convert_says_when_nothing_could_be_read(tmp_path):
    source = lines(tmp_path / "in.jsonl", ROW)
    result = run("convert", source, "--out", tmp_path / "a.jsonl", "--format", "musique")
    assert result.exit_code == 3
    assert "no record could be read: is --format musique right?" in result.output


@pytest.mark.parametrize("out", [".", ".."])
def test_convert_into_a_folder_is_a_sentence(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=r"is a folder\. Name a file to write"):
        run("convert", lines(tmp_path / "in.jsonl", ROW), "--out", out)


@pytest.mark.slow
def test_what_a_file_says_cannot_drive_the_terminal(tmp_path):
    """Ids and titles are shown by their escapes, in tables, counts and messages."""
    evil = "\x1b]0;owned\x07\u202e"
    source = lines(tmp_path / "evil\x1b[31m.jsonl", ROW | {"id": evil}, ROW | {"id": evil, "question": "Other?"})
    for arguments in (("validate", source), ("convert", source, "--out", tmp_path / "out\x1b[2J.jsonl")):
        output = run(*arguments).output
        assert not set(output) & set("\x1b\x07\u202e")
        assert "\\x1b[" in output
    own = {
        "id": "q",
        "question": "Q?",
        "evidence": [{"id": "0", "title": "", "text": "x"}],
        "benchmark": evil,
        "kind": evil,
    }
    assert r"\x1b]0;owned\x07\u202e" in run("stats", lines(tmp_path / "own.jsonl", own)).output
    assert run("stats", tmp_path / "own.jsonl", "--json").output.isascii()
    missing = eclose("stats", tmp_path / "no\x1b[31m.jsonl")
    assert "\x1b" not in missing.stderr
    assert r"no\x1b[31m.jsonl" in missing.stderr


def test_a_refusal_comes_before_any_work(tmp_path):
    source = lines(tmp_path / "in.jsonl", ROW)
    (tmp_path / "r.jsonl").write_text("mine")
    with pytest.raises(UserError, match="has no manifest"):
        run("convert", source, "--out", tmp_path / "a.jsonl", "--responses", tmp_path / "r.jsonl")
    assert not (tmp_path / "a.jsonl").exists()


def test_sample_is_seeded_filtered_and_extendable(qa, tmp_path):
    source = qa / "musique_ans_train_50.jsonl"
    for n in (5, 12):
        result = run("sample", source, "-n", n, "--hops", 3, "--hops", 4, "--out", tmp_path / f"{n}.jsonl")
        assert result.exit_code == 0
        assert f"50 received = {n} accepted + {50 - n} rejected" in result.output
    small, large = (list(read_records(tmp_path / f"{n}.jsonl", Instance)) for n in (5, 12))
    assert large[:5] == small
    assert {instance.hops for instance in large} <= {3, 4}
    counts = read_manifest(tmp_path / "5.jsonl.manifest.json").counts
    assert counts.rejected == {"not drawn": 27, "other kind or number of hops": 18}
    again = run("sample", source, "-n", 5, "--hops", 4, "--hops", 3, "--out", tmp_path / "5.jsonl")
    assert "nothing to do" in again.output


def test_sample_of_too_many_says_how_many_there_are(qa, tmp_path):
    with pytest.raises(SettingError, match="only 6 to draw from"):
        run("sample", qa / "tiny_hotpotqa.json", "--out", tmp_path / "a.jsonl")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(
        SettingError, match=r"type: bridge \(3\), comparison \(3\)\. Questions by number of hops: 2 \(6\)"
    ):
        run("sample", qa / "tiny_hotpotqa.json", "--kind", "brigde", "-n", 1, "--out", tmp_path / "a.jsonl")


def test_stats_prints_the_table(qa):
    result = run("stats", qa / "hotpotqa_train_50.json", qa / "musique_ans_train_50.jsonl")
    assert result.exit_code == 0
    header, hotpot, musique = result.output.splitlines()[1:4]
    assert header.split()[:2] == ["benchmark", "n"]
    assert hotpot.split()[:4] == ["HotpotQA", "50", "2", "[2-2]"]
    assert musique.split()[:4] == ["MuSiQue", "50", "3", "[2-3]"]
    assert not set(result.output) & set("│┃━─")


def test_stats_has_dashes_where_nothing_is_known(tmp_path):
    result = run("stats", lines(tmp_path / "a.jsonl", ROW))
    assert result.output.splitlines()[2].split() == ["-", "1", "-", "-", "-", "1", "[1-1]"]


def test_stats_as_json(qa):
    (row,) = json.loads(run("stats", qa / "tiny_hotpotqa.json", "--json").output)
    assert (row["benchmark"], row["n"], row["kinds"]) == ("HotpotQA", 6, {"bridge": 3, "comparison": 3})


def test_validate_is_quiet_about_good_files(qa):
    result = run("validate", qa / "tiny_hotpotqa.json")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == 1


def test_validate_prints_up_to_the_limit(tmp_path):
    source = lines(tmp_path / "a.jsonl", *({**ROW, "question": number} for number in range(30)))
    result = run("validate", source, "--limit", 3)
    assert result.exit_code == 2
    output_lines = result.output.splitlines()
    assert output_lines[0] == f"{source} line 1: question: should be a valid string"
    assert output_lines[3] == "... and 27 more; raise --limit to see them"
    assert output_lines[4].endswith("30 received = 0 accepted + 0 rejected + 30 quarantined (wrong record 30)")


def test_validate_as_json(tmp_path, qa):
    source = lines(tmp_path / "a.jsonl", ROW, {**ROW, "question": 1})
    report = json.loads(run("validate", source, "--json").output)
    assert report["problems"] == [{"where": "line 2", "problem": "question: should be a valid string"}]
    assert (report["fine"], report["counts"]["accepted"], report["stopped"]) == (False, 1, None)
    broken = tmp_path / "b.json"
    broken.write_bytes((qa / "tiny_hotpotqa.json").read_bytes()[:-500])
    report = json.loads(run("validate", broken, "--json").output)
    assert report["counts"]["accepted"] == 5
    assert "breaks off after record 5" in report["stopped"]


@pytest.mark.slow
def test_the_real_command_answers_in_sentences(qa, tmp_path):
    fine = eclose("validate", qa / "tiny_hotpotqa.json")
    assert (fine.returncode, fine.stderr) == (0, "")
    missing = eclose("stats", tmp_path / "none.jsonl")
    assert missing.returncode == 2
    assert missing.stderr == f"eclose: {tmp_path / 'none.jsonl'}: there is no such file. Check the path.\n"


@pytest.mark.slow
def test_what_the_system_refuses_is_a_sentence_too(tmp_path):
    long = tmp_path / ("x" * 300)
    refused = eclose("convert", long, "--out", tmp_path / "a.jsonl")
    assert (refused.returncode, refused.stderr) == (2, f"eclose: {long}: File name too long\n")
    (tmp_path / "file").write_text("")
    refused = eclose("example", "--out", tmp_path / "file" / "below")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"eclose: {tmp_path}/file/below/example-instances.jsonl: cannot be written here")


@pytest.mark.slow
def test_importing_the_commands_is_cheap():
    heavy = "pydantic", "numpy", "rich.table", "eclose.files.jsonl", "eclose.readers.load"
    code = f"import sys, eclose.cli.data; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
