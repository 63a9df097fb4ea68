"""Trying again: who may, how often, how soon; and when the run stops."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from email.utils import formatdate
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import CallContext, FinishReason, Reply, Request, TokenUsage
from eclose.calls.rate_limit import AdaptiveLimiter, RateLimits
from eclose.calls.retry import CircuitBreaker, RetryingModel, RetryPolicy, ServiceDown
from eclose.errors import SettingError, UserError
from eclose_world.server.app import open_model_server
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.http.test_endpoint import VERDICT, completion, endpoint, request, run, site
from tests.calls.test_rate_limit import failure, in_no_time, now
from tests.serving import registry

if TYPE_CHECKING:
    from collections.abc import Callable

K = CallFailureKind
GOOD = Reply("fine", FinishReason.STOP, TokenUsage(5, 1))


class Script:
    """A model that does what a function of the call's number says, and notes when it was asked."""

    name = "scripted"

    def __init__(self, outcome: Callable[[int], CallFailure | Reply], seconds: float = 0.0) -> None:
        self._outcome = outcome
        self._seconds = seconds
        self.asked: list[float] = []

    async def complete(self, _: Request) -> Reply:
        self.asked.append(now())
        outcome = self._outcome(len(self.asked))
        await asyncio.sleep(self._seconds)
        if isinstance(outcome, CallFailure):
            raise outcome
        return outcome


def first(count: int, kind: CallFailureKind, retry_after: float | None = None) -> Callable[[int], CallFailure | Reply]:
    return lambda number: failure(kind, retry_after) if number <= count else GOOD


def always(kind: CallFailureKind) -> Callable[[int], CallFailure | Reply]:
    return lambda _: failure(kind)


class GatedModel:
    """A model behind a breaker, as ``PaidOnceModel`` is."""

    def __init__(self, model: Any, breaker: CircuitBreaker) -> None:
        self._model, self._breaker = model, breaker

    async def complete(self, request: Request, _context: CallContext) -> Reply:
        async with self._breaker.admit(request):
            reply = await self._model.complete(request)
            self._breaker.record_success()
            return reply


def retrying(model, policy=None, limiter=None, **more):
    """Put retries, breaker and rate limit around a model."""
    policy, limiter = policy or RetryPolicy(), limiter or AdaptiveLimiter()
    breaker = CircuitBreaker(policy, limiter)
    return RetryingModel(model.name, GatedModel(model, breaker).complete, breaker, **more)


def patient(model: Script, **settings: Any) -> RetryingModel:
    """Retries that stop by the number of failures alone, unless told otherwise."""
    return retrying(model, RetryPolicy(**{"breaker_seconds": 0.0, **settings}), rng=Random(1))


async def failed(call: Any) -> CallFailure:
    with pytest.raises(CallFailure) as raised:
        await call
    return raised.value


@pytest.mark.parametrize("kind", [K.RATE_LIMIT, K.CONNECTION])
def test_what_costs_a_record_nothing(kind):
    async def main() -> None:
        model = Script(first(15, kind))
        assert await patient(model, attempts=1).complete(request()) == GOOD
        assert len(model.asked) == 16

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.TRANSIENT, K.TIMEOUT])
def test_what_the_service_fails_at_is_tried_a_few_times(kind):
    async def main() -> None:
        model = Script(first(4, kind))
        assert await patient(model, attempts=5).complete(request()) == GOOD
        model = Script(always(kind))
        assert (await failed(patient(model, attempts=5).complete(request()))).kind is kind
        assert len(model.asked) == 5

    in_no_time(main())


def test_free_failures_do_not_use_up_the_others():
    async def main() -> None:
        kinds = [K.RATE_LIMIT, K.TRANSIENT, K.CONNECTION, K.RATE_LIMIT, K.TRANSIENT, K.CONNECTION]
        model = Script(lambda number: failure(kinds[number - 1]) if number <= 6 else GOOD)
        retrier = patient(model, attempts=3)
        assert await retrier.complete(request()) == GOOD
        assert retrier.failures == Counter({K.RATE_LIMIT: 2, K.TRANSIENT: 2, K.CONNECTION: 2})

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.PERMANENT, K.INVALID, K.LENGTH, K.REFUSAL, K.EMPTY])
def test_what_is_not_tried_again(kind):
    async def main() -> None:
        model = Script(always(kind))
        assert (await failed(patient(model).complete(request()))).kind is kind
        assert len(model.asked) == 1

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.INVALID, K.LENGTH, K.REFUSAL, K.EMPTY])
def test_bad_answers_are_asked_again_if_told_to_and_counted(kind):
    async def main() -> None:
        model = Script(first(2, kind))
        retrier = patient(model, semantic_attempts=3)
        assert await retrier.complete(request()) == GOOD
        assert len(model.asked) == 3
        assert await retrier.complete(request()) == GOOD
        assert len(model.asked) == 4
        assert retrier.failures == Counter({kind: 2})
        model = Script(always(kind))
        await failed(patient(model, semantic_attempts=2).complete(request()))
        assert len(model.asked) == 2

    in_no_time(main())


def test_waits_are_random_up_to_a_bound_that_doubles():
    async def gaps(seed: int) -> list[float]:
        model = Script(first(8, K.RATE_LIMIT))
        retrier = retrying(
            model, RetryPolicy(first_wait=1, longest_wait=10), AdaptiveLimiter(RateLimits(cooldown=0)), rng=Random(seed)
        )
        await retrier.complete(request())
        return [after - before for before, after in zip(model.asked, model.asked[1:], strict=False)]

    runs = [in_no_time(gaps(seed)) for seed in range(100)]
    for attempt, most in enumerate([1, 2, 4, 8, 10, 10, 10, 10]):
        waits = sorted(gaps[attempt] for gaps in runs)
        assert 0 <= waits[0] < 0.1 * most  # full jitter: down to nothing
        assert 0.9 * most < waits[-1] <= most


@pytest.mark.parametrize("kind", [K.RATE_LIMIT, K.TRANSIENT])
def test_retry_after_is_kept_to_the_moment(kind):
    async def main() -> None:
        model = Script(first(3, kind, retry_after=30.0))
        await patient(model).complete(request())
        assert model.asked == [1000.0, 1030.0, 1060.0, 1090.0]

    in_no_time(main())


def test_last_failure_is_counted_and_not_waited_after():
    async def main() -> None:
        model = Script(first(9, K.TRANSIENT, retry_after=2.0))
        retrier = retrying(model, RetryPolicy(attempts=3, breaker_seconds=0))
        await failed(retrier.for_record(CallContext("judge", "r7")).complete(request()))
        assert retrier.failures == Counter({K.TRANSIENT: 3})
        assert (model.asked, now()) == ([1000.0, 1002.0, 1004.0], 1004.0)

    in_no_time(main())


# --- when the run stops ------------------------------------------------------------------------------------------


async def all_of(asked: RetryingModel, count: int) -> Counter[str]:
    async def outcome(number: int) -> str:
        try:
            await asked.complete(request(f"q{number}"))
        except ServiceDown:
            return "stopped"
        except CallFailure as failure:
            return failure.kind
        return "fine"

    return Counter(await asyncio.gather(*(outcome(number) for number in range(count))))


@pytest.mark.parametrize("kind", [K.CONNECTION, K.TRANSIENT, K.TIMEOUT])
@pytest.mark.parametrize("workers", [8, 64, 500])
def test_the_breaker_opens_and_nobody_leaves_after_it(kind, workers):
    async def main() -> None:
        model = Script(always(kind), seconds=0.1)
        outcomes = await all_of(patient(model, breaker_failures=20), workers)
        assert outcomes["stopped"] >= workers - 5
        # Those under way when it opened had left before.
        assert len(model.asked) <= 20 + 7
        assert now() < 1030  # whoever slept was woken

    in_no_time(main())


def test_a_stop_can_be_taken_up_again():
    async def main() -> None:
        model = Script(always(K.CONNECTION))
        with pytest.raises(ServiceDown, match=r"failed 20 times in a row.*run the same command again") as raised:
            await patient(model).complete(request())
        assert isinstance(raised.value, UserError)
        assert raised.value.exit_code == 75
        assert len(model.asked) == 20

    in_no_time(main())


@pytest.mark.parametrize("kind", [K.CONNECTION, K.TRANSIENT])
def test_a_dead_server_stops_the_run_after_enough_failures_and_enough_time(kind):
    async def main() -> None:
        model = Script(always(kind), seconds=0.01)
        outcomes = await all_of(retrying(model, rng=Random(1)), 128)
        # Whoever was failed for a minute when the breaker was a moment from opening is given up with its own reason.
        assert outcomes["stopped"] >= 120
        assert 1060 <= now() < 1075

    in_no_time(main())


def test_neither_failures_nor_seconds_alone_stop_the_run():
    async def main() -> None:
        model = Script(lambda _: GOOD if now() >= 1059 else failure(K.TRANSIENT), seconds=0.01)
        assert await all_of(retrying(model, rng=Random(1)), 128) == Counter({"fine": 128})
        assert len(model.asked) > 128 * 4
        model = Script(first(15, K.CONNECTION))
        assert await retrying(model, rng=Random(1)).complete(request()) == GOOD
        assert now() > 1000 + 120

    in_no_time(main())


def test_a_record_that_alone_fails_is_given_up_and_the_run_goes_on():
    class Poisoned(Script):
        async def complete(self, asked: Request) -> Reply:
            if asked.messages[0]["content"] == "q7":
                self.asked.append(now())
                raise failure(K.TRANSIENT)
            await asyncio.sleep(0.5)
            return GOOD

    async def main() -> None:
        model = Poisoned(always(K.TRANSIENT))
        assert await all_of(retrying(model, rng=Random(1)), 100) == Counter({"fine": 99, K.TRANSIENT: 1})
        model = Poisoned(always(K.TRANSIENT))
        assert (await failed(retrying(model, rng=Random(1)).complete(request("q7")))).kind is K.TRANSIENT
        assert len(model.asked) >= 5

    in_no_time(main())


def test_progress_tells_for_how_long_nothing_got_through():
    async def main() -> None:
        model = Script(lambda _: GOOD if now() >= 1030 else failure(K.TRANSIENT), seconds=0.01)
        retrier = retrying(model, rng=Random(1))
        calls = asyncio.create_task(all_of(retrier, 64))
        assert retrier.trouble is None
        await asyncio.sleep(20)
        assert re.fullmatch(r"no success for (19|20) s \(stops at 60 s\)", retrier.trouble or "")
        await calls
        assert retrier.trouble is None

    in_no_time(main())


def test_a_message_ends_with_one_full_stop():
    async def main() -> None:
        problem = CallFailure(K.CONNECTION, "the server cannot be reached (Name or service not known).")
        with pytest.raises(ServiceDown) as raised:
            await patient(Script(lambda _: problem)).complete(request())
        assert ".." not in str(raised.value)

    in_no_time(main())


def test_any_success_closes_the_count():
    async def main() -> None:
        model = Script(lambda number: GOOD if number % 20 == 0 else failure(K.CONNECTION))
        retrier = patient(model, breaker_failures=20)
        for _ in range(5):
            await retrier.complete(request())

    in_no_time(main())


def test_being_turned_away_is_no_failure_of_the_service():
    async def main() -> None:
        model = Script(first(500, K.RATE_LIMIT))
        assert await patient(model, first_wait=0.1, longest_wait=1).complete(request()) == GOOD

    in_no_time(main())


def test_who_may_not_ask_at_all_stops_at_once():
    async def main() -> None:
        model = Script(always(K.DENIED))
        with pytest.raises(ServiceDown, match="refuses all requests"):
            await patient(model).complete(request())
        assert len(model.asked) == 1

    in_no_time(main())


def test_nobody_sleeps_on_when_the_run_stops():
    async def main() -> None:
        model = Script(lambda number: failure(K.TRANSIENT if number == 1 else K.DENIED))
        assert await all_of(patient(model, first_wait=1000, longest_wait=1000), 2) == Counter({"stopped": 2})
        assert now() == 1000.0

    in_no_time(main())


def test_nobody_waits_for_a_place_when_the_run_stops():
    async def main() -> None:
        model = Script(lambda number: failure(K.DENIED) if number == 3 else failure(K.RATE_LIMIT, 800), seconds=0.5)
        retrier = retrying(model, limiter=AdaptiveLimiter(RateLimits(start=3, ceiling=3)))
        assert await all_of(retrier, 50) == Counter({"stopped": 50})
        assert now() == 1000.5
        assert len(model.asked) == 3

    in_no_time(main())


def test_a_service_that_takes_no_request_at_all_stops_the_run():
    async def main() -> None:
        for kind in (K.PERMANENT, K.TOO_LONG):
            model = Script(always(kind))
            outcomes = await all_of(retrying(model, limiter=AdaptiveLimiter(RateLimits(start=1, ceiling=1))), 100)
            assert outcomes == Counter({kind: 19, "stopped": 81})
        model = Script(lambda number: GOOD if number == 5 else failure(K.PERMANENT))
        assert await all_of(patient(model), 100) == Counter({K.PERMANENT: 99, "fine": 1})

    in_no_time(main())


def test_tokens_a_minute_are_counted_as_providers_do():
    async def main() -> None:
        model = Script(lambda _: GOOD)
        retrier = retrying(model, limiter=AdaptiveLimiter(RateLimits(tokens_per_minute=6000)))
        await all_of(retrier, 3)
        # "q0" is a letter and a digit: 1 + 1 + 16 for the turn, and 512 for the reply: 530 of 6000 a minute.
        assert model.asked == pytest.approx([1000.0, 1005.3, 1010.6])

    in_no_time(main())


def test_a_server_that_wants_us_back_tomorrow_stops_the_run():
    async def main() -> None:
        model = Script(first(1, K.RATE_LIMIT, retry_after=86_400))
        with pytest.raises(ServiceDown, match="asks for a pause of 86,400 s"):
            await patient(model).complete(request())
        assert now() < 1001

    in_no_time(main())


def test_a_record_that_never_gets_through_is_given_up_though_others_do():
    async def main() -> None:
        class Picky(Script):
            async def complete(self, asked: Request) -> Reply:
                if asked.messages[0]["content"] == "poison":
                    raise failure(K.RATE_LIMIT)
                return GOOD

        asked = patient(Picky(always(K.RATE_LIMIT)), endurance=600)
        poison = asyncio.create_task(failed(asked.complete(request("poison"))))
        while not poison.done():
            assert now() < 2000
            await asked.complete(request())
            await asyncio.sleep(20)
        assert (await poison).kind is K.RATE_LIMIT
        assert 1600 <= now() < 1700

    in_no_time(main())


def test_when_nobody_gets_through_for_long_the_run_stops():
    async def main() -> None:
        with pytest.raises(ServiceDown, match="no call succeeded for 600 s"):
            async with asyncio.timeout(2000):
                await patient(Script(always(K.RATE_LIMIT)), endurance=600).complete(request())

    in_no_time(main())


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"semantic_attempts": 0},
        {"semantic_attempts": 4},
        {"breaker_failures": 0},
        {"breaker_seconds": -1},
        {"first_wait": -1},
    ],
)
def test_settings_that_cannot_work(settings):
    with pytest.raises(SettingError):
        RetryPolicy(**settings)


# --- storms ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_storm_of_ninety_seconds_without_a_clock():
    """30 % turned away for 60 s, everybody for 30 s; then 80 % of the throughput is back within 30 s."""
    latency, ceiling, weather = 1.0, 64, Random(5)

    class Server:
        name = "stormy"

        def __init__(self) -> None:
            self.served: list[float] = []
            self.early = 0
            self.not_before = 0.0

        async def complete(self, _: Request) -> Reply:
            at = now() - 1000
            self.early += at < self.not_before
            rate = 0.0 if at < 30 or at >= 120 else 0.3 if at < 90 else 1.0
            if weather.random() < rate:
                # Those who ask in the same instant cannot know yet.
                asyncio.get_running_loop().call_soon(self.close_until, at + 2.0)
                raise failure(K.RATE_LIMIT, retry_after=2.0)
            await asyncio.sleep(latency)
            self.served.append(at + latency)
            return GOOD

        def close_until(self, then: float) -> None:
            self.not_before = then

    async def main() -> None:
        server = Server()
        retrier = retrying(server, limiter=AdaptiveLimiter(RateLimits(ceiling=ceiling)))
        numbers = iter(range(8000))

        async def worker() -> None:
            for _ in numbers:
                await retrier.complete(request())

        await asyncio.gather(*(worker() for _ in range(ceiling)))
        assert len(server.served) == 8000  # nobody failed
        assert server.early == 0
        per_second = Counter(int(at) for at in server.served)
        assert per_second[25] == ceiling
        assert sum(per_second[second] for second in range(92, 120)) == 0
        assert per_second[150] >= 0.8 * ceiling

    in_no_time(main())


class Storm:
    """A server over HTTP: calm, 30 % turned away, then everybody, then calm again. It notes who comes too early."""

    def __init__(self, *, as_date: bool, wait: float, some: float, all_of_them: float) -> None:
        self._as_date = as_date
        self._wait = wait
        self._phases = (some, some + all_of_them)
        self._start = time.monotonic()
        self._weather = Random(3)
        self._not_before: dict[str, float] = {}
        self.early = self.turned_away = self.answered = 0

    async def handle(self, asked: web.Request) -> web.Response:
        key, at = (await asked.json())["messages"][0]["content"], time.monotonic()
        self.early += at < self._not_before.get(key, 0.0)
        some, everybody = self._phases
        rate = 0.3 if at - self._start < some else 1.0 if at - self._start < everybody else 0.0
        if self._weather.random() < rate:
            return self._turn_away(key, at)
        await asyncio.sleep(0.02)
        self.answered += 1
        return web.json_response(completion())

    def _turn_away(self, key: str, at: float) -> web.Response:
        self.turned_away += 1
        retry_after = f"{self._wait:g}"
        self._not_before[key] = at + self._wait
        if self._as_date:
            then = ceil(time.time() + self._wait)
            retry_after = formatdate(then, usegmt=True)
            self._not_before[key] = at + then - time.time()
        return web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": retry_after})


@pytest.mark.slow
@pytest.mark.parametrize(("as_date", "wait", "some", "all_of_them"), [(False, 0.3, 1.0, 1.0), (True, 0.5, 1.0, 0.5)])
def test_a_storm_over_http(as_date, wait, some, all_of_them):
    async def main() -> None:
        storm = Storm(as_date=as_date, wait=wait, some=some, all_of_them=all_of_them)
        async with site(storm.handle) as url, endpoint(url) as model:
            retrier = retrying(model, limiter=AdaptiveLimiter(RateLimits(start=16, ceiling=32, cooldown=0.5)))
            assert await all_of(retrier, 150) == Counter({"fine": 150})
        assert storm.early == 0
        assert storm.answered == 150
        assert storm.turned_away > 5
        assert retrier.failures == Counter({K.RATE_LIMIT: storm.turned_away})

    run(main(), 60)


@pytest.mark.slow
def test_the_world_with_all_faults_at_once():
    """Everything that can be mended by trying again is; what cannot is reported; nothing is paid twice for a 429."""
    faults = {
        ServerFault.RATE_LIMIT: 0.2,
        ServerFault.SERVER_ERROR: 0.1,
        ServerFault.UNAVAILABLE: 0.1,
        ServerFault.BAD_GATEWAY: 0.1,
        ServerFault.DROP: 0.1,
        ServerFault.CUT: 0.1,
        ServerFault.MALFORMED: 0.1,
    }

    async def main() -> None:
        behaviour = ServerBehaviour(faults=faults, seed=2, retry_after=0.05, max_faults_per_key=4, max_concurrency=12)
        async with open_model_server(registry(), behaviour) as server, endpoint(server.base_url) as model:
            retrier = retrying(
                model, RetryPolicy(first_wait=0.02, attempts=6), AdaptiveLimiter(RateLimits(start=8, cooldown=0.3))
            )

            async def ask(number: int) -> str:
                try:
                    return (await retrier.complete(request(f"q{number}", schema=VERDICT))).text
                except CallFailure as failure:
                    return failure.kind

            outcomes = await asyncio.gather(*(ask(number) for number in range(100)))
            totals = server.bill()["totals"]
            verdicts = [text for text in outcomes if text.startswith("{")]
            invalid = outcomes.count(K.INVALID)
            assert len(verdicts) + invalid == 100
            assert invalid == totals["faulted"]["malformed"] > 0
            assert all(f'"q{number}"' in text for number, text in enumerate(outcomes) if text in verdicts)
            assert totals["early"] == 0
            assert totals["paid"] == 100 + totals["faulted"]["cut"]

    run(main(), 60)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [ServerFault.UNAVAILABLE, ServerFault.DROP])
def test_an_outage_over_http_stops_the_run_and_the_rest_is_done_later(fault):
    async def main() -> None:
        behaviour = ServerBehaviour(faults={fault: 1.0}, max_faults_per_key=10_000)
        async with open_model_server(registry(), behaviour) as server, endpoint(server.base_url) as model:
            retrier = retrying(
                model, RetryPolicy(first_wait=0.01, breaker_seconds=0), AdaptiveLimiter(RateLimits(start=8))
            )
            outcomes = await all_of(retrier, 100)
            assert outcomes["stopped"] >= 95
            assert server.bill()["totals"]["received"] <= 20 + 7
        async with open_model_server(registry()) as server, endpoint(server.base_url) as model:
            assert await all_of(retrying(model), 100) == Counter({"fine": 100})

    run(main(), 60)
