"""Logs of chats and plain answers are judged from the command line and from Python alike, with the same files."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from typer.testing import CliRunner

import eclose
from eclose.cli.main import app
from eclose.errors import EcloseError
from eclose.files.jsonl import read_records, write_records
from eclose.values.instance import Instance
from eclose.values.judgment import Judgment
from eclose.values.response import Response
from eclose_world.faulty.broken_responses import FAILURE_PLANS, FailurePlan, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from tests.generating import recipe

pytestmark = pytest.mark.slow

FREE = eclose.CallSettings(unpriced=True)


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if isinstance(result.exception, EcloseError):
        # ``main`` prints these and exits with 2.
        assert code == 2, result.exception
        return str(result.exception)
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def server():
    with ModelServerThread(build_world_handlers()) as thread:
        yield thread.base_url


@pytest.fixture(scope="module")
def cases():
    """Questions with a response each, of which half are broken."""
    plans = (FailurePlan(), *FAILURE_PLANS[:3])
    items = list(islice(make_world_items("short-easy", 3), 8))
    planted = [(item.instance, break_response(item, plans[i % 4], "planted")) for i, item in enumerate(items)]
    return [(instance, broken.response) for instance, broken in planted if broken is not None]


def write_lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def chat_record(instance, response):
    documents = [{"title": passage.title, "text": passage.text} for passage in instance.evidence]
    return {
        "messages": [
            {"role": "system", "content": "Answer from the documents."},
            {"role": "user", "content": instance.question},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]},
            {"role": "tool", "tool_call_id": "c", "content": json.dumps(documents)},
            {"role": "assistant", "content": f"{response.trace.numbered}Final answer: {response.answer}"},
        ],
        "reference": instance.reference_answer,
    }


def labels(folder):
    """Verdicts by question and trace."""
    questions = {instance.id: instance.question for instance in read_records(folder / "instances.jsonl", Instance)}
    responses = {response.id: response for response in read_records(folder / "responses.jsonl", Response)}
    judged = {}
    for judgment in read_records(folder / "judgments.jsonl", Judgment):
        response = responses[judgment.response_id]
        judged[questions[response.instance_id], response.trace.texts] = judgment.verdict
    return judged


def judged_files(folder):
    names = ("instances.jsonl", "responses.jsonl", "judgments.jsonl")
    return {name: (folder / name).read_bytes() for name in names}


def test_a_log_of_chats_is_judged_as_the_run_it_came_from(cases, server, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_records(run / "instances.jsonl", [instance for instance, _ in cases])
    write_records(run / "responses.jsonl", [response for _, response in cases])
    command("judge", run, "--judge", server, "--no-price")
    log = write_lines(tmp_path / "chat" / "log.jsonl", [chat_record(*case) for case in cases])
    command("judge", log, "--judge", server, "--no-price", *recipe(tmp_path, model="m1", dataset="tickets"))
    assert labels(log.parent) == labels(run)
    assert len(labels(run)) == len(cases)
    results = eclose.diagnose(log.parent)
    assert {(case.instance.benchmark, case.response.source.model) for case in results} == {("tickets", "m1")}


def test_python_and_the_command_line_write_the_same_bytes(cases, server, tmp_path):
    records = [
        {
            "in": {"q": instance.question, "gold": instance.reference_answer},
            "hits": [{"title": passage.title, "body": passage.text} for passage in instance.evidence],
            "out": [" ".join(response.trace.texts)],
        }
        for instance, response in cases
    ]
    log = write_lines(tmp_path / "log.jsonl", records)
    paths = {"question": "in.q", "documents": "hits", "answer": "out[0]", "reference": "in.gold"}
    imported = eclose.ImportSettings(columns=paths, model="m1", dataset="tickets", trace="prose")
    with pytest.warns(UserWarning, match="the answer is not told apart from its explanation"):
        eclose.evaluate(log, judge=server, out=tmp_path / "python", calls=FREE, imported=imported)
    words = ",".join(f"{name}={path}" for name, path in paths.items())
    arguments = ("--map", words, "--trace", "prose", *recipe(tmp_path, model="m1", dataset="tickets"))
    # The judge of the world reads no sentences as an answer, so closure and correctness have no label.
    output = command("judge", log, "--judge", server, "--no-price", "--out", tmp_path / "cli", *arguments, code=3)
    assert "no trace" not in output
    # How they were read stands before what was asked and paid.
    assert output.startswith(f"How {len(cases)} responses were read; eclose data read {log} --rule RULE shows them:")
    assert "not told apart from its explanation" in output
    assert judged_files(tmp_path / "cli") == judged_files(tmp_path / "python")
    # The sentence that gives the answer and the one that repeats the question are no steps.
    for response, (_, marked) in zip(read_records(tmp_path / "cli" / "responses.jsonl", Response), cases, strict=True):
        assert set(response.trace.texts) <= set(marked.trace.texts)
        assert response.trace.texts
    assert "are sentences of the reply itself" in command("diagnose", tmp_path / "cli")


def test_answers_without_a_trace_are_judged_for_what_can_be_judged(cases, server, tmp_path):
    documents = [[{"title": p.title, "text": p.text} for p in instance.evidence] for instance, _ in cases]
    records = [
        {"question": instance.question, "documents": passages, "answer": response.answer, "reference": "x"}
        for (instance, response), passages in zip(cases, documents, strict=True)
    ]
    log = write_lines(tmp_path / "run" / "log.jsonl", records)
    total = len(cases)
    # Too many labels are missing, and the exit code says so.
    output = command("judge", log, "--judge", server, "--no-price", code=3)
    banner = f"{total} of {total} responses (100.0 %) have no trace, so only their evidence and their answer are judged"
    assert output.count(banner) == 1
    assert '"Final answer: ..."' in output
    for judgment in read_records(log.with_name("judgments.jsonl"), Judgment):
        assert dict(judgment.unjudged) == dict.fromkeys("LACK", "there is no trace")
        assert judgment.correct is not None
        assert judgment.evidence_sufficient is not None
    results = eclose.diagnose(log.parent)
    assert results.diagnosis.without_trace == total
    for name in ("LSR", "A", "C", "TRR", "LGG"):
        rate = results.rates[name]
        assert (rate.value, rate.unjudged, rate.bounds) == (None, total, (0.0, 1.0)), name
    assert (results.rates["Acc"].n, results.rates["Acc"].unjudged) == (total, 0)
    assert banner in command("diagnose", log.parent)
    report = json.loads((log.parent / "report" / "diagnosis.json").read_text())
    assert (report["without_trace"], report["prose_traces"]) == (total, 0)
    page = (log.parent / "report" / "report.html").read_text()
    assert banner in " ".join(page.split())


@pytest.mark.parametrize("settings", [{"trace": "marked"}, {"model": "m"}, {"map": "question=a,documents=b"}])
def test_options_that_do_nothing_for_a_run_are_refused(settings, cases, server, tmp_path):
    write_records(tmp_path / "instances.jsonl", [instance for instance, _ in cases])
    write_records(tmp_path / "responses.jsonl", [response for _, response in cases])
    output = command("judge", tmp_path, "--judge", server, "--no-price", *recipe(tmp_path, **settings), code=2)
    assert "do nothing" in output


def test_data_commands_take_the_options(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [{"q": "Who?", "d": ["a"], "r": "Ada built it. It opened."}, {"q": 1}])
    paths = ("--map", "question=q", "--map", "documents=d,answer=r")
    output = command("data", "validate", log, *paths, code=2)
    assert "line 2: --map documents=d: the record has no key 'd'. Keys there: 'q'" in output
    assert "2 received = 1 accepted + 0 rejected + 1 quarantined" in output
    instances, responses = tmp_path / "i.jsonl", tmp_path / "r.jsonl"
    arguments = ("--out", instances, "--responses", responses, "--trace", "prose", *paths)
    command("data", "convert", log, *arguments, *recipe(tmp_path, dataset="d1"), code=3)
    assert [instance.benchmark for instance in read_records(instances, Instance)] == ["d1"]
    assert [len(response.trace) for response in read_records(responses, Response)] == [2]
    assert "d1" in command("data", "stats", instances)
    command("data", "convert", log, *arguments, *recipe(tmp_path, dataset="d1", model="m2"), code=2)
