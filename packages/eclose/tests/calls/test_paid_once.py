"""What was answered once is never asked again, and what may have been billed is never forgotten."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from eclose.calls.budget import RunBudget
from eclose.calls.client import CallSettings, connect_model
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.ledger.ledger import CallIntent, Ledger
from eclose.calls.model import (
    CallContext,
    Decoding,
    FinishReason,
    Reply,
    ReplySchema,
    Request,
    TokenLogprob,
    TokenUsage,
    identify_request,
)
from eclose.calls.paid_once import (
    NotRecordedError,
    PaidOnceModel,
    ReplayModel,
    compute_call_key,
    decode_stored_reply,
    encode_stored_answer,
)
from eclose.calls.prices import ModelPrice
from eclose.calls.rate_limit import AdaptiveLimiter
from eclose.calls.retry import CircuitBreaker, RetryPolicy, ServiceDown
from tests.calls.ledger.postgres import DATABASES, fresh_database
from tests.calls.ledger.spending import compute_spending

ASKED = Request(({"role": "user", "content": "Who?"},), Decoding(max_tokens=10))
SAID = Reply("Jewison", FinishReason.STOP, TokenUsage(5, 2), (TokenLogprob("J", -0.1, (("J", -0.1), ("K", -2.0))),))
PRICE = ModelPrice.of(1, 2)


@pytest.fixture(params=DATABASES)
def where(request, tmp_path):
    return tmp_path / "ledger.db" if request.param == "sqlite" else fresh_database()


class Script:
    """Says one thing after another; a failure is raised."""

    name = "house/model"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def complete(self, request):
        self.asked.append(request)
        await asyncio.sleep(0.01)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def using(where, work, *answers, price=PRICE):
    """Whatever the work returns; the model that was asked; what the ledger says after."""
    script = Script(*answers)

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            result = await work(recorded(script, ledger, price))
            return result, script.asked, await compute_spending(ledger), await ledger.list_orphans()

    return asyncio.run(main())


def recorded(model, ledger, price=None, cap=None):
    """A model whose calls are paid once."""
    breaker = CircuitBreaker(RetryPolicy(), AdaptiveLimiter())
    return PaidOnceModel(model, ledger, breaker, price=price, budget=RunBudget(cap))


def asking(*requests):
    async def work(model):
        return await asyncio.gather(*(model.complete(request) for request in requests), return_exceptions=True)

    return work


def failure(kind, **more):
    return CallFailure(kind, "went wrong.", **more)


def test_a_reply_is_kept_and_found_again(where):
    (reply,), requests, spent, orphans = using(where, asking(ASKED), SAID)
    assert (reply, len(requests), spent, orphans) == (SAID, 1, (PRICE.cost(SAID.usage), 0), [])
    assert using(where, asking(ASKED))[:2] == ([SAID], [])


def test_those_who_ask_the_same_at_once_get_one_answer(where):
    replies, requests, *_ = using(where, asking(*[ASKED] * 5), SAID)
    assert replies == [SAID] * 5
    assert len(requests) == 1


def test_one_request_to_two_models_is_two_calls(where):
    """Also one after the other in one task, where the key is remembered on the way down."""
    other = replace(SAID, text="Lumet")
    first, second = Script(SAID), Script(other)
    second.name = "house/another"

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            return [await recorded(model, ledger, PRICE).complete(ASKED) for model in (first, second)]

    assert asyncio.run(main()) == [SAID, other]


def test_if_the_first_fails_the_next_may_try(where):
    replies, requests, *_ = using(where, asking(ASKED, ASKED), failure(CallFailureKind.TIMEOUT), SAID)
    assert isinstance(replies[0], CallFailure)
    assert replies[1] == SAID
    assert len(requests) == 2


def test_every_part_of_a_request_tells_calls_apart():
    others = [
        replace(ASKED, messages=({"role": "user", "content": "Who ?"},)),
        replace(ASKED, messages=({"role": "system", "content": "Who?"},)),
        *(replace(ASKED, decoding=replace(ASKED.decoding, **{name: value})) for name, value in
          {"max_tokens": 11, "temperature": 0.1, "top_p": 0.5, "seed": 1, "top_logprobs": 3}.items()),
        replace(ASKED, schema=ReplySchema("a", {"type": "object"})),
        replace(ASKED, schema=ReplySchema("b", {"type": "object"})),
        replace(ASKED, schema=ReplySchema("a", {"type": "array"})),
        replace(ASKED, replica=1),
        replace(ASKED, attempt=1),
        replace(ASKED, guideline="sha256:1"),
    ]  # fmt: skip
    keys = [compute_call_key("m", request) for request in (ASKED, *others)] + [compute_call_key("n", ASKED)]
    assert len(set(keys)) == len(keys)
    assert compute_call_key("m", replace(ASKED, messages=({"content": "Who?", "role": "user"},))) == keys[0]


def test_a_bad_answer_is_an_answer_and_is_kept_like_one(where):
    refused = failure(CallFailureKind.REFUSAL, reply=SAID, raw='{"refusal": "no"}')
    (error,), requests, spent, orphans = using(where, asking(ASKED), refused)
    assert (error.kind, error.problem, error.reply, error.raw) == (
        CallFailureKind.REFUSAL, "went wrong.", SAID, '{"refusal": "no"}'
    )  # fmt: skip
    assert (spent, orphans) == ((PRICE.cost(SAID.usage), 0), [])
    (again,), requests, *_ = using(where, asking(ASKED))
    assert (again.kind, str(again), again.reply, requests) == (error.kind, str(error), SAID, [])


def test_a_bad_answer_of_unknown_price_counts_as_the_worst(where):
    *_, spent, orphans = using(where, asking(ASKED), failure(CallFailureKind.EMPTY))
    assert spent[0] > PRICE.cost(SAID.usage)
    assert orphans == []


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (failure(CallFailureKind.RATE_LIMIT, unpaid=True), 0),
        (failure(CallFailureKind.TIMEOUT), 1),
        (failure(CallFailureKind.TRANSIENT), 1),
        (failure(CallFailureKind.PERMANENT, unpaid=True), 0),
        (ServiceDown("gone"), 0),
    ],
)
def test_what_was_surely_not_billed_is_released_and_the_rest_stays_listed(where, error, left):
    _, _, spent, orphans = using(where, asking(ASKED), error)
    assert len(orphans) == left
    assert (spent[1] > 0) == bool(left)
    # Whatever it was, it is no answer: the next who asks is sent.
    assert using(where, asking(ASKED), SAID)[0] == [SAID]


def test_a_send_says_on_whose_behalf_it_is(where):
    async def work(model):
        context = CallContext("judge", "r7")
        return await asyncio.gather(model.complete(ASKED, context), return_exceptions=True)

    orphans = using(where, work, failure(CallFailureKind.TIMEOUT))[3]
    assert [(intent.stage, intent.record_id) for intent in orphans] == [("judge", "r7")]


def test_the_intent_is_on_disk_before_the_request_leaves_and_the_reply_before_anybody_sees_it(where):
    orphan_counts = []

    class Looking(Script):
        async def complete(self, _):
            orphan_counts.append(len(await self.ledger.list_orphans()))
            return SAID

    async def main():
        script = Looking()
        async with Ledger.open(where, run="a") as ledger:
            script.ledger = ledger
            await recorded(script, ledger).complete(ASKED)
            return await ledger.find_reply(compute_call_key(script.name, ASKED))

    assert decode_stored_reply(asyncio.run(main())) == SAID
    assert orphan_counts == [1]


@pytest.mark.database
def test_workers_that_ask_the_same_at_the_same_time_go_on_with_one_answer():
    """On one ledger, in two openings: one is sent, the other waits for its answer."""
    url = fresh_database()
    other = replace(SAID, text="Another")

    async def main():
        async with Ledger.open(url, run="a") as first, Ledger.open(url, run="a") as second:
            scripts = [Script(SAID), Script(other)]
            models = [recorded(script, ledger) for script, ledger in zip(scripts, (first, second), strict=True)]
            replies = await asyncio.gather(*(model.complete(ASKED) for model in models))
            return replies, sum(len(script.asked) for script in scripts), await first.list_orphans()

    replies, sent, orphans = asyncio.run(main())
    assert replies[0] == replies[1]
    assert (sent, orphans) == (1, [])


def test_unusable_answer_that_another_process_paid_for_is_raised_and_not_counted_again(where):
    class AnsweredMeanwhile(CircuitBreaker):
        """While a request waits for its turn, another process gets its answer."""

        failures = 0

        @asynccontextmanager
        async def admit(self, _request):
            await self.ledger.intend(CallIntent(key, identify_request("house/model", ASKED), "judge", "r1"))
            await self.ledger.settle(encode_stored_answer(key, failure(CallFailureKind.INVALID, reply=SAID), cost=7))
            try:
                yield
            except CallFailure:
                self.failures += 1
                raise

    key = compute_call_key("house/model", ASKED)

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            breaker, budget = AnsweredMeanwhile(RetryPolicy(), AdaptiveLimiter()), RunBudget(None)
            breaker.ledger = ledger
            model = PaidOnceModel(Script(), ledger, breaker, price=PRICE, budget=budget)
            with pytest.raises(CallFailure) as raised:
                await model.complete(ASKED)
            return raised.value.kind, breaker.failures, (budget.spent, budget.reserved, budget.assumed)

    assert asyncio.run(main()) == (CallFailureKind.INVALID, 0, (0, 0, 0))


def test_what_waits_in_the_queue_is_not_noted(where):
    """A process that is killed leaves no more behind than what it had under way."""
    noted = []

    class Slow(Script):
        async def complete(self, _request):
            noted.append(len(await self.ledger.list_orphans()))
            await asyncio.sleep(0.02)
            return SAID

    async def main():
        async with Ledger.open(where, run="a") as ledger:
            model = Slow()
            model.ledger = ledger
            connection = await connect_model(model, ledger, CallSettings(concurrency=2, unpriced=True))
            await asyncio.gather(*(connection.model.complete(replace(ASKED, replica=number)) for number in range(12)))

    asyncio.run(main())
    assert len(noted) == 12
    assert max(noted) <= 2 + 2  # with those whose answers are being written


@pytest.mark.database
def test_a_call_that_another_process_has_under_way_is_waited_for_and_never_sent_again():
    url = fresh_database()

    async def main():
        async with Ledger.open(url, run="a") as ledger_a, Ledger.open(url, run="b") as ledger_b:
            sent = asyncio.Event()

            class Held(Script):
                async def complete(self, request):
                    sent.set()
                    await asyncio.sleep(1.5)
                    return await super().complete(request)

            first, second = Held(SAID), Script(SAID)
            asking_first = asyncio.create_task(recorded(first, ledger_a, PRICE).complete(ASKED))
            await sent.wait()
            reply = await recorded(second, ledger_b, PRICE).complete(ASKED)
            return (
                reply,
                await asking_first,
                len(second.asked),
                await ledger_a.compute_account(),
                await ledger_b.compute_account(),
            )

    reply, first, sent_again, paid, free = asyncio.run(main())
    assert reply == first == SAID
    assert sent_again == 0
    assert paid == (PRICE.cost(SAID.usage), 0, 0)
    assert free == (0, 0, 0)


def test_a_replay_asks_nobody(where):
    using(where, asking(ASKED), SAID)

    async def main():
        async with Ledger.open(where, run="b") as ledger:
            model = ReplayModel(Script.name, ledger)
            reply = await model.complete(ASKED)
            with pytest.raises(NotRecordedError, match="no reply to sha256:"):
                await model.complete(replace(ASKED, replica=1))
            return reply

    assert asyncio.run(main()) == SAID


def test_a_kept_reply_is_whole():
    key = compute_call_key("m", ASKED)
    settled = encode_stored_answer(key, SAID, cost=3)
    assert (decode_stored_reply(settled), settled.usage, settled.cost) == (SAID, (5, 2), 3)


def test_a_bad_answer_that_is_surely_free_costs_nothing(where):
    *_, spent, orphans = using(where, asking(ASKED), failure(CallFailureKind.REFUSAL, unpaid=True))
    assert (spent, orphans) == ((0, 0), [])
