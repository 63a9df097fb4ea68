"""The cap holds whatever happens and in whichever order; prices are exact and never too low."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import replace
from decimal import Decimal
from importlib.machinery import ModuleSpec
from itertools import count, cycle
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eclose.calls import prices
from eclose.calls.budget import BudgetSpent, CostEstimate, RunBudget, estimate_cost
from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.ledger import commits
from eclose.calls.ledger.ledger import Ledger, RunAccount
from eclose.calls.model import Decoding, FinishReason, Reply, ReplySchema, Request, TokenUsage
from eclose.calls.paid_once import PaidOnceModel
from eclose.calls.prices import (
    ModelPrice,
    find_listed_price,
    format_money,
    read_price_currency,
    read_prices,
    to_millionths,
)
from eclose.calls.rate_limit import AdaptiveLimiter, RateLimits
from eclose.calls.retry import CircuitBreaker, RetryingModel, RetryPolicy
from eclose.calls.tokens import TokenCount, bound_request_usage, bound_token_count, estimate_token_count
from eclose.errors import SettingError, UserError
from eclose_world.server.app import open_model_server
from eclose_world.server.faults import ServerBehaviour, ServerFault
from tests.calls.http.test_endpoint import endpoint, request, run
from tests.calls.ledger.postgres import fresh_database
from tests.serving import registry

if TYPE_CHECKING:
    from pathlib import Path

PRICE = ModelPrice.of("1.25", "10")
ONE = ModelPrice(1_000_000, 0)
"""A token that is read costs a millionth."""


# --- the cap -----------------------------------------------------------------------------------------------------

OUTCOMES = st.sampled_from(["fine", "free", "cut off", "bad", "silent", "cancelled"])
CALLS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(0, 4), OUTCOMES), max_size=12)


class Dicey:
    """A model whose calls cost what was drawn, at most their worst case, and end as was drawn."""

    name = "dicey"

    def __init__(self, calls: list[tuple[int, int, int, str]], cap: int) -> None:
        self._calls = calls
        self._cap = cap
        self.charged = 0
        """What the provider would write on the bill."""

    async def complete(self, asked: Request) -> Reply:
        worst, cost, turns, outcome = self._calls[int(asked.messages[0]["content"])]
        cost = min(cost, worst)
        if outcome != "free":
            self.charged += cost
        assert self.charged <= self._cap
        for _ in range(turns):
            await asyncio.sleep(0)
        reply = Reply("x", FinishReason.STOP, TokenUsage(cost, 0) if cost else TokenUsage(0, 1))
        match outcome:
            case "free":
                raise CallFailure(CallFailureKind.TRANSIENT, "x", unpaid=True)
            case "cut off":
                raise CallFailure(CallFailureKind.TIMEOUT, "x")
            case "bad":
                raise CallFailure(CallFailureKind.INVALID, "x", reply=reply)
            case "silent":
                return Reply("x", FinishReason.STOP, TokenUsage(0, 0))
            case "cancelled":
                raise asyncio.CancelledError
        return reply


def paying(model: Any, ledger: Ledger, budget: RunBudget, count: TokenCount, price: ModelPrice = ONE) -> PaidOnceModel:
    """A model that keeps to a budget."""
    limiter = AdaptiveLimiter(RateLimits(start=1_000, ceiling=1_000))
    breaker = CircuitBreaker(RetryPolicy(), limiter)
    return PaidOnceModel(model, ledger, breaker, price=price, budget=budget, count=count)


async def spend(place: Path | str, run: str, cap: int, calls: list[tuple[int, int, int, str]]) -> None:
    budget = RunBudget(cap)
    model = Dicey(calls, cap)
    # A token costs one millionth, and the worst case of a call is what was drawn for it.
    worst = {str(number): call[0] for number, call in enumerate(calls)}
    async with Ledger.open(place, run=run) as ledger:
        paid = paying(model, ledger, budget, lambda text: worst[text] - 16)
        pending = [paid.complete(replica(str(number), run)) for number in range(len(calls))]
        outcomes = await asyncio.gather(*pending, return_exceptions=True)
        account = await ledger.compute_account()
    assert not [outcome for outcome in outcomes if isinstance(outcome, AssertionError)]
    assert account.reserved == 0
    assert model.charged <= account.spent + account.assumed <= cap
    for (worst_case, *_), outcome in zip(calls, outcomes, strict=True):
        # Refused is only what not even the end of all other calls could have made room for.
        assert not isinstance(outcome, BudgetSpent) or account.spent + account.assumed + worst_case > cap


def replica(text: str, run: str) -> Request:
    """A request of its own for every run: calls are shared by all runs of a ledger."""
    return replace(request(text), guideline=run)


@pytest.mark.slow
def test_many_runs_never_over_the_cap(tmp_path):
    numbers = count()
    with asyncio.Runner() as runner:

        @settings(max_examples=300, deadline=None)
        @given(cap=st.integers(0, 120), calls=CALLS)
        def check(cap: int, calls: list[tuple[int, int, int, str]]) -> None:
            runner.run(spend(tmp_path / "ledger.db", f"run {next(numbers)}", cap, calls))

        check()


def test_reserving_and_settling():
    budget = RunBudget(100)
    budget.reserve(60)
    with pytest.raises(BudgetSpent, match=r"0\.00 of 0\.0001 USD spent, up to 0\.00006 USD reserved: ") as raised:
        budget.reserve(41)
    assert isinstance(raised.value, UserError)
    assert raised.value.exit_code == 75
    budget.reserve(40)
    budget.settle(60, 10)
    budget.settle(40, 40, assumed=True)
    # What broke off may have been billed. It counts against the cap, and is not said to be spent.
    assert (budget.spent, budget.reserved, budget.assumed) == (10, 0, 40)
    with pytest.raises(BudgetSpent):
        budget.reserve(51)


def test_money_is_told_with_its_currency(tmp_path):
    assert [format_money(amount) for amount in (0, 740_000, 1_234_567_890, 400)] == [
        "0.00 USD",
        "0.74 USD",
        "1,234.57 USD",
        "0.0004 USD",
    ]
    (tmp_path / "p.yaml").write_text("currency: EUR\nmine: {input: 1, output: 2}\n")
    assert read_price_currency(tmp_path / "p.yaml") == "EUR"
    assert read_prices(tmp_path / "p.yaml") == {"mine": ModelPrice.of(1, 2)}
    # Published prices are in dollars: they are not mixed with others.
    with pytest.raises(SettingError, match="no price is known in EUR"):
        find_listed_price("openai/gpt-4o-mini", {}, "EUR")
    for wrong in ("euro", 7, "usd"):
        (tmp_path / "p.json").write_text(json.dumps({"currency": wrong}))
        with pytest.raises(SettingError, match="three capital letters"):
            read_price_currency(tmp_path / "p.json")


@pytest.mark.parametrize("installed", [True, False])
def test_unknown_price_names_the_list_where_it_is_not_installed_and_the_python_setting(monkeypatch, installed):
    monkeypatch.setattr(prices, "find_spec", lambda _: installed or None)
    with pytest.raises(SettingError, match="no price is known") as refused:
        find_listed_price("house/model", {})
    assert ("pip install 'eclose[prices]'" in str(refused.value)) is not installed
    assert "CallSettings(unpriced=True)" in str(refused.value)
    assert "as prices in a recipe" in str(refused.value)


def test_without_a_cap_it_only_counts():
    budget = RunBudget(None)
    budget.reserve(10**12)
    budget.settle(10**12, 2_500_000)
    assert str(budget) == "2.50 USD spent"
    with pytest.raises(SettingError):
        RunBudget(-1)


def test_sums_of_one_process_never_count_a_settled_call_twice(tmp_path, monkeypatch):
    """The totals that the ledger returns with a new intent may be older or newer than a reply that is being settled."""
    transact = commits.GroupCommitter._transact

    def transact_slowly(committer, batch):
        # On a slow disk replies and new intents wait together, and are committed in one transaction.
        time.sleep(0.002)
        return transact(committer, batch)

    monkeypatch.setattr(commits.GroupCommitter, "_transact", transact_slowly)

    async def main() -> None:
        sums, overcounts, replies, delays = [], [], count(1), cycle((0.0, 0.001, 0.003))
        paid_so_far = 0

        class WatchedBudget(RunBudget):
            def settle(self, reserved: int, spent: int, *, assumed: bool = False) -> None:
                super().settle(reserved, spent, assumed=assumed)
                overcounts.append(self.spent - paid_so_far)

        budget = WatchedBudget(None)

        async def reply(_: Request) -> Reply:
            nonlocal paid_so_far
            await asyncio.sleep(next(delays))
            paid_so_far = 10 * next(replies)
            return await _reply(TokenUsage(10, 0))

        server = SimpleNamespace(name="m", complete=reply)
        async with Ledger.open(tmp_path / "ledger.db", run="a") as ledger:
            paid = paying(server, ledger, budget, lambda _: 384)

            queue = asyncio.Semaphore(8)

            async def call(number: int) -> None:
                # New calls begin while others are being settled.
                async with queue:
                    await paid.complete(request(str(number)))
                sums.append((budget.reserved, budget.spent))

            await asyncio.gather(*(call(number) for number in range(200)))
        assert max(overcounts) <= 0
        assert min(reserved for reserved, _ in sums) >= 0
        assert max(spent for _, spent in sums) == 2_000
        assert (budget.reserved, budget.spent) == (0, 2_000)

    asyncio.run(main())


def test_a_server_that_charges_more_than_the_worst_case_stops_the_next_call(tmp_path):
    async def main() -> None:
        budget = RunBudget(1000)
        greedy = SimpleNamespace(name="greedy", complete=lambda _: _reply(TokenUsage(2000, 0)))
        async with Ledger.open(tmp_path / "ledger.db", run="a") as ledger:
            paid = paying(greedy, ledger, budget, lambda _: 400)
            await paid.complete(request("first"))
            assert budget.spent == 2000
            with pytest.raises(BudgetSpent):
                await paid.complete(request("second"))

    asyncio.run(main())


async def _reply(usage: TokenUsage) -> Reply:
    return Reply("x", FinishReason.STOP, usage)


@pytest.mark.database
def test_processes_that_share_a_ledger_share_the_cap():
    """Three openings of one run, each of which could spend the whole of it."""
    cap, url = 2_000, fresh_database()

    async def main() -> tuple[int, int, RunAccount]:
        paid = refused = 0

        async def complete(_: Request) -> Reply:
            nonlocal paid
            await asyncio.sleep(0.02)
            paid += 60
            assert paid <= cap
            return Reply("x", FinishReason.STOP, TokenUsage(60, 0))

        async def process(number: int) -> None:
            nonlocal refused
            model = SimpleNamespace(name="m", complete=complete)
            async with Ledger.open(url, run="a") as ledger:
                model = paying(model, ledger, RunBudget(cap), lambda _: 100)
                pending = [model.complete(request(f"{number} {each}")) for each in range(30)]
                outcomes = await asyncio.gather(*pending, return_exceptions=True)
                refused += sum(isinstance(outcome, BudgetSpent) for outcome in outcomes)
                assert {type(outcome) for outcome in outcomes} <= {Reply, BudgetSpent}

        await asyncio.gather(*map(process, range(3)))
        async with Ledger.open(url, run="a") as ledger:
            return paid, refused, await ledger.compute_account()

    paid, refused, account = asyncio.run(asyncio.wait_for(main(), 120))
    assert account == (paid, 0, 0)
    assert cap - 116 < paid <= cap
    assert paid // 60 + refused == 90


@pytest.mark.slow
def test_against_the_bill_of_the_world(tmp_path):
    """What the world charges is never more than the cap, nor than was counted as spent or as possibly billed."""

    async def main(cap: int, seed: int) -> None:
        faults = {
            ServerFault.CUT: 0.2,
            ServerFault.MALFORMED: 0.1,
            ServerFault.RATE_LIMIT: 0.1,
            ServerFault.SERVER_ERROR: 0.1,
        }
        behaviour = ServerBehaviour(faults=faults, seed=seed, retry_after=0.01, latency=0.01)
        async with (
            open_model_server(registry(), behaviour) as server,
            endpoint(server.base_url) as model,
            Ledger.open(tmp_path / f"{seed}.db", run="a") as ledger,
        ):
            policy, limiter = RetryPolicy(first_wait=0.01), AdaptiveLimiter(RateLimits(start=16))
            breaker = CircuitBreaker(policy, limiter)
            paid = PaidOnceModel(model, ledger, breaker, price=PRICE, budget=RunBudget(cap))
            retrying = RetryingModel(paid.name, paid.complete, breaker)
            calls = [retrying.complete(request(f"one two {n}", decoding=Decoding(max_tokens=20))) for n in range(40)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            totals = server.bill()["totals"]
            charged = PRICE.cost(TokenUsage(totals["prompt_tokens"], totals["completion_tokens"]))
            account = await ledger.compute_account()
            assert charged <= account.spent + account.assumed <= cap
            assert account.reserved == 0
            refused = sum(isinstance(outcome, BudgetSpent) for outcome in outcomes)
            assert refused == 0 if cap == 10**9 else 0 < refused < 40

    for seed, cap in enumerate((10**9, 1200)):
        run(main(cap, seed))


# --- tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("", 0),
        ("The quick brown fox", 7),  # 19 letters and blanks
        ("1926", 4),  # some tokenizers have a token for every digit
        ('{"id": 1}', 7),  # five signs, a digit, and a third of three letters and blanks
        ("日本", 6),
    ],
)
def test_tokens_of_a_text(text, about):
    assert estimate_token_count(text) == about
    assert bound_token_count(text) == len(text.encode()) >= about


@given(st.text())
def test_the_estimate_is_below_the_bound(text):
    assert estimate_token_count(text) <= bound_token_count(text)


def test_the_worst_case_counts_turns_schema_and_the_longest_reply():
    plain = request("a" * 100, decoding=Decoding(max_tokens=50))
    assert bound_request_usage(plain) == TokenUsage(116, 50)
    schema = ReplySchema("verdict", {"type": "object"})
    shaped = Request(plain.messages * 2, plain.decoding, schema)
    assert bound_request_usage(shaped) == TokenUsage(2 * 116 + len('{"type": "object"}') + 16, 50)


def test_an_estimate_before_anything_is_sent():
    requests = [request("a" * 300, decoding=Decoding(max_tokens=100)) for _ in range(1000)]
    # 1000 x (100 + 16) prompt tokens at 1.25 and 1000 x 100 at 10, per million: 0.145 + 1.00
    assert estimate_cost(requests, PRICE) == CostEstimate(1000, 116_000, 100_000, 1_145_000)
    assert estimate_cost(requests, None).cost is None
    assert estimate_cost(requests, PRICE, count=lambda _: 10).prompt_tokens == 26_000


# --- prices ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(1.25, 1_250_000), ("0.15", 150_000), (0, 0), (3, 3_000_000), (Decimal("0.0000001"), 1), (0.1 + 0.2, 300_001)],
)
def test_amounts_are_rounded_up(amount, expected):
    assert to_millionths(amount) == expected


@pytest.mark.parametrize("amount", ["", "free", -1, "nan", "inf", True, None, [1]])
def test_what_is_no_amount(amount):
    with pytest.raises(SettingError):
        to_millionths(amount)


def test_costs_are_rounded_up_to_a_millionth():
    assert PRICE.cost(TokenUsage(1_000_000, 1_000_000)) == 11_250_000
    assert PRICE.cost(TokenUsage(1, 0)) == 2  # 1.25 millionths
    assert PRICE.cost(TokenUsage(4, 0)) == 5
    assert PRICE.cost(TokenUsage(0, 0)) == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**8), st.integers(0, 10**8))
def test_cost_is_the_exact_sum_rounded_up(prompt, completion, first, second):
    exact = (Decimal(prompt) * first + Decimal(completion) * second) / 1_000_000
    assert 0 <= ModelPrice(first, second).cost(TokenUsage(prompt, completion)) - exact < 1


def test_a_price_file(tmp_path: Path):
    listed = {"openai/gpt-x": {"input": 1.25, "output": 10}, "mine": {"input": 0, "output": 0.1}}
    (tmp_path / "p.json").write_text(json.dumps(listed))
    (tmp_path / "p.yaml").write_text("openai/gpt-x: {input: 1.25, output: 10}\nmine: {input: 0, output: 0.1}\n")
    expected = {"openai/gpt-x": PRICE, "mine": ModelPrice(0, 100_000)}
    assert read_prices(tmp_path / "p.json") == expected
    assert read_prices(tmp_path / "p.yaml") == expected


def test_cached_tokens_have_a_price_of_their_own(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("mine: {input: 2, output: 8, cached_input: 0.5}\n")
    (price,) = read_prices(tmp_path / "p.yaml").values()
    usage = TokenUsage(1_000_000, 1_000_000, 400_000)
    assert price.cost(usage) == 1_200_000 + 200_000 + 8_000_000
    assert price.scaled(0.5).cost(usage) == price.cost(usage) / 2
    assert ModelPrice.of(2, 8).cost(usage) == 10_000_000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "expected a price for each model"),
        ("{", "cannot be read"),
        (
            '{"a": {"input": 1}, "b": {"input": "x", "output": 1}}',
            r"a: give two numbers.* b: 'x' is not an amount",
        ),
        ('{"a": {"input": 1, "output": 2, "cached": 3}}', "give two numbers"),
        ('{"a": {"input": 1, "output": 2, "cached_input": 3}}', "cached_input is higher than input"),
        ('{"a": 3}', "give two numbers, input and output"),
    ],
)
def test_mistakes_in_a_price_file(tmp_path: Path, text, problem):
    for name in ("p.json", "p.yaml"):
        (tmp_path / name).write_text(text)
        with pytest.raises(SettingError, match=problem):
            read_prices(tmp_path / name)


def test_a_price_file_in_another_encoding_is_a_sentence(tmp_path: Path):
    (tmp_path / "p.yaml").write_bytes("modèle: {input: 1, output: 2}".encode("latin-1"))
    with pytest.raises(SettingError, match="cannot be read"):
        read_prices(tmp_path / "p.yaml")


@pytest.fixture
def no_published_prices(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)


@pytest.mark.usefixtures("no_published_prices")
def test_a_price_is_found_by_its_whole_name_or_the_models():
    assert find_listed_price("openai/gpt-x", {"openai/gpt-x": PRICE}) == PRICE
    for listed in ("127.0.0.1:8000/Qwen/Qwen3-8B", "127.0.0.1/Qwen/Qwen3-8B", "Qwen/Qwen3-8B"):
        assert find_listed_price("127.0.0.1:8000/Qwen/Qwen3-8B", {listed: PRICE}) == PRICE
    assert find_listed_price("inspect/openai/m@127.0.0.1:8000", {"openai/m": PRICE}) == PRICE
    free = ModelPrice(0, 0)
    assert find_listed_price("a/b", {"a/b": free, "b": PRICE}) == free
    with pytest.raises(SettingError, match=r"openai/gpt-y: no price is known"):
        find_listed_price("openai/gpt-y", {"openai/gpt-x": PRICE})


def test_published_prices_are_taken_at_their_highest(monkeypatch):
    calls: list[Any] = []
    module = ModuleType("genai_prices")
    module.__spec__ = ModuleSpec("genai_prices", None)

    def calc_price(usage: Any, model: str, provider_id: str) -> Any:
        calls.append((vars(usage), model, provider_id))
        if model == "unknown":
            raise LookupError
        cached = hasattr(usage, "cache_read_tokens") and model == "gemini"
        return SimpleNamespace(input_price=Decimal("0.25" if cached else "2.50"), output_price=Decimal(15))

    module.calc_price, module.Usage = calc_price, SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "genai_prices", module)
    assert find_listed_price("google/gemini", {}) == ModelPrice.of("2.50", 15, "0.25")
    assert calls[0] == ({"input_tokens": 1_000_000, "output_tokens": 1_000_000}, "gemini", "google")
    assert find_listed_price("google/uncached", {}) == ModelPrice.of("2.50", 15)
    assert find_listed_price("google/gemini", {"google/gemini": PRICE}) == PRICE
    with pytest.raises(SettingError):
        find_listed_price("google/unknown", {})


def test_the_package_of_published_prices_answers_as_expected():
    pytest.importorskip("genai_prices", reason="optional")
    price = find_listed_price("openai/gpt-4o-mini", {})
    assert 0 < price.cached < price.prompt < price.completion
