"""Closure of graders: explanations that establish another score than the recorded one are found, and all is counted."""

import asyncio
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import eclose
from eclose.api.judging import forecast_judge_log
from eclose.calls.ledger_tools import find_ledger_calls
from eclose.cli.main import app
from eclose.core.judgment import Criterion, Judgment
from eclose.demo import DemoRun
from eclose.judging.grader_closure import GraderClosure
from eclose.store.records.jsonl import read_records, write_records
from eclose.world.server.app import ModelServerThread
from eclose.world.server.chat_requests import HandlerRegistry, ScriptedReply

pytestmark = pytest.mark.slow
FREE = eclose.CallSettings(unpriced=True)


def judge_closure(request):
    """Reply that steps establish an answer where the last step ends in it; the world reads no graders."""
    material = json.loads(request.messages[-1]["content"])
    words = material["steps"][-1]["text"].rstrip(".")
    closed = words.lower().endswith(material["answer"].lower())
    return ScriptedReply({"reason": "r", "established": words.split()[-1], "closed": closed})


@pytest.fixture(scope="module")
def server():
    handlers = HandlerRegistry()
    handlers.register("judge_closure", judge_closure)
    with ModelServerThread(handlers) as thread:
        yield thread.base_url


def write_log(path, samples):
    """Write an Inspect log whose scorer explains itself by the steps of world responses."""
    log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSample, EvalSpec
    from inspect_ai.scorer import Score

    spec = EvalSpec(
        created="2026-11-17T10:00:00+00:00",
        task="t",
        dataset=EvalDataset(sample_ids=[name for name, *_ in samples]),
        model="m",
        config=EvalConfig(),
    )
    rows = [
        EvalSample(
            id=name,
            epoch=1,
            input=question,
            target="",
            scores={} if value is None else {"grader": Score(value=value, explanation=explanation)},
        )
        for name, question, value, explanation in samples
    ]
    log.write_eval_log(log.EvalLog(eval=spec, status="success", samples=rows), str(path))


def test_explanations_of_an_inspect_log(tmp_path, server):
    samples = [
        ("right", "Who built it?", "C", "The reference is Ada Rowe. The answer names her. So it is correct."),
        ("wrong", "Who built it?", "I", "The reference is Ada Rowe. The answer names Eve. So it is incorrect."),
        ("several", "Who built it?", {"style": 1, "fact": 0}, "It reads well. The fact is missing. So the score is 0."),
        # The recorded score contradicts its explanation; one has no explanation, one no score.
        ("other", "Who built it?", "C", "The reference is Ada Rowe. The answer names Eve. So it is wrong."),
        ("silent", "Who built it?", "C", None),
        ("none", "Who built it?", None, None),
    ]
    write_log(tmp_path / "log.json", samples)
    result = eclose.judge_log(tmp_path / "log.json", judge=server, out=tmp_path / "out", calls=FREE)
    rows = {row.id: row for row in read_records(tmp_path / "out/grader-closure.jsonl", GraderClosure)}
    closed = {id_.replace("sample ", "").replace(" epoch 1", ""): row.closed for id_, row in rows.items()}
    assert closed == {
        "'right' grader": True,
        "'wrong' grader": True,
        "'several' grader.style": False,
        "'several' grader.fact": True,
        "'other' grader": False,
    }
    assert {row.score for row in rows.values()} == {"correct", "incorrect", "1", "0"}
    assert result.manifest.counts.rejected == {"read: no explanation": 1, "read: no score": 1}
    assert result.manifest.counts.conserved
    output = CliRunner().invoke(
        app,
        [
            *("judge-log", str(tmp_path / "log.json"), "--judge", server),
            *("--out", str(tmp_path / "command"), "--no-price"),
        ],
    )
    assert output.exit_code == 0, output.output
    assert "3 of 5 explanations establish their score" in output.output
    assert "recorded “correct”, established “wrong”" in output.output
    names = ("out", "command")
    assert len({(tmp_path / name / "grader-closure.jsonl").read_bytes() for name in names}) == 1


def test_a_dry_run_forecasts_the_calls_and_sends_none(tmp_path, server):
    samples = [
        ("right", "Who built it?", "C", "The answer names her. So it is correct."),
        # The same request as the first is answered from the ledger; a score without an explanation is not judged.
        ("again", "Who built it?", "C", "The answer names her. So it is correct."),
        ("wrong", "Who built it?", "I", "The answer names Eve. So it is incorrect."),
        ("silent", "Who built it?", "C", None),
    ]
    write_log(tmp_path / "log.json", samples)
    arguments = ["judge-log", str(tmp_path / "log.json"), "--judge", server, "--out", str(tmp_path / "out")]
    output = CliRunner().invoke(app, [*arguments, "--no-price", "--dry-run"])
    assert output.exit_code == 0, output.output
    assert ": 2 calls, about " in output.output
    assert not (tmp_path / "out").exists()
    forecast = forecast_judge_log(tmp_path / "log.json", judge=server, calls=FREE)
    eclose.judge_log(tmp_path / "log.json", judge=server, out=tmp_path / "out", calls=FREE)
    calls = list(find_ledger_calls(tmp_path / "out/ledger.sqlite"))
    assert forecast.calls == len(calls) == 2
    used = sum(call.stored.settled.usage[0] for call in calls)
    assert used <= forecast.most_prompt_tokens


def test_asyncio_stays_as_it_is(tmp_path, server):
    """Inspect replaces ``asyncio.run`` when it is called inside a running loop, and loops stay open from then on."""
    write_log(tmp_path / "log.json", [("right", "Who built it?", "C", "The answer names her. So it is correct.")])
    before = asyncio.run
    eclose.judge_log(tmp_path / "log.json", judge=server, out=tmp_path / "out", calls=FREE)
    assert asyncio.run is before


def test_explanations_of_our_own_judgments(tmp_path, server):
    run = tmp_path / "run"
    DemoRun(run, 6).write()
    judgments = [
        replace(judgment, reasons=dict.fromkeys(Criterion, "The last step names it. So yes."))
        for judgment in read_records(run / "judgments.jsonl", Judgment)
    ]
    write_records(run / "judgments.jsonl", judgments)
    result = eclose.judge_log(run, judge=server, out=tmp_path / "out", calls=FREE, allow_stale=True)
    counts = result.manifest.counts
    # Four labels of twelve responses have a reason each.
    assert counts.received == 4 * 12
    assert counts.conserved
    rows = [json.loads(line) for line in (tmp_path / "out/grader-closure.jsonl").read_text().splitlines()]
    assert len(rows) == counts.accepted > 40
    assert all(row["closed"] is (row["score"] == "yes") for row in rows)


def test_a_file_that_is_no_log(tmp_path, server):
    (tmp_path / "log.json").write_text("[]")
    with pytest.raises(eclose.UserError):
        eclose.judge_log(tmp_path / "log.json", judge=server, out=tmp_path / "out", calls=FREE)
