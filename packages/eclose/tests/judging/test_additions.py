"""Responses that are added to a run: what is taken, what is known, what is refused, and what becomes of the run."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eclose
from eclose.calls.client import CallSettings
from eclose.calls.run import RunOptions
from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files import jsonl
from eclose.files.growth import read_growth
from eclose.files.manifest import read_manifest
from eclose.integrations.scores import read_score_table
from eclose.judging.additions import CUT_LINE, KNOWN, ROOT_MISSING, add_responses, hold_run
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose.readers.intake import IntakeSettings, describe_choice, locate_in_sample
from eclose.readers.judged_run import read_conversion_losses, read_judged_cases
from eclose.readers.response_tasks import ResponseTasks
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Judgment
from eclose.values.response import Response, SpanRef, Trace
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.growing import make_rows, write_rows

# Servers of tests share a name.
JUDGE = {"model": "127.0.0.1/world", **JudgeSettings().identity}
ALL = IntakeSettings(append=True)
TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
FREE = CallSettings(unpriced=True)


@pytest.fixture(scope="module")
def rows():
    return make_rows(8)


def add(path, run, intake=ALL, **settings):
    return add_responses(Path(path), run, JUDGE, intake, **settings)


def responses(run):
    return [response.id for response in jsonl.read_records(run / "responses.jsonl", Response)]


def counts(inputs, name="responses"):
    count = inputs.added[name]
    assert count.conserved
    return count.received, count.accepted, dict(count.rejected), dict(count.quarantined)


def judge(inputs, server, run, **options):
    return asyncio.run(judge_responses(inputs, server.base_url, run, calls=FREE, options=RunOptions(**options)))


def test_what_is_new_is_taken_and_what_is_there_is_counted(tmp_path, rows):
    run = tmp_path / "run"
    first = add(write_rows(tmp_path / "a.jsonl", rows[:4]), run)
    assert counts(first) == (4, 4, {}, {})
    assert counts(add(write_rows(tmp_path / "b.jsonl", rows[2:6]), run)) == (4, 2, {KNOWN: 2}, {})
    assert len(responses(run)) == len(set(responses(run))) == 6
    # Each response finds its question, also one that another response asked before.
    tasks = [record.value for record in ResponseTasks(run / "instances.jsonl", run / "responses.jsonl")]
    assert len([task for task in tasks if task is not None]) == 6
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert counts(add(tmp_path / "b.jsonl", run)) == (4, 0, {KNOWN: 4}, {})
    assert {name: (run / name).read_bytes() for name in before if "manifest" not in name} == {
        name: content for name, content in before.items() if "manifest" not in name
    }


def test_other_content_under_a_known_id_is_refused_by_name(tmp_path, rows):
    run = tmp_path / "run"
    question, response = (
        Instance("q", "Why?", (Passage("p", "", "Because."),)),
        Response("r", "q", Trace.of("So."), "x"),
    )
    for folder, answer in (("a", "x"), ("b", "another")):
        (tmp_path / folder).mkdir()
        jsonl.write_records(tmp_path / folder / "instances.jsonl", [question])
        jsonl.write_records(tmp_path / folder / "responses.jsonl", [replace(response, answer=answer)])
    add(tmp_path / "a", run)
    before = (run / "responses.jsonl").read_bytes()
    assert counts(add(tmp_path / "b", run)) == (1, 0, {}, {"id used twice": 1})
    assert (run / "responses.jsonl").read_bytes() == before
    (line,) = (run / "responses.jsonl.rejected.jsonl").read_text().splitlines()
    assert "'r' is in the run with other content" in line
    assert len(read_conversion_losses(run)) == 1
    jsonl.write_records(tmp_path / "b" / "instances.jsonl", [replace(question, question="Where?")])
    assert counts(add(tmp_path / "b", run), "questions") == (1, 0, {}, {"id used twice": 1})


def test_a_line_that_is_still_being_written_is_taken_once_it_is_whole(tmp_path, rows):
    run, path = tmp_path / "run", tmp_path / "log.jsonl"
    lines = [json.dumps(row) + "\n" for row in rows[:3]]
    path.write_text(lines[0] + lines[1] + lines[2][:50])
    assert counts(add(path, run)) == (3, 2, {CUT_LINE: 1}, {})
    assert read_conversion_losses(run) == []
    path.write_text("".join(lines) + "{broken}\n")
    assert counts(add(path, run)) == (4, 1, {KNOWN: 2}, {"not JSON": 1})
    assert [reason for _, reason in read_conversion_losses(run)] == ["it cannot be read (not JSON)"]
    path.write_text("".join(lines))
    # The file was repaired: what was lost of it is there, or was nothing.
    add(path, run)
    assert read_conversion_losses(run) == []


@pytest.mark.parametrize("nested", [False, True], ids=["two spans without a parent", "one span with another below"])
def test_a_trace_is_taken_once_its_root_is_there(tmp_path, rows, nested):
    run, path = tmp_path / "run", tmp_path / "spans.jsonl"
    search, generate, root = (TRACES / "openinference.jsonl").read_text().splitlines(keepends=True)
    if nested:
        parent, child = (re.search(r'"spanId": *"(\w+)"', line)[1] for line in (root, generate))
        search = search.replace(parent, child)
    add(write_rows(tmp_path / "a.jsonl", rows[:2]), run)
    path.write_text(search + generate)
    assert counts(add(path, run)) == (1, 0, {ROOT_MISSING: 1}, {})
    assert read_conversion_losses(run) == []
    path.write_text(search + generate + root)
    assert counts(add(path, run)) == (1, 1, {}, {})


def test_every_file_of_a_folder_is_read_and_counted(tmp_path, rows):
    traces = tmp_path / "traces"
    # The run itself is no input, wherever it lies.
    run = traces / "run"
    add(write_rows(tmp_path / "before.jsonl", rows[5:6]), run)
    (traces / "day").mkdir(parents=True)
    write_rows(traces / "day" / "a.jsonl", rows[:2])
    write_rows(traces / "b.jsonl", rows[2:5])
    (traces / "notes.txt").write_text("no records")
    (traces / ".hidden.jsonl").write_text("{")
    (traces / "empty.jsonl").write_text("")
    (traces / "c.json").write_text('[{"question": "cut')
    added = add(traces, run)
    assert counts(added, "files") == (5, 2, {"no file of records": 1, "empty": 1}, {"cannot be read": 1})
    assert counts(added)[:2] == (5, 5)
    with pytest.raises(UserError, match="breaks off"):
        add(traces / "c.json", run)


def test_responses_to_no_known_question_wait_for_it(tmp_path, rows):
    run = tmp_path / "run"
    add(write_rows(tmp_path / "a.jsonl", rows[:2]), run)
    stray, question = Response("s", "q", Trace.of("So."), "x"), Instance("q", "Why?", (Passage("p", "", "Because."),))
    jsonl.write_records(tmp_path / "stray.jsonl", [stray])
    assert counts(add(tmp_path / "stray.jsonl", run)) == (1, 0, {}, {"no such question": 1})
    jsonl.write_records(tmp_path / "questions.jsonl", [question])
    assert counts(add(tmp_path / "stray.jsonl", run, instances=tmp_path / "questions.jsonl")) == (1, 1, {}, {})


def test_a_run_without_any_response_is_refused_and_nothing_is_written(tmp_path, rows):
    path = write_rows(tmp_path / "a.jsonl", rows[:2])
    with pytest.raises(UserError, match=r"no response to judge.*not in the sample"):
        add(path, tmp_path / "run", IntakeSettings(append=True, sample=1e-9))
    assert not (tmp_path / "run").exists()


def test_a_forecast_is_of_what_is_not_judged_and_writes_nothing(tmp_path, rows):
    run, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    add(write_rows(tmp_path / "a.jsonl", rows[:2]), run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    inputs = add(write_rows(tmp_path / "b.jsonl", rows[1:4]), run, scratch=scratch)
    assert len(ResponseTasks(inputs.instances, inputs.responses)) == 4
    assert all(record.value is not None for record in ResponseTasks(inputs.instances, inputs.responses))
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    jsonl.write_records(run / "judgments.jsonl", [Judgment(responses(run)[0], "a judge", ())])
    inputs = add(tmp_path / "b.jsonl", run, scratch=scratch)
    assert len(ResponseTasks(inputs.instances, inputs.responses)) == 3


def test_other_settings_are_refused_before_anything_is_taken_unless_forced(tmp_path, rows):
    run = tmp_path / "run"
    add(write_rows(tmp_path / "a.jsonl", rows[:2]), run)
    before = read_growth(run)
    with pytest.raises(UserError, match=r"model: '127.0.0.1/world' then, 'another' now"):
        add_responses(write_rows(tmp_path / "b.jsonl", rows), run, JUDGE | {"model": "another"}, ALL)
    assert len(responses(run)) == 2
    add_responses(tmp_path / "b.jsonl", run, JUDGE | {"model": "another"}, ALL, force=True)
    assert read_growth(run).run_id != before.run_id


@pytest.mark.parametrize("name", ["instances.jsonl", "responses.jsonl"])
def test_a_changed_record_is_refused_and_judged_anew_when_forced(tmp_path, rows, name):
    run = tmp_path / "run"
    path = write_rows(tmp_path / "a.jsonl", rows[:2])
    add(path, run)
    before = read_growth(run)
    (run / name).write_bytes((run / name).read_bytes().replace(b"the", b"a", 1))
    for take in (lambda: add(path, run), lambda: find_judge_inputs(run, run)):
        with pytest.raises(UserError, match=rf"{name} changed since.*--force"):
            take()
    add(write_rows(tmp_path / "b.jsonl", rows[2:4]), run, force=True)
    assert read_growth(run).run_id != before.run_id
    # What an interrupted process added behind the known records is no change.
    (run / name).write_bytes((run / name).read_bytes() + b"\n")
    assert add(tmp_path / "b.jsonl", run).origin == read_growth(run).identity


def test_nobody_adds_to_a_run_that_another_process_writes(tmp_path):
    with (
        hold_run(tmp_path, None, ALL),
        pytest.raises(UserError, match="is writing to it"),
        hold_run(tmp_path, None, ALL),
    ):
        pass
    with hold_run(tmp_path, None, ALL):
        pass


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"append": True}, "--out"),
        ({"sample": 0.0}, "--sample 0"),
        ({"sample": 1.5}, "--sample 1.5"),
        ({"since": "yesterday"}, "--since yesterday"),
        ({"since": "99999999999d"}, "--since"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(words, problem):
    with pytest.raises(SettingError, match=problem):
        eclose.evaluate("responses.jsonl", judge="http://127.0.0.1:9/v1", intake=IntakeSettings(**words))


def test_the_same_traces_are_in_a_sample_everywhere_and_a_larger_one_holds_them():
    made = [Response(f"r{number}", "q", Trace.of("So."), "x") for number in range(4000)]
    small, large = ({r.id for r in made if locate_in_sample(r) < share} for share in (0.02, 0.1))
    assert small < large
    assert 50 < len(small) < 115
    assert 330 < len(large) < 475
    # The formula is documented, so that others can choose the same traces.
    assert locate_in_sample(made[0]) == int.from_bytes(bytes.fromhex("dd191696e15e")) / 2**48
    spans = [replace(response, span=SpanRef("a trace", f"span {response.id}")) for response in made[:9]]
    assert len({locate_in_sample(response) for response in spans}) == 1


def test_what_a_sample_leaves_out_is_counted_and_taken_by_a_larger_one(tmp_path, rows):
    run, path = tmp_path / "run", write_rows(tmp_path / "a.jsonl", rows)
    half = add(path, run, IntakeSettings(append=True, sample=0.5))
    received, accepted, rejected, _ = counts(half)
    assert (received, rejected) == (8, {"not in the sample of 50 %": 8 - accepted})
    assert 0 < accepted < 8
    # Questions of responses that are left out are no burden.
    assert len(list(jsonl.read_records(run / "instances.jsonl", Instance))) <= accepted
    assert read_manifest(run / "responses.jsonl.manifest.json").settings == {"sample": 0.5}
    assert counts(add(path, run))[1] == 8 - accepted
    assert read_growth(run).samples == (0.5, 1.0)
    assert "a sample of 50 %, then 100 % by a hash" in describe_choice((0.5, 1.0), None)[0]
    assert describe_choice((1.0,), None) == ()


def test_a_run_that_grows_is_judged_as_one_run_over_all_and_asks_nothing_twice(tmp_path, rows):
    run, whole = tmp_path / "run", tmp_path / "whole"
    with ModelServerThread(build_world_handlers()) as server:
        for hour in range(3):
            path = write_rows(tmp_path / f"{hour}.jsonl", rows[max(hour - 1, 0) : hour + 1])
            inputs = add(path, run)
            judge(inputs, server, run)
        paid = server.bill(keys=False)["totals"]["paid"]
        judge(find_judge_inputs(write_rows(tmp_path / "all.jsonl", rows[:3]), whole), server, whole)
        bill = server.bill()
        # The whole run has a ledger of its own.
        assert {line["paid"] for line in bill["requests"].values()} == {2}
        assert bill["totals"]["paid"] == 2 * paid
    assert (run / "judgments.jsonl").read_bytes() == (whole / "judgments.jsonl").read_bytes()
    assert (run / "responses.jsonl").read_bytes() == (whole / "responses.jsonl").read_bytes()
    cases = read_judged_cases(run)
    assert (len(cases.cases), cases.left_out, cases.stale, cases.checked) == (3, (), (), True)


def test_a_run_that_was_judged_without_growing_keeps_its_judgments(tmp_path, rows):
    run = tmp_path / "run"
    with ModelServerThread(build_world_handlers()) as server:
        plain = find_judge_inputs(write_rows(tmp_path / "a.jsonl", rows[:2]), run)
        judge(plain, server, run)
        before = server.bill()["requests"]
        inputs = add(write_rows(tmp_path / "b.jsonl", rows[1:3]), run)
        # Until the new response is judged, the run is unfinished, and a diagnosis counts what is there.
        with pytest.raises(UserError, match="2 of 3 responses are judged"):
            read_judged_cases(run)
        results = eclose.diagnose(run)
        assert results.notices[0].startswith(f"UNFINISHED: {run}: 2 of 3")
        assert (len(results), results.folder) == (2, run)
        # The plain command goes on as well.
        judge(find_judge_inputs(run, run), server, run)
        after = server.bill()["requests"]
        assert judge(inputs, server, run).again
    assert all(after[key] == line for key, line in before.items())
    assert len(read_judged_cases(run).cases) == 3


def test_another_ledger_is_refused_and_nobody_is_asked(tmp_path, rows):
    run, path = tmp_path / "run", write_rows(tmp_path / "a.jsonl", rows[:1])
    with ModelServerThread(build_world_handlers()) as server:
        judge(find_judge_inputs(path, run), server, run)
        inputs = add(write_rows(tmp_path / "b.jsonl", rows[:2]), run)
        paid = server.bill(keys=False)["totals"]["paid"]
        with pytest.raises(UserError, match="not the ledger that this run was begun with"):
            judge(inputs, server, run, ledger=tmp_path / "other.sqlite")
        assert server.bill(keys=False)["totals"]["paid"] == paid
        # What it has is diagnosed without its ledger, too.
        (run / "ledger.sqlite").rename(tmp_path / "moved.sqlite")
        assert len(eclose.diagnose(run)) == 1
        judge(inputs, server, run, ledger=tmp_path / "moved.sqlite")


def test_rows_are_added_from_python_and_what_was_added_is_said(tmp_path, rows):
    run = tmp_path / "run"
    with ModelServerThread(build_world_handlers()) as server:
        for part in (rows[:1], [*rows[:2], {"user_input": "Why?"}]):
            results = eclose.evaluate(part, judge=server.base_url, out=run, calls=FREE, intake=ALL)
    assert len(results) == 2
    assert results.notices[1] == (
        f"responses: 3 received = 1 new + 1 rejected ({KNOWN} 1) + 1 quarantined (wrong record 1)"
    )
    assert not (run / "rows.jsonl").exists()
    # The lost row is counted as a response without a judgment.
    assert [where.split()[0] for where, _ in results.context.left_out] == ["rows"]


def test_a_plain_run_judges_a_sample_and_says_so(tmp_path, rows):
    run = tmp_path / "run"
    inputs = find_judge_inputs(write_rows(tmp_path / "a.jsonl", rows[:3]), run)
    first, second, _ = sorted(map(locate_in_sample, jsonl.read_records(inputs.responses, Response)))
    share = round((first + second) / 2, 6)
    with ModelServerThread(build_world_handlers()) as server:
        sample = IntakeSettings(sample=share)
        result = asyncio.run(judge_responses(inputs, server.base_url, run, calls=FREE, only=sample))
    named = f"{100 * share:g} %"
    assert result.manifest.counts.rejected == {f"read: not in the sample of {named}": 2}
    cases = read_judged_cases(run)
    assert len(cases.cases) == 1
    assert f"a sample of {named} by a hash of their ids: the rates describe these" in cases.selected[0]
    with pytest.raises(UserError, match="--append would judge the others as well"):
        add(tmp_path / "a.jsonl", run)


def test_only_responses_since_a_time_are_taken_and_those_without_a_time_are_counted(tmp_path):
    times = {"early": "2026-11-19T09:00:00Z", "late": "2026-11-20T11:00:00Z", "unknown": None}
    jsonl.write_records(tmp_path / "instances.jsonl", [Instance("q", "Why?", (Passage("p", "", "Because."),))])
    made = [Response(name, "q", Trace.of("So."), "x", time=time) for name, time in times.items()]
    jsonl.write_records(tmp_path / "responses.jsonl", made)
    since = IntakeSettings(append=True, since="2026-11-20T12:00:00+02:00")
    inputs = add(tmp_path, tmp_path / "run", since)
    assert counts(inputs) == (3, 1, {"given before 2026-11-20T10:00:00Z": 1, "it has no time": 1}, {})
    assert responses(tmp_path / "run") == ["late"]
    assert read_growth(tmp_path / "run").since == "2026-11-20T10:00:00Z"
    # Two hours before noon on the 20th, and a day before: the earliest time says what the run holds.
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert IntakeSettings(since="2h").at(noon).since == "2026-11-20T10:00:00Z"
    add(tmp_path, tmp_path / "run", IntakeSettings(append=True, since="36h").at(noon))
    assert responses(tmp_path / "run") == ["late", "early"]
    assert read_growth(tmp_path / "run").since == "2026-11-19T00:00:00Z"
    assert "those since 2026-11-19T00:00:00Z" in describe_choice((1.0,), "2026-11-19T00:00:00Z")[0]
    add(tmp_path, tmp_path / "run")
    assert read_growth(tmp_path / "run").since is None


def command(*words, code=0):
    result = CliRunner().invoke(app, ["judge", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_the_command_says_what_it_took_and_a_dry_run_writes_nothing(tmp_path, rows):
    run, path = tmp_path / "run", write_rows(tmp_path / "a.jsonl", rows[:2])
    with ModelServerThread(build_world_handlers()) as server:
        words = ["--judge", server.base_url, "--no-price", "--out", run, "--append"]
        assert "responses: 2 received = 2 new" in command(path, *words, "--dry-run")
        assert not run.exists()
        command(path, *words)
        before = {path.name: path.read_bytes() for path in run.iterdir()}
        path.write_text(path.read_text() + '{"user_input": "Why?"}\n')
        output = command(write_rows(tmp_path / "b.jsonl", rows[1:3]), *words, "--dry-run")
        calls = int(re.search(r"(\d+) calls", output)[1])
        assert {path.name: path.read_bytes() for path in run.iterdir()} == before
        paid = server.bill(keys=False)["totals"]["paid"]
        # A line that cannot be read is listed, and the exit code is 3 also where all else was there before.
        for _ in range(2):
            output = command(path, *words, code=3)
            assert f"responses: 3 received = 0 new + 2 rejected ({KNOWN} 2) + 1 quarantined (wrong record 1)" in output
            assert "done before, nothing to do" in output
            assert f"{run / 'responses.jsonl.rejected.jsonl'}" in output.replace("\n", "")
        assert server.bill(keys=False)["totals"]["paid"] == paid
        command(tmp_path / "b.jsonl", *words, code=0)
        assert server.bill(keys=False)["totals"]["paid"] == paid + calls
        # As long as the new response is not judged, the run does not pass any gate.
        (run / "judgments.jsonl.manifest.json").unlink()
        gate = CliRunner().invoke(app, ["gate", str(run), "--min-trr", "0"])
        assert isinstance(gate.exception, UserError)
        assert "3 of 3 responses are judged" in str(gate.exception)


@pytest.mark.slow
def test_forced_other_settings_judge_all_again_and_stay(tmp_path, rows):
    run, path = tmp_path / "run", write_rows(tmp_path / "a.jsonl", rows[:2])
    with ModelServerThread(build_world_handlers()) as server:
        words = ["--judge", server.base_url, "--no-price", "--out", run]
        command(path, *words, "--append")
        command(run, *words, "--reference-free", "--force")
        assert read_growth(run).settings["reference_free"]
        assert len(read_judged_cases(run).cases) == 2
        output = command(write_rows(tmp_path / "b.jsonl", rows[:3]), *words, "--append", "--reference-free")
    assert "responses: 3 received = 1 new" in output
    judged = [judgment.unjudged for judgment in jsonl.read_records(run / "judgments.jsonl", Judgment)]
    assert len(judged) == 3
    assert all(judged)


@pytest.mark.parametrize("choice", [["--sample", "0.1"], ["--since", "1h"], ["--append", "--out", "run"]])
def test_bands_and_other_choices_are_not_combined(tmp_path, rows, choice, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "a.jsonl", rows[:1])
    words = ["judge", "a.jsonl", "--judge", "http://127.0.0.1:9/world", "--no-price", "--only", "flagged", *choice]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, SettingError)
    assert "--only chooses from scored responses" in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_score_keeps_its_id_while_the_run_grows(tmp_path, rows):
    run = tmp_path / "run"
    ids = []
    with ModelServerThread(build_world_handlers()) as server:
        for number in (1, 2):
            judge(add(write_rows(tmp_path / "a.jsonl", rows[:number]), run), server, run)
            ids.append({score.id for row in read_score_table(run).rows for score in row.scores})
    assert ids[0] < ids[1]
