"""Several models in one run: each asked for its own, all out of one budget and one ledger."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest

from eclose.calls.budget import BudgetSpent
from eclose.calls.client import CallSettings
from eclose.calls.http.endpoint import ServerAddress, format_server_name
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.ledger_tools import read_ledger_calls
from eclose.calls.model import Decoding, Request
from eclose.calls.record_loop import RecordJob, RunStoppedError
from eclose.calls.resolve import find_model_ref
from eclose.calls.run import ModelRun, RunOptions, run_models_on_records
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import ReadRecord
from eclose.files.outcome_counts import RecordCounts
from eclose.files.step import PipelineStep
from eclose.values.instance import Instance
from eclose_world.server.app import ModelServerThread
from eclose_world.server.faults import ServerBehaviour
from tests.calls.ledger.postgres import fresh_database
from tests.serving import registry

RECORDS = [Instance(f"q{number}", f"Question {number}?", ()) for number in range(8)]


@dataclass(frozen=True)
class PairRun(ModelRun):
    """Asks two models about every record."""

    models: list
    seen: list

    @property
    def model_refs(self):
        return self.models

    @property
    def jobs(self):
        return [RecordJob("both", self.ask, Instance)]

    async def ask(self, record, writer, checker):
        for model in (writer, checker):
            request = Request(({"role": "user", "content": record.question},), Decoding(max_tokens=50))
            await model.complete(request)
            self.seen.append((model.name, record.id))
        return record

    @contextmanager
    def open_records(self):
        yield [ReadRecord(record.id, value=record) for record in RECORDS]


def pair_run(folder, models, seen, out="out.jsonl"):
    source = folder / "in.jsonl"
    source.write_text("")
    return PairRun(PipelineStep("both", {}, (source,), folder / out), models, seen)


def ask(folder, seen, names, calls, **flags):
    models = [find_model_ref(name, base_url=flags["base_url"]) for name in names]
    clients = []

    @contextmanager
    def watch(_runner, connections, _total):
        yield
        clients.extend(connections)

    result = asyncio.run(
        run_models_on_records(
            pair_run(folder, models, seen), calls, RunOptions(watch=watch, replay=flags.get("replay", False))
        )
    )
    return result, clients


@pytest.mark.slow
def test_each_model_is_asked_and_a_replay_asks_nobody(tmp_path):
    requests, again = [], []
    calls = CallSettings(unpriced=True)
    with ModelServerThread(registry()) as server:
        result, clients = ask(tmp_path, requests, ["world/a", "world/b"], calls, base_url=server.base_url)
        assert server.bill(keys=False)["totals"]["paid"] == 16
    assert result.manifest.counts.accepted == 8
    assert len(clients) == 2
    stored = list(read_ledger_calls(tmp_path / "ledger.sqlite"))
    assert len(stored) == 2 * len(RECORDS)
    assert len({name for name, _ in requests}) == 2
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.jsonl.manifest.json").unlink()
    ask(tmp_path, again, ["world/a", "world/b"], calls, base_url="http://127.0.0.1:9/v1", replay=True)
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 8


def test_a_model_that_is_named_twice_is_reached_once(tmp_path):
    with ModelServerThread(registry()) as server:
        _, clients = ask(tmp_path, [], ["world/a", "world/a"], CallSettings(unpriced=True), base_url=server.base_url)
        # The same question to the same model is one call.
        assert server.bill(keys=False)["totals"]["paid"] == 8
    assert len(clients) == 1


@pytest.mark.slow
def test_all_share_one_budget(tmp_path):
    prices = tmp_path / "prices.json"
    with ModelServerThread(registry(), ServerBehaviour(latency=0.1)) as server:
        names = [find_model_ref(name, base_url=server.base_url).name for name in ("world/a", "world/b")]
        prices.write_text(json.dumps({name: {"input": 0, "output": 1} for name in names}))
        # A call sets aside fifty tokens of a millionth each: with room for one, and none for two at a time.
        calls = CallSettings(budget=0.000_060, prices=prices, concurrency=4)
        with pytest.raises(BudgetSpent):
            ask(tmp_path, [], ["world/a", "world/b"], calls, base_url=server.base_url)
        totals = server.bill(keys=False)["totals"]
    assert 0 < totals["completion_tokens"] <= 60
    assert totals["paid"] > 1
    assert totals["peak_in_flight"] == 1


def test_what_is_written_beforehand_is_there_before_a_call_and_made_up_for_where_it_is_gone(tmp_path):
    copy = tmp_path / "copy"
    with ModelServerThread(registry()) as server:
        named = [find_model_ref("world", base_url=server.base_url)] * 2
        paid = []

        class CopyingRun(PairRun):
            def write_inputs(self, *, force):  # noqa: ARG002
                paid.append(server.bill(keys=False)["totals"]["paid"])
                copy.touch()

        run = CopyingRun(pair_run(tmp_path, [], []).stage, named, [])
        calls = CallSettings(unpriced=True)
        asyncio.run(run_models_on_records(run, calls))
        assert (paid, copy.exists()) == ([0], True)
        copy.unlink()
        assert asyncio.run(run_models_on_records(run, calls)).again
    assert copy.exists()


@pytest.mark.slow
def test_two_servers_are_two_models(tmp_path, monkeypatch):
    monkeypatch.delenv("ECLOSE_SERVER_NAME")
    requests = []
    with ModelServerThread(registry()) as thread, ModelServerThread(registry()) as other:
        named = [find_model_ref("world", base_url=server.base_url) for server in (thread, other)]
        asyncio.run(run_models_on_records(pair_run(tmp_path, named, requests), CallSettings(unpriced=True)))
        assert [server.bill(keys=False)["totals"]["paid"] for server in (thread, other)] == [8, 8]
    assert len({name for name, _ in requests}) == len({model.name for model in named}) == 2


@pytest.mark.slow
def test_a_run_is_not_taken_up_by_another_server_unless_it_goes_by_the_same_name(tmp_path, monkeypatch):
    monkeypatch.delenv("ECLOSE_SERVER_NAME")
    calls = CallSettings(unpriced=True, concurrency=1)

    def go(model, *, stop=False, force=False):
        run = pair_run(tmp_path, [model] * 2, [])
        run = replace(run, stage=replace(run.stage, settings=model.identity))

        @contextmanager
        def watch(runner, _connections, _total):
            if stop:
                runner.progress.finished = Stopping(runner)
            yield

        return asyncio.run(run_models_on_records(run, calls, RunOptions(force=force, watch=watch)))

    with ModelServerThread(registry()) as first, ModelServerThread(registry()) as second:
        named = [find_model_ref("world", base_url=server.base_url) for server in (first, second)]
        moved = find_model_ref("world", base_url=ServerAddress(second.base_url, format_server_name(first.base_url)))
        with pytest.raises(RunStoppedError):
            go(named[0], stop=True)
        before = first.bill(keys=False)["totals"]["paid"]
        assert 0 < before < 8
        ports = [format_server_name(server.base_url) for server in (first, second)]
        with pytest.raises(
            UserError, match=rf"model: '{ports[0]}/world' then, '{ports[1]}/world' now.*ECLOSE_SERVER_NAME"
        ):
            go(named[1])
        assert second.bill(keys=False)["totals"]["paid"] == 0
        assert go(moved).manifest.counts.accepted == 8
        assert second.bill(keys=False)["totals"]["paid"] == 8 - before
        with pytest.raises(UserError, match="other settings"):
            go(named[1])
        assert go(named[1], force=True).manifest.counts.accepted == 8
    assert not list(tmp_path.glob("*.begun.json"))


def start_and_stop(folder, models):
    @contextmanager
    def watch(runner, _connections, _total):
        runner.progress.finished = Stopping(runner)
        yield

    calls = CallSettings(unpriced=True, concurrency=1)
    with pytest.raises(RunStoppedError):
        asyncio.run(run_models_on_records(pair_run(folder, models, []), calls, RunOptions(watch=watch)))


def test_run_goes_on_with_the_ledger_it_was_begun_with_alone(tmp_path):
    with ModelServerThread(registry()) as server:
        models = [find_model_ref("world", base_url=server.base_url)] * 2
        start_and_stop(tmp_path, models)
        paid = server.bill(keys=False)["totals"]["paid"]
        run = partial(run_models_on_records, pair_run(tmp_path, models, []), CallSettings(unpriced=True))
        with pytest.raises(UserError, match=r"not the ledger that this run was begun with.*-wal.*--force"):
            asyncio.run(run(RunOptions(ledger=tmp_path / "other.sqlite")))
        (tmp_path / "ledger.sqlite").rename(tmp_path / "copy.sqlite")
        with pytest.raises(UserError, match="not the ledger that this run was begun with"):
            asyncio.run(run())
        assert server.bill(keys=False)["totals"]["paid"] == paid
        assert asyncio.run(run(RunOptions(ledger=tmp_path / "copy.sqlite"))).manifest.counts.accepted == 8
        assert server.bill(keys=False)["totals"]["paid"] == 8


def test_retry_is_refused_where_the_ledger_has_lost_the_run(tmp_path):
    with ModelServerThread(registry()) as server:
        models = [find_model_ref("world", base_url=server.base_url)] * 2
        run = pair_run(tmp_path, models, [])
        result = asyncio.run(run_models_on_records(run, CallSettings(unpriced=True)))
        quarantined = replace(result.manifest, counts=RecordCounts(8, 7, quarantined={"x": 1}))
        quarantined.write(run.stage.manifest_path)
        (tmp_path / "ledger.sqlite").unlink()
        with pytest.raises(UserError, match="not the ledger that this run was begun with"):
            asyncio.run(run_models_on_records(run, CallSettings(unpriced=True), RunOptions(retry=True)))
        assert server.bill(keys=False)["totals"]["paid"] == 8
    assert run.stage.manifest_path.exists()


def test_versions_that_worked_on_a_run_are_in_its_manifest(tmp_path, monkeypatch, caplog):
    with ModelServerThread(registry()) as server:
        models = [find_model_ref("world", base_url=server.base_url)] * 2
        monkeypatch.setattr("eclose.__version__", "0.0.9")
        start_and_stop(tmp_path, models)
        assert "0.0.9" not in caplog.text
        monkeypatch.setattr("eclose.__version__", "0.1.0")
        result = asyncio.run(run_models_on_records(pair_run(tmp_path, models, []), CallSettings(unpriced=True)))
    assert (result.manifest.version, result.manifest.earlier_versions) == ("0.1.0", ("0.0.9",))
    assert "eclose 0.0.9 worked on this run before eclose 0.1.0" in caplog.text


class Stopping(Counter):
    """Stops a run once two records are done."""

    def __init__(self, runner):
        super().__init__()
        self._runner = runner

    def __setitem__(self, kind, count):
        super().__setitem__(kind, count)
        if count >= 2:
            self._runner.stop()


def test_two_servers_under_one_name_could_not_be_told_apart_and_are_refused(tmp_path):
    with ModelServerThread(registry()) as thread, ModelServerThread(registry()) as other:
        named = [find_model_ref("world", base_url=server.base_url) for server in (thread, other)]
        with pytest.raises(SettingError, match="two different servers have this name"):
            asyncio.run(run_models_on_records(pair_run(tmp_path, named, []), CallSettings(unpriced=True)))
        assert thread.bill(keys=False)["totals"]["paid"] == 0


async def three_at_once(folder, url, base_url, calls):
    """The same work by three openings of one ledger, each with a file of its own; how each ended."""
    models = [find_model_ref(name, base_url=base_url) for name in ("world/a", "world/b")]
    options = RunOptions(ledger=url)
    runs = [
        run_models_on_records(pair_run(folder, models, [], f"{number}.jsonl"), calls, options) for number in range(3)
    ]
    return await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), 120)


@pytest.mark.database
def test_processes_on_one_ledger_ask_every_record_once_and_write_the_same(tmp_path):
    with ModelServerThread(registry(), ServerBehaviour(latency=0.1)) as server:
        calls = CallSettings(unpriced=True, concurrency=2)
        ended = asyncio.run(three_at_once(tmp_path, fresh_database(), server.base_url, calls))
        bill = server.bill()
    assert [result.manifest.counts.accepted for result in ended] == [8, 8, 8]
    assert bill["totals"]["paid"] == 16
    assert len({(tmp_path / f"{number}.jsonl").read_bytes() for number in range(3)}) == 1


@pytest.mark.database
def test_processes_on_one_ledger_keep_one_budget(tmp_path):
    prices, url = tmp_path / "prices.json", fresh_database()
    with ModelServerThread(registry(), ServerBehaviour(latency=0.05)) as server:
        names = [find_model_ref(name, base_url=server.base_url).name for name in ("world/a", "world/b")]
        prices.write_text(json.dumps({name: {"input": 0, "output": 1} for name in names}))
        calls = CallSettings(budget=0.000_060, prices=prices, concurrency=4)
        ended = asyncio.run(three_at_once(tmp_path, url, server.base_url, calls))
        billed = server.bill(keys=False)["totals"]["completion_tokens"]
    assert {type(end) for end in ended} == {BudgetSpent}
    assert 10 < billed <= 60

    async def look():
        async with Ledger.open(url, run=pair_run(tmp_path, [], []).stage.work_id) as ledger:
            return await ledger.compute_account()

    assert asyncio.run(look()) == (billed, 0, 0)


@pytest.mark.database
def test_the_same_work_with_another_file_is_written_without_asking(tmp_path):
    url, calls = fresh_database(), CallSettings(unpriced=True)
    with ModelServerThread(registry()) as server:
        models = [find_model_ref(name, base_url=server.base_url) for name in ("world/a", "world/b")]
        for out in ("first.jsonl", "second.jsonl"):
            asyncio.run(run_models_on_records(pair_run(tmp_path, models, [], out), calls, RunOptions(ledger=url)))
            assert server.bill(keys=False)["totals"]["paid"] == 16
    assert (tmp_path / "first.jsonl").read_bytes() == (tmp_path / "second.jsonl").read_bytes()
