"""Batches against the world's provider: what is sent once, what is joined to what, and what is said of the rest."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from eclose.calls.batches.results import CollectedBatches
from eclose.calls.batches.run import BatchSettings, ModelBatches, SubmittedBatches
from eclose.calls.budget import BudgetSpent, RunBudget
from eclose.calls.client import CallSettings, connect_model
from eclose.calls.http.endpoint import Endpoint, ModelRoute
from eclose.calls.http.failures import CallFailure
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import Decoding, ReplySchema, Request
from eclose.calls.paid_once import ReplayModel, compute_call_key
from eclose.calls.prices import ModelPrice
from eclose.calls.retry import ServiceDown
from eclose.errors import SettingError, UserError
from eclose_world.server.app import ModelServer, open_model_server
from eclose_world.server.batches import BatchBehaviour, BatchEndpoints
from eclose_world.server.chat_requests import BadRequest, ChatRequest, ScriptedReply
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.http.test_endpoint import site
from tests.calls.ledger.spending import compute_spending
from tests.serving import always, echo, leaning, registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

CANARY = "canary.0123456789abcdef.canary"
SCHEMA = ReplySchema("verdict", {"type": "object", "required": ["aligned"]})
PRICE = ModelPrice.of(1, 2)


def run(main: Awaitable[Any]) -> Any:
    async def guarded() -> Any:
        return await asyncio.wait_for(main, 30)

    return asyncio.run(guarded())


def request(number: int, **more: Any) -> Request:
    return Request(({"role": "user", "content": f"question {number} of many"},), **more)


def records(count: int, **more: Any) -> list[tuple[str, Request]]:
    return [(f"r{number:04}", request(number, **more)) for number in range(count)]


def quick(**settings: Any) -> BatchSettings:
    return BatchSettings(**{"poll": 0.0, "first_wait": 0.0, "deadline": 10.0, **settings})


@dataclass
class Rig:
    """A provider, a ledger and a folder."""

    server: ModelServer
    ledger: Ledger
    folder: Path

    @property
    def route(self) -> ModelRoute:
        return ModelRoute(self.server.base_url, "world", SecretStr(CANARY))

    def open(self, *, price: ModelPrice | None = None, **settings: Any) -> ModelBatches:
        return ModelBatches(
            self.route, self.ledger, self.folder, stage="judge", price=price, settings=quick(**settings)
        )

    def paid(self) -> Counter[int]:
        """How many requests were paid how often."""
        return Counter(line["paid"] for line in self.server.bill()["requests"].values())

    async def texts(self, asked: list[tuple[str, Request]]) -> list[str | None]:
        """What the ledger has for each record, as a later run online finds it."""
        model, texts = ReplayModel(self.route.name, self.ledger), []
        for _, query in asked:
            answered = await self.ledger.find_reply(compute_call_key(self.route.name, query)) is not None
            texts.append((await model.complete(query)).text if answered else None)
        return texts

    async def provider(self) -> list[dict[str, Any]]:
        """The batches as their provider lists them."""
        import aiohttp

        async with aiohttp.ClientSession() as session:
            return (await (await session.get(f"{self.server.base_url}/batches?limit=100")).json())["data"]

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted(self.folder.glob("*.json"))]


@asynccontextmanager
async def rig(
    tmp_path: Path,
    batches: BatchBehaviour | None = None,
    behaviour: ServerBehaviour | None = None,
    text: Callable[[ChatRequest], ScriptedReply] = echo,
) -> AsyncIterator[Rig]:
    async with (
        open_model_server(registry(text), behaviour, batches=batches) as server,
        Ledger.open(tmp_path / "ledger.db", run="a") as ledger,
    ):
        yield Rig(server, ledger, tmp_path / "batches")


def reasons(collected: CollectedBatches) -> Counter[str]:
    return Counter(entry.reason for entry in collected.unanswered)


def check(submitted: SubmittedBatches, collected: CollectedBatches) -> None:
    """Every record that went in is answered, or is listed as waiting for a reply that did not come."""
    parts = submitted.answered + submitted.under_way + submitted.sent + len(submitted.refused)
    assert submitted.received == parts
    assert submitted.sent == collected.answered + len(collected.unanswered) + collected.under_way


# --- the usual way -----------------------------------------------------------------------------------------------


def test_what_a_batch_answered_is_found_online(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open(price=PRICE) as batches:
            requests = records(5)
            submitted = await batches.submit(requests)
            assert submitted == SubmittedBatches(received=5, sent=5, batches=["batch_000001"])
            assert at.ledger is not None
            assert len(await at.ledger.list_orphans()) == 5
            collected = await batches.collect()
            check(submitted, collected)
            # Four words of question and as many of reply, at 1 and 2 for a million tokens.
            assert (collected.answered, collected.cost) == (5, 5 * (4 + 2 * 4))
            assert await at.ledger.list_orphans() == []
            assert await compute_spending(at.ledger) == (collected.cost, 0)
            async with Endpoint(at.route) as model:
                online = (await connect_model(model, at.ledger, CallSettings(unpriced=True))).model
                assert [(await online.complete(query)).text for _, query in requests] == [
                    f"question {number} of many" for number in range(5)
                ]
            assert at.paid() == {1: 5}

    run(main())


def test_structured_replies_and_log_probabilities_are_read_as_online(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, text=leaning) as at, at.open() as batches:
            shaped, scored = request(1, schema=SCHEMA), request(2, decoding=Decoding(top_logprobs=2, seed=7, top_p=0.5))
            await batches.submit([("a", shaped), ("b", scored)])
            assert (await batches.collect()).answered == 2
            async with Endpoint(at.route) as model:
                replay = ReplayModel(at.route.name, at.ledger)
                for query in (shaped, scored):
                    assert await replay.complete(query) == await model.complete(query)

    run(main())


def test_nothing_that_is_answered_or_under_way_is_sent_again(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            async with at.open() as batches:
                await batches.submit(records(3))
                again = await batches.submit(records(5))
                assert (again.under_way, again.sent) == (3, 2)
            async with at.open() as batches:
                assert (await batches.submit(records(5))).under_way == 5
                assert (await batches.collect()).answered == 5
                assert await batches.submit(records(5)) == SubmittedBatches(received=5, answered=5)
            assert len(await at.provider()) == 2
            assert at.paid() == {1: 5}

    run(main())


def test_records_that_ask_the_same_share_one_request(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(stop_after=1)) as at, at.open() as batches:
            submitted = await batches.submit([("a", request(1)), ("b", request(2)), ("c", request(2))])
            assert (submitted.sent, submitted.under_way) == (2, 1)
            collected = await batches.collect()
            assert [entry.key for entry in collected.unanswered] == [compute_call_key(at.route.name, request(2))]
            assert at.paid() == {1: 1}

    run(main())


def test_replicas_are_requests_of_their_own(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open() as batches:
            await batches.submit([("a", request(1, replica=0)), ("a", request(1, replica=1))])
            assert (await batches.collect()).answered == 2

    run(main())


@pytest.mark.parametrize("limits", [{"requests": 3}, {"bytes": 900}])
def test_shards_keep_to_the_limits(tmp_path, limits):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open(**limits) as batches:
            submitted = await batches.submit(records(10))
            assert len(submitted.batches) == 4
            shards = [path.read_bytes() for path in at.folder.glob("*.jsonl")]
            sizes = sorted(len(shard.splitlines()) for shard in shards)
            assert sizes == [1, 3, 3, 3]
            assert max(map(len, shards)) <= limits.get("bytes", 10**9)
            assert (await batches.collect()).answered == 10

    run(main())


def test_a_request_larger_than_any_batch_is_refused_by_name(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open(bytes=400) as batches:
            long = Request(({"role": "user", "content": "x" * 400},))
            submitted = await batches.submit([("long", long), *records(2)])
            (refused,) = submitted.refused
            assert (refused.key, refused.reason) == (compute_call_key(at.route.name, long), "too_large")
            check(submitted, await batches.collect())
            assert submitted.sent == 2
            assert not any(intent.record_id == "long" for intent in await at.ledger.list_orphans())

    run(main())


def test_a_look_says_what_is_still_under_way(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(looks=3)) as at, at.open() as batches:
            submitted = await batches.submit(records(4))
            first = await batches.collect(wait=0)
            assert (first.under_way, first.answered) == (4, 0)
            check(submitted, first)
            assert (await batches.collect()).answered == 4
            assert await batches.collect() == CollectedBatches()

    run(main())


def test_a_budget_is_kept_and_what_it_covers_is_sent(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open(price=PRICE) as batches:
            worst = PRICE.cost(_worst())
            budget = RunBudget(3 * worst + 1)
            with pytest.raises(BudgetSpent):
                await batches.submit(records(5), budget)
            collected = await batches.collect()
            assert (collected.answered, at.notes()[0]["reserved"]) == (3, 3 * worst)
            budget.settle(3 * worst, collected.cost)
            assert (budget.reserved, budget.spent) == (0, collected.cost)

    def _worst():
        from eclose.calls.tokens import bound_request_usage

        return bound_request_usage(request(1))

    run(main())


# --- partial and disordered results ------------------------------------------------------------------------------


def test_results_in_another_order_are_joined_by_custom_id(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(shuffled=True)) as at, at.open() as batches:
            requests = records(40)
            await batches.submit(requests)
            assert (await batches.collect()).answered == 40
            output = next(at.folder.glob("*.output.jsonl")).read_text("utf-8").splitlines()
            inputs = next(at.folder.glob("?" * 64 + ".jsonl")).read_text("utf-8").splitlines()
            order = [[json.loads(line)["custom_id"] for line in lines] for lines in (inputs, output)]
            assert order[0] != order[1]
            assert await at.texts(requests) == [f"question {number} of many" for number in range(40)]

    run(main())


@pytest.mark.parametrize("stopped", ["expired", "cancelled"])
def test_what_a_stopped_batch_left_is_listed_and_sent_again_on_request(tmp_path, stopped):
    async def main() -> None:
        behaviour = BatchBehaviour(stop_after=4, stopped=stopped, shuffled=True)
        async with rig(tmp_path, behaviour) as at, at.open(price=PRICE) as batches:
            requests = records(10)
            submitted = await batches.submit(requests)
            collected = await batches.collect()
            check(submitted, collected)
            assert (collected.answered, reasons(collected)) == (4, {stopped: 6})
            # It was never executed, so it costs nothing, and nothing stays set aside for it.
            assert await compute_spending(at.ledger) == (collected.cost, 0)
            assert sum(text is not None for text in await at.texts(requests)) == 4
            rounds = 0
            while (await batches.submit(requests)).sent:
                await batches.collect()
                rounds += 1
            assert rounds == 2
            assert None not in await at.texts(requests)
            assert at.paid() == {1: 10}

    run(main())


def test_a_batch_that_expired_untouched_is_made_anew_and_not_adopted_again(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(stop_after=0)) as at, at.open() as batches:
            for _ in range(3):
                assert (await batches.submit(records(2))).sent == 2
                assert reasons(await batches.collect()) == {"expired": 2}
            listing = await at.provider()
            assert len(listing) == 3
            assert len({batch["metadata"]["eclose_shard"] for batch in listing}) == 1

    run(main())


def test_requests_without_a_result_are_missing_and_may_have_been_paid(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(missing=2)) as at, at.open() as batches:
            submitted = await batches.submit(records(6))
            collected = await batches.collect()
            check(submitted, collected)
            assert (collected.answered, reasons(collected)) == (4, {"missing": 2})
            keys = [compute_call_key(at.route.name, request(number)) for number in (4, 5)]
            assert {entry.key for entry in collected.unanswered} == set(keys)
            assert {intent.record_id for intent in await at.ledger.list_orphans()} == {"r0004", "r0005"}
            (note,) = at.notes()
            assert sorted(note["unanswered"].values()) == ["missing", "missing"]

    run(main())


def test_a_result_that_comes_twice_is_used_once_and_two_that_differ_not_at_all(tmp_path):
    async def main() -> None:
        behaviour = BatchBehaviour(repeated=1, contradicted=2, strangers=3, shuffled=True)
        async with rig(tmp_path, behaviour) as at, at.open() as batches:
            requests = records(6)
            submitted = await batches.submit(requests)
            collected = await batches.collect()
            check(submitted, collected)
            # The first two have results that differ; the first of them comes three times, twice the same.
            assert (collected.answered, reasons(collected)) == (4, {"contradicted": 2})
            assert collected.strays["unknown"] == 3
            assert collected.strays["contradicted"] + collected.strays["repeated"] == 3
            assert await at.texts(requests) == [None, None, *(f"question {number} of many" for number in range(2, 6))]

    run(main())


def test_a_repeated_result_is_counted(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(repeated=2)) as at, at.open() as batches:
            await batches.submit(records(3))
            collected = await batches.collect()
            assert (collected.answered, collected.strays) == (3, {"repeated": 2})

    run(main())


def test_a_torn_line_is_counted_and_its_request_missing(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(torn=True)) as at, at.open() as batches:
            submitted = await batches.submit(records(3))
            collected = await batches.collect()
            check(submitted, collected)
            assert (collected.answered, collected.strays) == (2, {"unreadable": 1})
            assert reasons(collected) == {"missing": 1}

    run(main())


def test_requests_that_failed_are_in_the_error_file_and_stay_unanswered(tmp_path):
    def choosy(asked: ChatRequest) -> ScriptedReply:
        if " 1 " in asked.messages[-1]["content"]:
            raise BadRequest("this one I cannot read")
        return echo(asked)

    async def main() -> None:
        async with rig(tmp_path, text=choosy) as at, at.open() as batches:
            submitted = await batches.submit(records(3))
            collected = await batches.collect()
            check(submitted, collected)
            (entry,) = collected.unanswered
            assert (entry.key, entry.reason) == (compute_call_key(at.route.name, request(1)), "permanent")
            assert "this one I cannot read" in entry.problem
            assert await at.ledger.list_orphans() == []

    run(main())


@pytest.mark.parametrize(
    "fault, reason", [(ServerFault.SERVER_ERROR, "transient"), (ServerFault.RATE_LIMIT, "rate_limit")]
)
def test_a_batch_in_which_everything_failed_has_no_output(tmp_path, fault, reason):
    async def main() -> None:
        async with rig(tmp_path, behaviour=always(fault)) as at, at.open() as batches:
            submitted = await batches.submit(records(3))
            collected = await batches.collect()
            check(submitted, collected)
            assert reasons(collected) == {reason: 3}

    run(main())


def test_bad_answers_are_answers_and_raised_as_online(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, behaviour=always(ServerFault.REFUSAL)) as at, at.open(price=PRICE) as batches:
            submitted = await batches.submit(records(2))
            collected = await batches.collect()
            check(submitted, collected)
            assert collected.answered == 2
            assert collected.cost > 0
            with pytest.raises(CallFailure, match="refusal"):
                await ReplayModel(at.route.name, at.ledger).complete(request(0))
            assert (await batches.submit(records(2))).answered == 2

    run(main())


def test_a_file_the_provider_refuses_leaves_all_unanswered_with_its_reason(tmp_path, monkeypatch):
    from eclose_world.server import batches as world

    async def main() -> None:
        monkeypatch.setattr(world, "MAX_BATCH_REQUESTS", 2)
        async with rig(tmp_path) as at, at.open() as batches:
            submitted = await batches.submit(records(3))
            collected = await batches.collect()
            check(submitted, collected)
            assert reasons(collected) == {"failed": 3}
            assert "too_many_tasks" in collected.unanswered[0].problem
            assert await at.ledger.list_orphans() == []

    run(main())


def test_a_form_the_provider_refuses_is_another_one_the_next_time_even_in_another_process(tmp_path):
    def newest(asked: ChatRequest) -> ScriptedReply:
        if "max_tokens" in asked.body:
            raise BadRequest("Use 'max_completion_tokens' instead of 'max_tokens'.")
        return echo(asked)

    async def main() -> None:
        async with rig(tmp_path, text=newest) as at:
            async with at.open() as batches:
                await batches.submit(records(2))
                assert reasons(await batches.collect()) == {"permanent": 2}
            async with at.open() as batches:
                await batches.submit(records(2))
                assert (await batches.collect()).answered == 2

    run(main())


def test_what_was_answered_online_meanwhile_stays_as_it_is(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open(price=PRICE) as batches, Endpoint(at.route) as model:
            await batches.submit(records(3))
            await (await connect_model(model, at.ledger, CallSettings(unpriced=True))).model.complete(request(1))
            collected = await batches.collect()
            assert (collected.answered, collected.cost) == (3, 2 * (4 + 2 * 4))

    run(main())


# --- a run that goes on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0, 1])
def test_a_batch_whose_making_was_never_confirmed_is_adopted(tmp_path, late):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(unheard=1, late=late)) as at:
            async with at.open() as batches:
                with pytest.raises(ServiceDown, match="run the same command again"):
                    await batches.submit(records(3))
            assert [note["state"] for note in at.notes()] == ["intended"]
            async with at.open() as batches:
                # The next run may ask for more and in another order: its shards are others.
                submitted = await batches.submit(records(5)[::-1])
                assert (submitted.under_way, submitted.sent) == (3, 2)
                assert (await batches.collect()).answered == 5
            assert at.paid() == {1: 5}
            assert await at.ledger.list_orphans() == []

    run(main())


def test_collecting_adopts_too(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(unheard=1)) as at:
            async with at.open() as batches:
                with pytest.raises(ServiceDown):
                    await batches.submit(records(3))
            async with at.open() as batches:
                assert (await batches.collect()).answered == 3

    run(main())


def test_a_provider_that_drops_what_is_written_on_a_batch_is_adopted_from_by_the_file(tmp_path, monkeypatch):
    from eclose.calls.batches import provider as batch_provider

    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(unheard=1)) as at:
            monkeypatch.setattr(batch_provider, "SHARD_TAG", "something_else")
            async with at.open() as batches:
                with pytest.raises(ServiceDown):
                    await batches.submit(records(3))
            monkeypatch.undo()
            async with at.open() as batches:
                assert (await batches.submit(records(3))).under_way == 3
            assert len(await at.provider()) == 1

    run(main())


def test_a_lost_folder_pays_nothing_again(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            async with at.open() as batches:
                await batches.submit(records(3))
            for path in at.folder.iterdir():
                path.unlink()
            async with at.open() as batches:
                submitted = await batches.submit(records(3))
                assert (submitted.sent, submitted.batches) == (3, [])
                assert (await batches.collect()).answered == 3
            assert at.paid() == {1: 3}

    run(main())


def test_batches_of_others_are_left_alone(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            for number in range(3):
                other = ModelBatches(at.route, at.ledger, tmp_path / f"other{number}", stage="other", settings=quick())
                async with other:
                    await other.submit([("x", request(1000 + number))])
            async with at.open() as batches:
                assert (await batches.submit(records(2))).sent == 2
                assert (await batches.collect()).answered == 2

    run(main())


def test_the_list_is_read_to_its_end(tmp_path, monkeypatch):
    from eclose.calls.batches import provider as batch_provider

    async def main() -> None:
        monkeypatch.setattr(batch_provider, "_PAGE", 2)
        async with rig(tmp_path, BatchBehaviour(unheard=1)) as at:
            async with at.open() as batches:
                with pytest.raises(ServiceDown):
                    await batches.submit(records(3))
            # Seven others make batches meanwhile, so that the lost one is on the fourth page.
            async with ModelBatches(
                at.route, at.ledger, tmp_path / "other", stage="x", settings=quick(requests=1)
            ) as other:
                await other.submit([(f"x{number}", request(1000 + number)) for number in range(7)])
            async with at.open() as batches:
                assert (await batches.submit(records(3))).under_way == 3
            assert len(await at.provider()) == 8

    run(main())


def test_what_a_killed_process_left_half_written_is_taken_away(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            async with at.open() as batches:
                await batches.submit(records(1))
            paths = sorted(at.folder.iterdir())
            for name in (".abc.jsonl.x1", ".abc.json.x2"):
                (at.folder / name).write_text("half")
            async with at.open():
                assert sorted(at.folder.iterdir()) == paths

    run(main())


def test_one_process_at_a_time(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open():
            with pytest.raises(UserError, match="is writing to it"):
                async with at.open():
                    pass

    run(main())


def test_another_model_needs_another_folder(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            async with at.open() as batches:
                await batches.submit(records(1))
            other = ModelRoute(at.server.base_url, "second", SecretStr(CANARY))
            async with ModelBatches(other, at.ledger, at.folder, stage="x", settings=quick()) as batches:
                with pytest.raises(SettingError, match="one folder per model"):
                    await batches.submit(records(1))

    run(main())


def test_a_damaged_note_stops_the_run(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            async with at.open() as batches:
                await batches.submit(records(1))
            (path,) = at.folder.glob("*.json")
            path.write_bytes(path.read_bytes()[:-20])
            async with at.open() as batches:
                with pytest.raises(UserError, match="damaged"):
                    await batches.submit(records(1))

    run(main())


def test_a_provider_that_is_down_or_denies_stops_the_run_and_tells_no_key(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at:
            for path, words in (("", "cannot be reached"), ("/nowhere", "404")):
                base = "http://127.0.0.1:9/v1" if not path else at.server.base_url + path
                lost = ModelBatches(
                    ModelRoute(base, "world", SecretStr(CANARY)),
                    at.ledger,
                    at.folder,
                    stage="x",
                    settings=quick(attempts=2),
                )
                async with lost:
                    with pytest.raises(ServiceDown, match=words) as raised:
                        await lost.submit(records(1))
                assert CANARY not in str(raised.value)
                assert raised.value.__context__ is None

    run(main())


PAGES = {
    "a page": web.Response(text="<html>Sign in</html>", content_type="text/html"),
    "broken JSON": web.Response(text='{"data": [', content_type="application/json"),
    "no list": web.Response(text="[]", content_type="application/json"),
    "no list either": web.Response(text='{"object": "list"}', content_type="application/json"),
    "no batches": web.Response(text='{"data": ["x", 3]}', content_type="application/json"),
    "an error": web.Response(status=500, text=f"key {CANARY} failed"),
}


@pytest.mark.parametrize("page", PAGES)
def test_what_is_no_answer_stops_the_run_and_sends_nothing(tmp_path, page):
    methods: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        methods.append(request.method)
        reply = PAGES[page]
        return web.Response(status=reply.status, body=reply.body, content_type=reply.content_type)

    async def main() -> None:
        async with site(handler) as base_url, Ledger.open(tmp_path / "ledger.db", run="a") as ledger:
            there = ModelRoute(base_url, "world", SecretStr(CANARY))
            async with ModelBatches(there, ledger, tmp_path / "b", stage="x", settings=quick(attempts=2)) as batches:
                with pytest.raises(ServiceDown) as raised:
                    await batches.submit(records(1))
            assert CANARY not in str(raised.value)
            assert await ledger.list_orphans() == []

    run(main())
    assert methods == ["GET", "GET"]


def test_a_page_in_the_place_of_results_is_not_taken_for_them(tmp_path, monkeypatch):
    async def page(self: BatchEndpoints, _: web.Request) -> web.Response:
        return web.Response(text="<html>Sign in</html>", content_type="text/html")

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(BatchEndpoints, "_content", page)
            async with rig(tmp_path) as at, at.open(attempts=2) as batches:
                await batches.submit(records(2))
                with pytest.raises(ServiceDown, match="page"):
                    await batches.collect()
                assert [note["state"] for note in at.notes()] == ["created"]

    run(main())


def test_results_that_are_gone_are_missing(tmp_path):
    async def main() -> None:
        async with rig(tmp_path) as at, at.open() as batches:
            await batches.submit(records(2))
            at.server._batch_endpoints._files.pop("file-000002")
            assert reasons(await batches.collect()) == {"missing": 2}

    run(main())


def test_the_key_is_in_no_file(tmp_path):
    async def main() -> None:
        async with rig(tmp_path, BatchBehaviour(stop_after=2)) as at, at.open() as batches:
            await batches.submit(records(3))
            await batches.collect()

    run(main())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 5
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_settings_that_let_nothing_through_are_refused(tmp_path):
    for wrong in ({"requests": 0}, {"bytes": 0}, {"poll": -1.0}, {"deadline": 0.0}):
        with pytest.raises(SettingError):
            BatchSettings(**wrong)
    with pytest.raises(SettingError, match="no model is named"):
        ModelBatches(ModelRoute("http://127.0.0.1:1/v1", ""), None, tmp_path, stage="x")  # type: ignore[arg-type]
