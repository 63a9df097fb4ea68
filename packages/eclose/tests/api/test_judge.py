"""A judge to keep: rows of every type with their labels, one connection, nothing paid twice."""

from __future__ import annotations

import asyncio
import pickle
import re
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pandas
import pyarrow as pa
import pytest
from sqlalchemy import text

import eclose
from eclose.calls.ledger.database import make_database_engine
from eclose.diagnosis.label_file import RECORD_COLUMNS, label_schema
from eclose.errors import RecordError, SettingError, UserError
from eclose_world.make.instances import make_world_items
from eclose_world.roles.request_handlers import build_world_handlers
from eclose_world.server.app import ModelServerThread
from eclose_world.server.chat_requests import ScriptedReply
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.ledger.postgres import fresh_database

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "keep.md"
FREE = eclose.CallSettings(unpriced=True)
CALLS = 6
"""Calls of a response with a trace, an answer and a reference."""


def make_rows(count=4):
    return [
        {
            "ticket": 100 + number,
            "question": item.instance.question,
            "contexts": [passage.text for passage in item.instance.evidence],
            "reference": item.instance.reference_answer,
            "response": item.response.completion,
        }
        for number, item in enumerate(islice(make_world_items("short-easy", 3), count))
    ]


@pytest.fixture
def server():
    with ModelServerThread(build_world_handlers()) as thread:
        yield thread


def count_requests(server):
    return server.bill(keys=False)["totals"]["received"]


def test_batch_returns_dicts_in_order_with_their_own_columns_and_labels(server):
    rows = make_rows(20)
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        labelled = judge.batch(rows)
    assert [{name: row[name] for name in rows[0]} for row in labelled] == rows
    assert {*labelled[0]} == {*rows[0], *label_schema().names}
    assert all(row["correct"] is True for row in labelled)
    assert len({row["response_id"] for row in labelled}) == len(rows)


def test_batch_labels_as_evaluate_judges(server, tmp_path):
    rows = make_rows(6)
    results = eclose.evaluate(rows, judge=server.base_url, calls=FREE, out=tmp_path / "run")
    expected = {row["response_id"]: row for row in results.to_dicts()}
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        labelled = judge.batch(rows)
    shared = ("locally_sound", "aligned", "closed", "complete", "correct", "reliable", "in_gap", "failure_class")
    for row in labelled:
        assert {name: row[name] for name in shared} == {name: expected[row["response_id"]][name] for name in shared}


@pytest.mark.parametrize(
    "make_table",
    [pa.Table.from_pylist, pa.RecordBatch.from_pylist, pandas.DataFrame],
    ids=["arrow-table", "arrow-batch", "pandas"],
)
def test_batch_returns_the_type_of_the_table(server, make_table):
    rows = make_rows(3)
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        expected = judge.batch(rows)
        labelled = judge.batch(make_table(rows))
    assert type(labelled) is type(make_table(rows))
    if isinstance(labelled, pandas.DataFrame):
        assert labelled["correct"].dtype == "boolean"
        assert labelled["response_id"].to_list() == [row["response_id"] for row in expected]
    else:
        assert labelled.to_pylist() == expected
        assert labelled.schema.equals(judge.schema(make_table(rows).schema))


def test_batch_of_pandas_has_the_types_of_labels_where_a_column_holds_no_value(server):
    rows = [{**row, "created_at": time} for row, time in zip(make_rows(2), (None, "2026-11-20T10:00:00Z"), strict=True)]
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        frame = judge.batch(pandas.DataFrame(rows))
        unread = judge.batch(pandas.DataFrame([{**rows[0], "response": None}]))
    assert frame["failure"].isna().all()
    assert frame["answered_at"].to_list() == [pandas.NaT, pandas.Timestamp("2026-11-20T10:00:00Z")]
    for labelled in (frame, unread):
        types = {field.name: field.type for field in pa.Schema.from_pandas(labelled)}
        for field in label_schema():
            if not pa.types.is_nested(field.type):
                text = pa.types.is_large_string(types[field.name]) and pa.types.is_string(field.type)
                assert text or types[field.name] == field.type, field.name


@pytest.mark.parametrize("time", ["2026-11-20T10:00:00Z", datetime(2026, 11, 20, 10, tzinfo=UTC), 1795168800])
def test_batch_keeps_the_time_of_a_response(server, time):
    table = pa.table({name: [value] for name, value in {**make_rows(1)[0], "created_at": time}.items()})
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        (row,) = judge.batch(table).to_pylist()
    assert row["answered_at"] == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert '"time":"2026-11-20T10:00:00Z"' in row["response_record"]


def test_batch_of_polars_returns_polars(server):
    polars = pytest.importorskip("polars")
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        labelled = judge.batch(polars.DataFrame(make_rows(2)))
        assert labelled.schema["answered_at"] == polars.Datetime("us", "UTC")
        assert labelled.to_dicts() == judge.batch(make_rows(2))


def test_batch_keeps_an_index_that_repeats(server):
    frame = pandas.DataFrame(make_rows(3), index=[7, 7, 7])
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        labelled = judge.batch(frame)
    assert labelled.index.to_list() == [7, 7, 7]
    assert labelled["ticket"].to_list() == [100, 101, 102]


@pytest.mark.parametrize("make_table", [list, pa.Table.from_pylist])
def test_batch_of_no_rows_asks_nothing(server, make_table):
    empty = make_table([]) if make_table is list else pa.Table.from_pylist(make_rows(1)).slice(0, 0)
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        assert len(judge.batch(empty)) == 0
    assert count_requests(server) == 0


def test_row_that_cannot_be_read_has_a_reason_and_the_others_their_labels(server):
    rows = [*make_rows(2), {**make_rows(1)[0], "contexts": "one text"}, {**make_rows(1)[0], "response": None}]
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        labelled = judge.batch(rows)
    assert [row["correct"] for row in labelled] == [True, True, None, None]
    assert [row["locally_sound_unjudged"] for row in labelled[2:]] == ["the row was not read"] * 2
    assert "contexts" in labelled[2]["judgment_record"]
    assert "no response" in labelled[3]["judgment_record"]
    assert labelled[2]["without_trace"] is None


def test_column_of_a_label_is_refused_before_anything_is_asked(server):
    with eclose.Judge(server.base_url, calls=FREE) as judge, pytest.raises(SettingError, match="a column correct"):
        judge.batch([*make_rows(1), {**make_rows(1)[0], "correct": True}])
    assert count_requests(server) == 0


def test_own_model_and_dataset_stay(server):
    rows = [{**row, "model": "ours", "benchmark": "tickets"} for row in make_rows(2)]
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        assert {(row["model"], row["benchmark"]) for row in judge.batch(rows)} == {("ours", "tickets")}


def test_what_the_judge_gives_on_request_has_columns():
    settings = eclose.JudgeSettings(
        passages=True, criteria=(eclose.OwnCriterion("tone", question="Is the answer polite?"),)
    )
    added = ["criterion_tone", "criterion_tone_unjudged", "context_precision", "passages_unjudged", "context_recall"]
    rows, replies = make_rows(2), build_world_handlers()
    used = {str(number): {"reason": "It helps.", "verdict": "needed"} for number in range(len(rows[0]["contexts"]))}
    replies.register("judge_own", lambda _request: ScriptedReply({"reason": "It is.", "verdict": "yes"}))
    replies.register("judge_passages", lambda _request: ScriptedReply({"passages": used, "claims": []}))
    with (
        ModelServerThread(replies) as server,
        eclose.Judge(server.base_url, calls=FREE, settings=settings, records=False) as judge,
    ):
        table = pa.Table.from_pylist(rows)
        dicts, labelled, frame = judge.batch(rows), judge.batch(table), judge.batch(pandas.DataFrame(rows))
    assert list(dicts[0])[-5:] == labelled.schema.names[-5:] == list(frame.columns)[-5:] == added
    assert (dicts[0]["criterion_tone"], dicts[0]["context_precision"]) == (True, 1.0)
    assert labelled.to_pylist() == dicts
    assert frame["criterion_tone"].dtype == "boolean"
    assert judge.schema(table.schema) == labelled.schema


def test_records_are_left_out_where_they_are_not_wanted(server):
    with eclose.Judge(server.base_url, calls=FREE, records=False) as judge:
        (row,) = judge.batch(make_rows(1))
        assert not {*RECORD_COLUMNS} & {*row}
        assert not {*RECORD_COLUMNS} & {*judge.schema().names}


def test_judge_takes_a_row_or_a_question_and_a_response(server):
    row = make_rows(1)[0]
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        whole, divided = judge(row), judge(row, row["response"])
    assert (
        whole.verdict
        == divided.verdict
        == eclose.judge(row, row["response"], judge=server.base_url, calls=FREE).verdict
    )


def test_row_without_a_response_is_refused_by_a_single_call(server):
    with eclose.Judge(server.base_url, calls=FREE) as judge, pytest.raises(RecordError, match="no response"):
        judge({**make_rows(1)[0], "response": None})


def test_judge_is_used_from_threads_and_loops_at_once(server):
    rows = make_rows(8)
    labels = {}
    with eclose.Judge(server.base_url, calls=FREE) as judge:

        async def ask(number):
            labels[number] = (await judge.ajudge(rows[number])).correct

        def ask_all():
            async def gather():
                await asyncio.gather(*map(ask, range(4, 8)))

            asyncio.run(gather())

        threads = [threading.Thread(target=ask_all)]
        threads += [
            threading.Thread(target=lambda n: labels.__setitem__(n, judge(rows[n]).correct), args=(number,))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert labels == dict.fromkeys(range(8), True)


def test_async_context_judges_a_batch(server):
    async def main():
        async with eclose.Judge(server.base_url, calls=FREE) as judge:
            return await judge.abatch(make_rows(3))

    assert [row["correct"] for row in asyncio.run(main())] == [True] * 3


def test_ledger_answers_rows_that_were_judged_before(server, tmp_path):
    rows = make_rows(4)
    for _ in range(2):
        with eclose.Judge(server.base_url, calls=FREE, ledger=tmp_path / "replies.sqlite") as judge:
            labelled = judge.batch(rows)
    assert count_requests(server) == CALLS * len(rows)
    assert all(row["correct"] for row in labelled)


def test_closed_judge_opens_again_with_the_next_call(server, tmp_path):
    judge = eclose.Judge(server.base_url, calls=FREE, ledger=tmp_path / "replies.sqlite")
    row = make_rows(1)[0]
    first = judge(row)
    judge.close()
    assert judge(row) == first
    judge.close()
    assert count_requests(server) == CALLS


def test_budget_ends_a_batch_and_a_larger_one_continues_it(server, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("world: {input: 1, output: 1}\n")
    calls = eclose.CallSettings(prices=prices)
    rows = make_rows(12)
    ledger = tmp_path / "replies.sqlite"
    small = eclose.Judge(server.base_url, calls=calls, budget=0.02, ledger=ledger)
    with small as judge, pytest.raises(UserError, match="Raise --budget"):
        judge.batch(rows)
    asked = count_requests(server)
    assert 0 < asked < CALLS * len(rows)
    with eclose.Judge(server.base_url, calls=calls, budget=10, ledger=ledger) as judge:
        labelled = judge.batch(rows)
    assert count_requests(server) == CALLS * len(rows)
    assert all(row["cost"] > 0 for row in labelled)


def test_cost_is_that_of_the_replies_whoever_paid(server, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("world: {input: 2, output: 3}\n")
    costs = []
    for _ in range(2):
        with eclose.Judge(
            server.base_url, calls=eclose.CallSettings(prices=prices), ledger=tmp_path / "replies.sqlite"
        ) as judge:
            costs.append(judge.batch(make_rows(1))[0]["cost"])
    totals = server.bill(keys=False)["totals"]
    # Each call is rounded up to a millionth.
    exact = (2 * totals["prompt_tokens"] + 3 * totals["completion_tokens"]) / 1e6
    assert costs == [pytest.approx(exact, abs=CALLS * 1e-6)] * 2


def test_judge_that_cannot_be_reached_is_said_at_once():
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9"), eclose.Judge("http://127.0.0.1:9/v1", calls=FREE):
        pass


def test_judge_that_could_not_connect_does_so_with_a_later_call(server):
    judge = eclose.Judge(server.base_url, calls=FREE, ledger="/proc/no/ledger.sqlite")
    row = make_rows(1)[0]
    for _ in range(3):
        with pytest.raises(UserError, match="cannot be written here"):
            judge(row)
    judge._ledger = None
    assert judge(row).correct
    assert [thread.name for thread in threading.enumerate()].count("eclose judge") == 1
    judge.close()


def test_progress_is_told_to_a_function(server):
    told = []
    with eclose.Judge(server.base_url, calls=FREE) as judge:
        judge.batch(make_rows(5), progress=told.append)
    assert (told[-1].done, told[-1].total) == (5, 5)
    assert "5/5 (100 %)" in str(told[-1])


def test_judge_that_was_pickled_is_one_for_its_process(server):
    judge = eclose.Judge(server.base_url, calls=FREE)
    first, second = (pickle.loads(pickle.dumps(judge)) for _ in range(2))
    assert first is second
    assert first is not pickle.loads(pickle.dumps(eclose.Judge(server.base_url, calls=FREE, run="other")))
    assert first(make_rows(1)[0]).correct
    first.close()


def test_judge_of_a_resolved_model_is_not_pickled(server):
    with pytest.raises(SettingError, match="by the name of its model"):
        pickle.dumps(eclose.Judge(eclose.resolve(server.base_url), calls=FREE))


@pytest.mark.slow
def test_process_that_ends_without_closing_its_judge_ends(server):
    script = f"""
        import eclose
        judge = eclose.Judge({server.base_url!r}, calls=eclose.CallSettings(unpriced=True))
        print(judge({make_rows(1)[0]!r}).correct)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout == "True\n"


def test_closing_ends_the_calls_in_flight():
    with ModelServerThread(build_world_handlers(), ServerBehaviour(faults={ServerFault.HANG: 1.0})) as slow:
        judge = eclose.Judge(slow.base_url, calls=FREE)
        errors = []

        def ask():
            try:
                judge(make_rows(1)[0])
            except UserError as error:
                errors.append(str(error))

        with judge:
            thread = threading.Thread(target=ask)
            thread.start()
            while not count_requests(slow):
                pass
        thread.join(timeout=10)
        assert not thread.is_alive()
        assert errors == ["the judge was closed while it was in use."]


@pytest.mark.database
def test_processes_of_a_run_share_its_limit_its_budget_and_its_replies(tmp_path):
    """Two processes with the same judge ask about overlapping rows; each question is asked once."""
    ledger, rows = fresh_database(), make_rows(16)
    prices = tmp_path / "prices.yaml"
    prices.write_text("world: {input: 1, output: 1}\n")
    with ModelServerThread(build_world_handlers(), ServerBehaviour(latency=0.05)) as server:
        calls = eclose.CallSettings(concurrency=4, prices=prices)
        judge = eclose.Judge(server.base_url, ledger=ledger, run="july", calls=calls, budget=100)
        script = """
            import pickle, sys
            judge, rows = pickle.loads(sys.stdin.buffer.read())
            sys.stdout.buffer.write(pickle.dumps(judge.batch(rows)))
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]

        def work(part):
            given = pickle.dumps((judge, part))
            return pickle.loads(subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout)

        with ThreadPoolExecutor(2) as pool:
            labelled = [row for part in pool.map(work, (rows[:12], rows[4:])) for row in part]
        totals = server.bill(keys=False)["totals"]
    assert [row["ticket"] for row in labelled] == [*range(100, 112), *range(104, 116)]
    assert all(row["reliable"] is not None for row in labelled)
    assert totals["received"] == totals["distinct"] == CALLS * len(rows)
    assert totals["peak_in_flight"] <= 4
    engine = make_database_engine(ledger)
    with engine.begin() as connection:
        spent = connection.execute(text("SELECT sum(cost) FROM ledger_replies")).scalar_one()
    engine.dispose()
    assert spent == pytest.approx(totals["prompt_tokens"] + totals["completion_tokens"], abs=1)


@pytest.mark.slow
def test_code_of_the_guide_runs(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names = {"FREE": FREE}
    for block in blocks:
        code = block.replace('"openai/gpt-5-mini"', repr(server.base_url)).replace("budget=5)", "calls=FREE)")
        code = code.replace('ledger="replies.sqlite")', 'ledger="replies.sqlite", calls=FREE)')
        exec(code, names)
    assert "4711" in capsys.readouterr().out
