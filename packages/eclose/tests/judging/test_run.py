"""Judging a whole file: the command over HTTP, from a run's folder or from another tool's file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
from eclose.calls.client import CallSettings
from eclose.cli.main import app
from eclose.errors import RecordError, SettingError, UserError
from eclose.files import jsonl
from eclose.files.manifest import read_manifest
from eclose.files.outcome_counts import RecordCounts
from eclose.judging.inputs import JudgeInputFiles, find_judge_inputs
from eclose.judging.run import find_same_family_models, judge_responses
from eclose.readers.import_settings import ImportSettings
from eclose.readers.judged_run import read_judged_cases
from eclose.readers.load import scan_instances
from eclose.readers.response_tasks import ResponseTasks
from eclose.values.instance import Instance, Passage
from eclose.values.judgment import Criterion, Judgment
from eclose.values.response import Response, ResponseSource
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import HandlerRegistry, ScriptedReply


@pytest.fixture
def planted():
    return [
        (item.instance, broken)
        for item in islice(make_world_items("short-easy", 3), 4)
        for plan in (FailurePlan(), *FAILURE_PLANS[:6])
        if (broken := break_response(item, plan, "x")) is not None
    ]


@pytest.fixture
def run(tmp_path, planted):
    folder = tmp_path / "run"
    folder.mkdir()
    questions = {instance.id: instance for instance, _ in planted}
    jsonl.write_records(folder / "instances.jsonl", questions.values())
    jsonl.write_records(folder / "responses.jsonl", (broken.response for _, broken in planted))
    return folder


def command(*arguments, code=0):
    result = CliRunner().invoke(app, ["judge", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def judgments(folder):
    return list(jsonl.read_records(folder / "judgments.jsonl", Judgment))


@pytest.mark.slow
def test_a_runs_folder_is_all_it_needs_and_the_second_time_nobody_is_asked(run, planted):
    with ModelServerThread(build_world_handlers()) as server:
        first = command(run, "--judge", server.base_url, "--no-price")
        bill = server.bill(keys=False)["totals"]["paid"]
        again = command(run, "--judge", server.base_url, "--no-price")
        assert server.bill(keys=False)["totals"]["paid"] == bill
    assert f"{len(planted)} received = {len(planted)} written" in first.output
    assert "without any label" not in first.output
    assert "done before" in again.output
    by_id = {judgment.response_id: judgment for judgment in judgments(run)}
    assert all(by_id[broken.response.id].verdict == broken.verdict for _, broken in planted)
    manifest = read_manifest(run / "judgments.jsonl.manifest.json")
    assert manifest.calls["replies"] == bill
    assert manifest.settings["guidelines"].keys() >= {"judge_alignment", "judge_closure"}


@pytest.mark.slow
def test_what_answers_no_known_question_is_quarantined_and_told(run, planted):
    stray = Response("stray", "nowhere", planted[0][1].response.trace, "x")
    jsonl.write_records(run / "responses.jsonl", [*(broken.response for _, broken in planted), stray])
    with ModelServerThread(build_world_handlers()) as server:
        result = command(run, "--judge", server.base_url, "--no-price", code=3)
    assert "no such question 1" in result.output
    line = json.loads((run / "judgments.jsonl.quarantined.jsonl").read_text())
    assert "'stray'" in line["id"]
    assert "nowhere" in line["error"]


@pytest.mark.slow
def test_reference_free_judges_are_shown_no_reference(run, planted):
    with ModelServerThread(build_world_handlers()) as server:
        command(run, "--judge", server.base_url, "--no-price", "--reference-free")
    for judgment in judgments(run):
        assert set(judgment.unjudged) == {Criterion.COMPLETENESS, Criterion.CORRECTNESS}
        assert judgment.verdict.failure_class in (None, "path_deviation", "closure_failure")


@pytest.mark.slow
def test_a_dry_run_counts_the_calls_and_sends_nothing(run, planted):
    with ModelServerThread(build_world_handlers()) as server:
        result = command(run, "--judge", server.base_url, "--no-price", "--dry-run")
        assert server.bill(keys=False)["totals"]["paid"] == 0
        command(run, "--judge", server.base_url, "--no-price")
        paid = server.bill(keys=False)["totals"]["paid"]
    assert f"{paid:,} calls" in result.output
    assert not (run / "x").exists()


RAGAS = {
    "user_input": "Where was the director of Blue Harbour born?",
    "retrieved_contexts": ["Blue Harbour was directed by Ana Ruiz.", "Ana Ruiz was born in Arica."],
    "response": "1. Blue Harbour was directed by Ana Ruiz.\n2. She was born in Arica.\nFinal answer: Arica",
    "reference": "Arica",
}


def test_another_tools_file_is_taken_apart(tmp_path):
    path = tmp_path / "ragas.jsonl"
    path.write_text(json.dumps(RAGAS) + "\n")
    sources = find_judge_inputs(path, tmp_path / "run")
    (pair,) = (record.value for record in ResponseTasks(sources.instances, sources.responses))
    assert pair.instance.question == RAGAS["user_input"]
    assert pair.response.answer == "Arica"
    assert find_judge_inputs(path, tmp_path / "run") == sources
    assert [record.value for record in scan_instances(sources.instances)] == [pair.instance]


def test_responses_of_another_tools_file_are_read_once(tmp_path):
    (tmp_path / "ragas.jsonl").write_text(json.dumps(RAGAS) + "\n")
    (tmp_path / "reader.py").write_text(
        "from pathlib import Path\n"
        "from eclose.reading.response import read_response\n\n"
        "def read(response, question):\n"
        "    with Path(__file__).with_name('readings').open('a') as file:\n"
        "        file.write(response)\n"
        "    return read_response(response, question)\n"
    )
    settings = ImportSettings(reader=f"{tmp_path / 'reader.py'}:read")
    find_judge_inputs(tmp_path / "ragas.jsonl", tmp_path / "run", settings=settings)
    assert (tmp_path / "readings").read_text() == RAGAS["response"]


def write_rows(path, planted):
    """Write questions and responses side by side, as another tool does."""
    rows = [
        {
            "user_input": instance.question,
            "retrieved_contexts": [passage.text for passage in instance.evidence],
            "response": "\n".join(
                [f"{number}. {step.text}" for number, step in enumerate(broken.response.trace.steps, 1)]
                + [f"Final answer: {broken.response.answer}"]
            ),
            "reference": instance.reference_answer,
        }
        for instance, broken in planted
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.mark.slow
def test_dry_run_over_another_tools_file_writes_nothing(tmp_path, planted):
    write_rows(tmp_path / "rows.jsonl", planted[:2])
    words = (tmp_path / "rows.jsonl", "--judge", "openai/gpt-x", "--no-price", "--dry-run", "--out")
    assert "openai/gpt-x: " in command(*words, tmp_path / "run").output
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    # Files of an earlier run stay as they are, and the forecast says that the run would be refused.
    find_judge_inputs(tmp_path / "rows.jsonl", tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    write_rows(tmp_path / "rows.jsonl", planted[:3])
    refused = CliRunner().invoke(app, ["judge", *map(str, words), str(tmp_path / "run")])
    assert "rows.jsonl has changed" in str(refused.exception)
    command(*words, tmp_path / "run", "--force")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


PLAIN = {"question": "How tall is it?", "contexts": ["It is 3 m tall."], "answer": "It is 3 m tall."}


@pytest.mark.slow
def test_missing_traces_and_long_passages_are_named_before_a_call_is_paid(tmp_path):
    long = {**PLAIN, "contexts": ["It is 3 m tall. " * 4_000]}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (PLAIN, long)), "utf-8")
    words = ["judge", str(tmp_path / "rows.jsonl"), "--judge", "http://127.0.0.1:9/v1/", "--no-price", "--out"]
    # The second run fails at its first call: nothing listens there.
    for out, dry in ((tmp_path / "a", ["--dry-run"]), (tmp_path / "b", [])):
        output = CliRunner().invoke(app, [*words, str(out), *dry]).output
        assert "2 of 2 responses (100.0 %) have no trace" in output
        assert 'end with "Final answer: ..."' in output
        assert "about 8,000 tokens, and two calls a response read all of them" in output


def test_python_warns_of_missing_traces_before_a_call_is_paid(tmp_path):
    with pytest.warns(UserWarning, match="1 of 1 response .* no trace"), pytest.raises(SettingError, match="connect"):
        eclose.evaluate([PLAIN], judge="http://127.0.0.1:9/v1", calls=CallSettings(unpriced=True))


@pytest.mark.slow
def test_forced_run_over_a_file_that_grew_pays_for_the_new_responses_alone(tmp_path, planted):
    rows, folder = tmp_path / "rows.jsonl", tmp_path / "run"
    write_rows(rows, planted[:2])
    with ModelServerThread(build_world_handlers()) as server:
        words = (rows, "--judge", server.base_url, "--no-price", "--out", folder)
        command(*words)
        before = server.bill(keys=False)["totals"]["paid"]
        write_rows(rows, planted[:4])
        refused = CliRunner().invoke(app, ["judge", *map(str, words)])
        assert "rows.jsonl has changed" in str(refused.exception)
        assert "--force" in str(refused.exception)
        command(*words, "--force")
        bill = server.bill(keys=False)["totals"]
    assert len(judgments(folder)) == 4
    assert bill["distinct"] == bill["paid"]
    assert before < bill["paid"] < 3 * before
    assert len(read_judged_cases(folder).cases) == 4


@pytest.mark.slow
def test_forced_run_over_files_of_responses_replaces_their_copies(run, tmp_path, planted):
    words = (run / "responses.jsonl", "--instances", run / "instances.jsonl", "--no-price", "--out", tmp_path / "out")
    with ModelServerThread(build_world_handlers()) as server:
        command(*words, "--judge", server.base_url)
        jsonl.write_records(run / "responses.jsonl", (broken.response for _, broken in planted[:3]))
        command(*words, "--judge", server.base_url, "--force")
    assert len(read_judged_cases(tmp_path / "out").cases) == 3


def test_responses_alone_do_not_say_what_they_answer(run, tmp_path):
    with pytest.raises(SettingError, match="the questions of these responses are missing"):
        find_judge_inputs(run / "responses.jsonl", tmp_path)
    inputs = find_judge_inputs(run / "responses.jsonl", tmp_path, run / "instances.jsonl")
    assert inputs == JudgeInputFiles(run / "instances.jsonl", run / "responses.jsonl")
    (run / "instances.jsonl").unlink()
    with pytest.raises(UserError):
        find_judge_inputs(run, tmp_path)


HOTPOT = {
    "_id": "1",
    "question": "Where was the director of Blue Harbour born?",
    "context": [["Blue Harbour", ["Blue Harbour was directed by Ana Ruiz.", "Ana Ruiz was born in Arica."]]],
    "answer": "Arica",
    "type": "bridge",
    "supporting_facts": [["Blue Harbour", 0]],
}


def test_questions_without_a_response_are_no_run_to_judge(tmp_path):
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps([HOTPOT]))
    for _ in range(2):  # the second time the files of the first are there
        with pytest.raises(UserError, match="no response to judge"):
            find_judge_inputs(path, tmp_path / "run")
    (tmp_path / "run" / "responses.jsonl").write_text("")
    with pytest.raises(UserError, match="holds no response"):
        find_judge_inputs(tmp_path / "run", tmp_path / "run")


@pytest.mark.slow
def test_files_from_two_places_make_a_folder_that_can_be_diagnosed(run, tmp_path):
    questions, responses = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    (run / "instances.jsonl").rename(questions)
    (run / "responses.jsonl").rename(responses)
    out = tmp_path / "judged"
    with ModelServerThread(build_world_handlers()) as server:
        command(responses, "--instances", questions, "--judge", server.base_url, "--no-price", "--out", out)
    assert (out / "instances.jsonl").read_bytes() == questions.read_bytes()
    assert (out / "responses.jsonl").read_bytes() == responses.read_bytes()
    result = CliRunner().invoke(app, ["diagnose", str(out)])
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_generated_responses_are_judged_in_their_folder(tmp_path):
    questions = [item.instance for item in islice(make_world_items("short-easy", 5), 3)]
    jsonl.write_records(tmp_path / "q.jsonl", questions)
    with ModelServerThread(build_world_handlers()) as server:
        result = CliRunner().invoke(
            app,
            [
                "generate",
                str(tmp_path / "q.jsonl"),
                "--model",
                server.base_url,
                "--no-price",
                "-o",
                str(tmp_path / "r"),
            ],
        )
        assert result.exit_code == 0, result.output
        command(tmp_path / "r", "--judge", server.base_url, "--no-price")
    assert all(judgment.verdict.reliable for judgment in judgments(tmp_path / "r"))
    assert list(jsonl.read_records(tmp_path / "r" / "instances.jsonl", Instance)) == sorted(
        questions, key=lambda one: one.id
    )


def test_a_judge_of_the_generators_family_is_told(tmp_path, planted):
    sources = [ResponseSource("openai/gpt-4o"), ResponseSource("qwen/qwen3-8b"), None]
    answers = [replace(broken.response, source=source) for (_, broken), source in zip(planted, sources, strict=False)]
    jsonl.write_records(tmp_path / "r.jsonl", answers)
    files = JudgeInputFiles(tmp_path / "i.jsonl", tmp_path / "r.jsonl")
    assert find_same_family_models(files, "azure/gpt-5-mini") == ["openai/gpt-4o"]
    assert find_same_family_models(files, "anthropic/claude-x") == []


@pytest.mark.slow
def test_the_command_tells_of_a_judge_that_judges_its_own(run, planted):
    jsonl.write_records(
        run / "responses.jsonl", (replace(broken.response, source=ResponseSource("world-1")) for _, broken in planted)
    )
    with ModelServerThread(build_world_handlers()) as server:
        result = command(run, "--judge", "world", "--base-url", server.base_url, "--no-price")
    assert "is of the model family of world-1, which it judges" in result.output


CAPITALS = [
    Instance("1", "What is the capital of France?", (Passage("0", "", "Paris is in France."),), "Paris", benchmark="a"),
    Instance("1", "What is the capital of Peru?", (Passage("0", "", "Lima is in Peru."),), "Lima", benchmark="b"),
]


def test_two_questions_with_one_id_are_refused_before_anything_is_asked(run, planted):
    jsonl.write_records(
        run / "instances.jsonl", [*{instance.id: instance for instance, _ in planted}.values(), *CAPITALS]
    )
    jsonl.write_records(run / "responses.jsonl", [Response("r", "1", planted[0][1].response.trace, "Lima")])
    with ModelServerThread(build_world_handlers()) as server:
        with pytest.raises(RecordError, match=r"the id '1' was used in line 5 for other content.*give every question"):
            asyncio.run(
                judge_responses(find_judge_inputs(run, run), server.base_url, run, calls=CallSettings(unpriced=True))
            )
        assert server.bill(keys=False)["totals"]["paid"] == 0
    assert not (run / "judgments.jsonl").exists()


@pytest.mark.slow
def test_the_same_question_twice_and_lines_that_cannot_be_read_are_counted_and_told(run, planted):
    again = json.dumps(json.loads((run / "instances.jsonl").read_text().splitlines()[0]), indent=None)
    with (run / "instances.jsonl").open("a") as file:
        file.write(f"{again}\n{{\n")
    with ModelServerThread(build_world_handlers()) as server:
        result = command(run, "--judge", server.base_url, "--no-price", code=3)
    summary = (
        "questions of instances.jsonl: 6 received = 4 accepted + 1 rejected (duplicate 1) + 1 quarantined (not JSON 1)"
    )
    assert summary in result.output
    funnel = read_manifest(run / "judgments.jsonl.manifest.json").funnel
    assert funnel["questions of instances.jsonl"] == RecordCounts(6, 4, {"duplicate": 1}, {"not JSON": 1})
    assert funnel["judge"].accepted == len(planted)


def test_records_that_another_tools_file_loses_are_counted_and_told(tmp_path):
    path = tmp_path / "ragas.jsonl"
    path.write_text(json.dumps(RAGAS) + "\n{\n" + json.dumps({**RAGAS, "response": ""}) + "\n")
    with ModelServerThread(build_world_handlers()) as server:
        result = command(path, "--judge", server.base_url, "--no-price", "--out", tmp_path / "run", code=3)
    lost = "3 received = 1 accepted + 1 rejected (no response 1) + 1 quarantined (not JSON 1)"
    assert f"responses in ragas.jsonl: {lost}" in result.output
    read = read_judged_cases(tmp_path / "run")
    assert read.checked
    # A system that gave no response has not given a reliable one.
    assert read.left_out == (("ragas.jsonl line 2", "it cannot be read"), ("ragas.jsonl line 3", "no response"))
    assert read.rejected["responses.jsonl (judge responses)"] == {"no response": 1, "not JSON": 1}


def judged_while(run, change):
    """Judge a run while another program changes its files, at the tenth call."""
    world, calls = build_world_handlers(), 0

    class Meanwhile(HandlerRegistry):
        def handler(self, schema_name):
            nonlocal calls
            calls += 1
            if calls == 10:
                change()
            return world.handler(schema_name)

    with ModelServerThread(Meanwhile()) as server:
        sources = find_judge_inputs(run, run)
        return asyncio.run(judge_responses(sources, server.base_url, run, calls=CallSettings(unpriced=True)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["instances.jsonl", "responses.jsonl"])
def test_an_input_that_is_replaced_during_the_run_is_refused_and_judged_when_it_is_back(run, planted, name):
    before = (run / name).read_bytes()
    replaced = before.replace(b" the ", b" no! ")
    assert replaced != before  # and every line begins where it did
    with pytest.raises(UserError, match=rf"{name}: was changed .* while it was in use"):
        judged_while(run, lambda: (run / name).write_bytes(replaced))
    assert not (run / "judgments.jsonl").exists()
    assert not (run / "judgments.jsonl.manifest.json").exists()
    (run / name).write_bytes(before)
    with ModelServerThread(build_world_handlers()) as server:
        command(run, "--judge", server.base_url, "--no-price")
    assert read_judged_cases(run).stale == ()
    by_id = {judgment.response_id: judgment for judgment in judgments(run)}
    assert all(by_id[broken.response.id].verdict == broken.verdict for _, broken in planted)


@pytest.mark.slow
def test_a_run_goes_on_under_another_path_to_its_input(run, planted, monkeypatch):
    (run / "responses.jsonl").write_bytes((run / "responses.jsonl").read_bytes() + b"{\n")
    with ModelServerThread(build_world_handlers()) as server:
        monkeypatch.chdir(run)
        command(".", "--judge", server.base_url, "--no-price", code=3)
        bill = server.bill(keys=False)["totals"]["paid"]
        (run / "judgments.jsonl.manifest.json").unlink()
        first = (run / "judgments.jsonl").read_bytes(), (run / "judgments.jsonl.quarantined.jsonl").read_bytes()
        command(run, "--judge", server.base_url, "--no-price", code=3)
        assert server.bill(keys=False)["totals"]["paid"] == bill
    again = (run / "judgments.jsonl").read_bytes(), (run / "judgments.jsonl.quarantined.jsonl").read_bytes()
    assert again == first
    assert str(run) not in first[1].decode()


@pytest.mark.slow
def test_an_interrupted_run_says_how_far_it_came(run, planted):
    count = len(planted)
    with pytest.raises(UserError, match=rf"none of {count} responses is judged.*eclose judge"):
        read_judged_cases(run)
    with ModelServerThread(build_world_handlers()) as server:
        command(run, "--judge", server.base_url, "--no-price")
    (run / "judgments.jsonl").unlink()
    with sqlite3.connect(run / "ledger.sqlite") as ledger:
        ledger.execute("DELETE FROM ledger_outcomes WHERE seq > 5")
    with pytest.raises(UserError, match=rf"5 of {count} responses are judged.*Run the same judge command again"):
        read_judged_cases(run)
    # A diagnosis counts what is there, and the rest as responses without a judgment.
    notices: list[str] = []
    results = eclose.diagnose(run, notify=notices.append)
    assert f"UNFINISHED: {run}: 5 of {count} responses are judged" in results.notices[0]
    assert results.notices[0] == notices[0]
    assert len(results) == 5
    assert sum(map(len, [results.context.left_out])) == count - 5
    assert results.folder == run
    assert not (run / "judgments.jsonl").exists()
    output = CliRunner().invoke(app, ["diagnose", str(run)]).output
    assert f"5 of {count} responses are judged" in output
    assert (run / "report" / "report.html").is_file()
    output = CliRunner().invoke(app, ["failures", str(run)]).output
    assert f"UNFINISHED: {run}: 5 of {count} responses are judged" in output
    assert " of 5 judged responses " in output
    for part in run.glob("ledger.sqlite*"):
        part.unlink()
    (run / "ledger.sqlite").write_bytes(b"no ledger")
    with pytest.raises(UserError, match=rf"none of {count}"):
        read_judged_cases(run)


def test_explanations_in_a_grader_log_that_establish_another_score_are_not_closed(tmp_path):
    rows = [
        ("right", "The reference is Ada Rowe. The answer names her. So it is correct.", "correct"),
        ("other", "The reference is Ada Rowe. The answer names Eve. So it is wrong.", "correct"),
        ("number", "The reference is Ada Rowe. The answer names Eve. So the score is 0.", 0),
        ("silent", None, "correct"),
    ]
    keys = ("id", "why", "score")
    log = [
        dict(zip(keys, row, strict=True)) | {"rubric": "Which score?", "graded": "The answer is Eve."} for row in rows
    ]
    (tmp_path / "grades.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))

    def judge_closure(request):
        material = json.loads(request.messages[-1]["content"])
        words = material["steps"][-1]["text"].rstrip(".").split()
        return ScriptedReply({"reason": "r", "established": words[-1], "closed": words[-1] == material["answer"]})

    def judge_soundness(request):
        steps = json.loads(request.messages[-1]["content"])["steps"]
        step = {"reason": "r", "verdict": "L2", "support": None}
        return ScriptedReply({"steps": {str(entry["id"]): step for entry in steps}})

    sufficiency = {"reason": "r", "missing": None, "sufficient": True, "answer": None}
    handlers = HandlerRegistry()
    handlers.register("judge_closure", judge_closure)
    handlers.register("judge_soundness", judge_soundness)
    handlers.register("judge_alignment", lambda _: ScriptedReply({"reason": "r", "pursued": "q", "aligned": True}))
    handlers.register("judge_sufficiency", lambda _: ScriptedReply(sufficiency))
    fields = "id=id,question=rubric,documents=graded,trace=why,answer=score"
    with ModelServerThread(handlers) as server:
        options = ("--judge", server.base_url, "--no-price", "--reference-free", "--out", tmp_path / "run")
        command(tmp_path / "grades.jsonl", "--map", fields, *options, code=3)
    closed = {judgment.response_id.split("-")[0]: judgment.closed for judgment in judgments(tmp_path / "run")}
    assert closed == {"right": True, "other": False, "number": True, "silent": None}
