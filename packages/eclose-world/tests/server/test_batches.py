"""The world's files and batches, asked by the stock client."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from eclose.errors import SettingError
from eclose_world.server.app import ModelServer, open_model_server
from eclose_world.server.batches import BATCH_ENDPOINT, BatchBehaviour
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.serving import always, registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run_with(
    body: Callable[[openai.AsyncOpenAI, ModelServer], Awaitable[None]],
    batches: BatchBehaviour | None = None,
    behaviour: ServerBehaviour | None = None,
) -> None:
    async def main() -> None:
        async with (
            open_model_server(registry(), behaviour, batches=batches) as server,
            openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client,
        ):
            await body(client, server)

    asyncio.run(asyncio.wait_for(main(), 30))


def line(number: int, **changes: Any) -> dict[str, Any]:
    body = {"model": "world", "messages": [{"role": "user", "content": f"question {number}"}]}
    return {"custom_id": f"id-{number}", "method": "POST", "url": BATCH_ENDPOINT, "body": body, **changes}


async def upload(client: openai.AsyncOpenAI, lines: list[Any]) -> str:
    data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    return (await client.files.create(file=("batch.jsonl", data), purpose="batch")).id


async def create(client: openai.AsyncOpenAI, lines: list[Any], **metadata: str) -> Any:
    file_id = await upload(client, lines)
    return await client.batches.create(
        input_file_id=file_id, endpoint=BATCH_ENDPOINT, completion_window="24h", metadata=metadata
    )


async def finished(client: openai.AsyncOpenAI, batch: Any) -> Any:
    for _ in range(10):
        batch = await client.batches.retrieve(batch.id)
        if batch.status in ("completed", "expired", "cancelled", "failed"):
            break
    return batch


async def results(client: openai.AsyncOpenAI, file_id: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (await client.files.content(file_id)).text.splitlines()]


def said(result: dict[str, Any]) -> str:
    return result["response"]["body"]["choices"][0]["message"]["content"]


def test_a_batch_goes_through_its_states_and_is_billed_like_single_requests():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        batch = await create(client, [line(1), line(2)], shard="abc")
        assert (batch.status, batch.metadata, batch.output_file_id) == ("validating", {"shard": "abc"}, None)
        assert server.bill()["totals"]["paid"] == 2  # whether anybody comes back or not
        states = [(await client.batches.retrieve(batch.id)).status for _ in range(4)]
        assert states == ["in_progress", "finalizing", "completed", "completed"]
        batch = await client.batches.retrieve(batch.id)
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (2, 2, 0)
        assert batch.error_file_id is None
        replies = await results(client, batch.output_file_id)
        assert {result["custom_id"]: said(result) for result in replies} == {"id-1": "question 1", "id-2": "question 2"}
        alone = await client.chat.completions.create(**line(1)["body"])
        assert alone.model_dump(exclude_unset=True)["choices"] == replies[0]["response"]["body"]["choices"]
        assert sorted(bill_line["paid"] for bill_line in server.bill()["requests"].values()) == [1, 2]

    run_with(body, BatchBehaviour(looks=3))


def test_a_stopped_batch_lists_what_it_did_not_do():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        batch = await finished(client, await create(client, [line(number) for number in range(5)]))
        assert batch.status == "expired"
        errors = await results(client, batch.error_file_id)
        assert [(error["custom_id"], error["response"], error["error"]["code"]) for error in errors] == [
            (f"id-{number}", None, "batch_expired") for number in (2, 3, 4)
        ]
        assert server.bill()["totals"]["paid"] == 2

    run_with(body, BatchBehaviour(stop_after=2))


def test_failed_requests_are_in_the_error_file_with_their_status():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        batch = await finished(client, await create(client, [line(1), line(2, body={"model": "world"})]))
        assert (batch.status, batch.output_file_id) == ("completed", None)
        first, second = await results(client, batch.error_file_id)
        assert (first["response"]["status_code"], second["response"]["status_code"]) == (500, 400)
        assert "messages" in second["response"]["body"]["error"]["message"]
        totals = server.bill()["totals"]
        assert (totals["paid"], totals["rejected"], totals["faulted"]) == (0, 1, {"server_error": 1})

    run_with(body, behaviour=always(ServerFault.SERVER_ERROR))


def test_results_as_ordered_wrong():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        batch = await finished(client, await create(client, [line(number) for number in range(20)]))
        replies = await results(client, batch.output_file_id)
        ids = [result["custom_id"] for result in replies]
        assert sorted(ids[:18]) != ids[:18]
        assert not {"id-18", "id-19"} & set(ids)
        assert sum(name not in {f"id-{number}" for number in range(20)} for name in ids) == 1
        zero, first = ([said(result) for result in replies if result["custom_id"] == f"id-{n}"] for n in (0, 1))
        assert sorted(zero) == ["question 0", "question 0", "question 1"]
        assert first == ["question 1"]

    run_with(body, BatchBehaviour(shuffled=True, missing=2, repeated=1, contradicted=1, strangers=1))


@pytest.mark.parametrize(
    "lines, code",
    [
        ([line(1), line(1)], "duplicate_custom_id"),
        ([line(1), b"{"], "invalid_json_line"),
        ([{"custom_id": "x"}], "invalid_json_line"),
        ([line(1, url="/v1/embeddings")], "mismatched_endpoint"),
        ([], "empty_file"),
    ],
)
def test_a_file_with_one_wrong_line_is_refused_as_a_whole(lines, code):
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        batch = await create(client, lines)
        assert batch.status == "validating"
        batch = await finished(client, batch)
        assert (batch.status, batch.errors.data[0].code) == ("failed", code)
        assert server.bill()["totals"]["paid"] == 0

    run_with(body)


def test_the_list_begins_with_the_newest_and_goes_on_by_pages():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        ids = [(await create(client, [line(number)])).id for number in range(5)]
        page = await client.batches.list(limit=2)
        assert ([batch.id for batch in page.data], page.has_more) == (ids[:2:-1], True)
        assert [batch.id async for batch in client.batches.list(limit=2)] == ids[::-1]
        assert [batch.id async for batch in client.batches.list(after=ids[1])] == ids[:1]
        with pytest.raises(openai.BadRequestError):
            await client.batches.list(limit=1000)

    run_with(body)


def test_a_new_batch_may_come_late_into_the_list_and_its_making_stay_unheard():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.APIConnectionError):
            await create(client, [line(1)])
        assert [len((await client.batches.list()).data) for _ in range(3)] == [0, 0, 1]
        await create(client, [line(2)])

    run_with(body, BatchBehaviour(late=2, unheard=1))


def test_what_is_not_there_and_what_makes_no_sense():
    async def body(client: openai.AsyncOpenAI, server: ModelServer) -> None:
        with pytest.raises(openai.NotFoundError):
            await client.batches.retrieve("batch_9")
        with pytest.raises(openai.NotFoundError):
            await client.files.content("file-9")
        with pytest.raises(openai.BadRequestError, match="input_file_id"):
            await client.batches.create(input_file_id="x", endpoint=BATCH_ENDPOINT, completion_window="24h")
        file_id = await upload(client, [line(1)])
        with pytest.raises(openai.BadRequestError, match="endpoint"):
            await client.batches.create(input_file_id=file_id, endpoint="/v1/embeddings", completion_window="24h")
        with pytest.raises(openai.BadRequestError, match="purpose"):
            await client.files.create(file=("x", b"y"), purpose="fine-tune")
        with pytest.raises(openai.BadRequestError, match="form"):
            await client.post("/files", cast_to=object, body={"file": "x"})

    run_with(body)
    with pytest.raises(SettingError, match="looks, late must not be negative"):
        BatchBehaviour(looks=-1, late=-1)
