"""Runs whose requests go into batches first: the same files as without, and no request is paid twice."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest
from typer.testing import CliRunner

from eclose.calls import run as calls_run
from eclose.calls.batches.run import BatchSettings
from eclose.calls.client import CallSettings
from eclose.calls.resolve import find_model_ref
from eclose.calls.run import BatchesUnderWay, RunOptions
from eclose.cli.main import app
from eclose.errors import Resumable, SettingError
from eclose.files import jsonl
from eclose.judging.inputs import find_judge_inputs
from eclose.judging.run import judge_responses
from eclose.judging.settings import JudgeSettings
from eclose_world.faulty.broken_responses import FAILURE_PLANS, break_response
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.batches import BatchBehaviour
from tests.generating import FREE, generate, paid, questions, recipe

QUICK = BatchSettings(poll=0.0, first_wait=0.0)


@pytest.fixture
def instances(tmp_path):
    questions(tmp_path / "instances.jsonl")
    return tmp_path / "instances.jsonl"


@pytest.mark.slow
def test_responses_are_those_of_single_calls_and_all_of_them_come_from_a_batch(instances, tmp_path):
    lines = []
    with ModelServerThread(build_world_handlers()) as server:
        generate(instances, server, tmp_path / "single")
        generate(instances, server, tmp_path / "batch", batch=QUICK, notify=lines.append)
        again = generate(instances, server, tmp_path / "batch", batch=QUICK)
        assert server.bill()["totals"]["received"] == paid(server) == 24
    assert again.again
    assert [line.split(": ", 1)[1] for line in lines] == [
        "12 requests sent in 1 batches, 0 in earlier ones; waiting for the replies",
        "12 requests answered in batches, 0 left for single calls",
    ]
    single, batch = ((tmp_path / name / "responses.jsonl").read_bytes() for name in ("single", "batch"))
    assert single == batch


def test_requests_that_a_batch_leaves_open_are_sent_as_single_calls(instances, tmp_path):
    lines = []
    with ModelServerThread(build_world_handlers(), batches=BatchBehaviour(stop_after=5)) as server:
        result = generate(instances, server, tmp_path / "run", batch=QUICK, notify=lines.append)
        assert paid(server) == 12
    assert "5 requests answered in batches, 7 left for single calls" in lines[1]
    assert result.manifest.counts.accepted == 12


@pytest.mark.slow
def test_the_budget_counts_batches_at_their_price(instances, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("127.0.0.1/world: {input: 1, output: 2}\n")
    with ModelServerThread(build_world_handlers()) as server:
        costs = [
            generate(
                instances, server, tmp_path / name, calls=CallSettings(prices=prices, budget=5), batch=batch
            ).manifest.calls["cost"]
            for name, batch in (("single", None), ("batch", QUICK))
        ]
    assert costs[1] == pytest.approx(costs[0] / 2, rel=0.01)


@pytest.mark.slow
def test_every_question_to_a_judge_takes_a_round(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    items = list(islice(make_world_items("short-easy", 3), 4))
    jsonl.write_records(run / "instances.jsonl", (item.instance for item in items))
    broken = [break_response(item, plan, "x") for item in items for plan in FAILURE_PLANS[:4]]
    jsonl.write_records(run / "responses.jsonl", (response.response for response in broken if response is not None))
    with ModelServerThread(build_world_handlers()) as server:
        judge = find_model_ref("world", base_url=server.base_url)
        outputs, lines, bills = [], [], []
        for name, batch in (("single", None), ("batch", QUICK)):
            options = RunOptions(batch=batch, ledger=tmp_path / f"{name}.sqlite", force=True, notify=lines.append)
            asyncio.run(judge_responses(find_judge_inputs(run, run), judge, run, JudgeSettings(), FREE, options))
            outputs.append((run / "judgments.jsonl").read_bytes())
            bills.append(server.bill()["totals"]["received"])
    assert bills[1] == 2 * bills[0]
    answered = [int(line.split(": ")[1].split()[0]) for line in lines if "answered" in line]
    assert sum(answered) == bills[0]
    assert all(line.endswith(" 0 left for single calls") for line in lines if "answered" in line)
    assert outputs[0] == outputs[1]


def test_a_ledger_that_is_away_ends_the_run_instead_of_sending_at_full_price(instances, tmp_path, monkeypatch):
    complete, failures = calls_run._CollectingModel.complete, iter(range(6))

    async def away_for_a_while(model, request):
        if next(failures, None) is not None:
            raise Resumable("the database is away.")
        return await complete(model, request)

    monkeypatch.setattr(calls_run._CollectingModel, "complete", away_for_a_while)
    with ModelServerThread(build_world_handlers()) as server:
        with pytest.raises(Resumable, match="away"):
            generate(instances, server, tmp_path / "run", batch=QUICK)
        assert server.bill()["totals"]["received"] == 0


@pytest.mark.slow
def test_the_command_sends_batches(instances, tmp_path):
    with ModelServerThread(build_world_handlers()) as server:
        arguments = [instances, "--model", server.base_url, "--no-price", "--out", tmp_path / "run"]
        result = CliRunner().invoke(app, ["generate", *map(str, arguments), "--batch", *recipe(tmp_path, batch_poll=0)])
    assert result.exit_code == 0, result.output
    assert "12 requests answered in batches, 0 left for single calls" in result.output
    assert "12 received = 12 accepted" in result.output


@pytest.mark.slow
def test_a_run_submits_and_leaves_and_the_same_command_collects(instances, tmp_path):
    leave = BatchSettings(poll=0.0, first_wait=0.0, wait=0.0)
    with ModelServerThread(build_world_handlers(), batches=BatchBehaviour(looks=3)) as server:
        for _ in range(2):
            with pytest.raises(BatchesUnderWay, match="12 requests are in batches that are not finished") as raised:
                generate(instances, server, tmp_path / "run", batch=leave)
            assert raised.value.exit_code == 75
        assert not (tmp_path / "run" / "responses.jsonl").exists()
        result = generate(instances, server, tmp_path / "run", batch=leave)
        assert result.manifest.counts.accepted == 12
        assert server.bill()["totals"]["received"] == paid(server) == 12
        generate(instances, server, tmp_path / "single")
    assert (tmp_path / "run/responses.jsonl").read_bytes() == (tmp_path / "single/responses.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["generate", "screen", "judge", "construct"])
def test_every_command_that_asks_a_model_submits_leaves_and_collects(tmp_path, command):
    run = tmp_path / "run"
    run.mkdir()
    items = list(islice(make_world_items("short-easy", 3), 3))
    jsonl.write_records(run / "instances.jsonl", (item.instance for item in items))
    jsonl.write_records(run / "responses.jsonl", (item.response for item in items))
    outputs = {}
    with ModelServerThread(build_world_handlers()) as server:
        url = server.base_url
        arguments, result = {
            "generate": ([run / "instances.jsonl", "--model", url], "responses.jsonl"),
            "screen": ([run / "instances.jsonl", "--judge", url], "screening.jsonl"),
            "judge": ([run, "--judge", url], "judgments.jsonl"),
            "construct": (
                [run / "instances.jsonl", "--constructor", url, "--verifier", url],
                "families.jsonl",
            ),
        }[command]
        # A family takes a dozen rounds, each of them left once: here it is built without leaving.
        leaving = command != "construct"
        settings = {"batch_wait": 0} if leaving else {"reverify": False}
        shared = ["--no-price", *recipe(tmp_path, batch_poll=0, **settings)]
        for name, flags in (("single", []), ("batch", ["--batch"])):
            words = [command, *map(str, arguments), *shared, "--out", str(tmp_path / name), *flags]
            before, rounds = paid(server), 0
            while isinstance(error := CliRunner().invoke(app, words).exception, BatchesUnderWay):
                rounds += 1
            assert error is None or isinstance(error, SystemExit)
            outputs[name] = (tmp_path / name / result).read_bytes(), paid(server) - before
            assert (rounds > 0) is (name == "batch" and leaving)
    assert outputs["single"] == outputs["batch"]
    assert len(outputs["single"][0].splitlines()) == 3


@pytest.mark.slow
def test_what_has_no_batches_is_refused_before_anything_is_sent(instances, tmp_path):
    with ModelServerThread(build_world_handlers()) as server:
        generate(instances, server, tmp_path / "run")
        (tmp_path / "run" / "responses.jsonl").unlink()
        (tmp_path / "run" / "responses.jsonl.manifest.json").unlink()
        with pytest.raises(SettingError, match="a replay sends nothing"):
            generate(instances, server, tmp_path / "run", batch=QUICK, replay=True)
        assert paid(server) == 12
