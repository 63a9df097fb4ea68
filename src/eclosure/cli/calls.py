"""Flags that all commands share that ask a model, each also found in the environment: how it is called, and what for.

None of them changes what is asked, so a run may go on with other values.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclosure.cli.output import say

if TYPE_CHECKING:
    from eclosure.chat.budget import Estimate
    from eclosure.chat.connect import CallSettings
    from eclosure.chat.crew import Maker
    from eclosure.chat.inquiry import Finished


def _option(flag: str, help: str, **settings: Any) -> Any:  # noqa: A002 - as typer calls it
    """A flag that is also found in the environment, under its name with ``ECLOSURE_`` before it."""
    variable = "ECLOSURE_" + flag.removeprefix("--").replace("-", "_").upper()
    return typer.Option(flag, help=help, envvar=variable, show_envvar=False, **settings)


def _optional(flag: str, help: str, **settings: Any) -> Any:  # noqa: A002
    return _option(flag, help, show_default=False, **settings)


class Engine(StrEnum):
    """Where calls are made from."""

    PROCESS = "process"
    RAY = "ray"


ModelName = Annotated[str, _optional("--model", "provider/model, a base URL, a model's folder, or vllm:NAME.")]
JudgeName = Annotated[
    str, _optional("--judge", "Who judges: provider/model, a base URL, a model's folder, or vllm:NAME.")
]
BaseUrl = Annotated[
    str | None,
    _optional("--base-url", "Where an OpenAI-compatible server listens, such as http://127.0.0.1:8000/v1."),
]
Concurrency = Annotated[int, _option("--concurrency", "Calls under way at most.", min=1)]
RequestsPerMinute = Annotated[int | None, _optional("--requests-per-minute", "Send no faster.", min=1)]
TokensPerMinute = Annotated[int | None, _optional("--tokens-per-minute", "Read and write no faster.", min=1)]
Deadline = Annotated[float, _option("--deadline", "Seconds for one call.", min=0.1)]
Budget = Annotated[float | None, _optional("--budget", "What the run may cost; never exceeded.", min=0)]
Prices = Annotated[
    Path | None,
    _optional("--prices", "Prices per million tokens, YAML or JSON: name: {input: 1.25, output: 10}."),
]
NoPrice = Annotated[bool, _option("--no-price", "Ask a model whose price is not known.")]
LedgerPlace = Annotated[
    str | None,
    _optional("--ledger", "Where calls are kept: a file, or postgresql://…  [default: ledger.sqlite in the run]"),
]
EngineName = Annotated[Engine, _option("--engine", "Where the calls are made from: this process, or workers of Ray.")]
Workers = Annotated[int, _option("--workers", "How many, with --engine ray.", min=1)]
RayAddress = Annotated[
    str | None, _optional("--ray-address", "A running cluster; auto for this machine's.  [default: one of our own]")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print calls, tokens and cost; send and write nothing.")]
Retry = Annotated[bool, typer.Option("--retry", help="Try again what was quarantined.")]
Replay = Annotated[bool, typer.Option("--replay", help="Answer from the ledger alone; nothing is sent.")]


def call_settings(
    *,
    concurrency: int,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    deadline: float,
    budget: float | None,
    prices: Path | None,
    no_price: bool,
) -> CallSettings:
    """The flags as one value; a budget without prices is a contradiction."""
    from eclosure.chat.connect import CallSettings
    from eclosure.errors import SettingError

    if no_price and budget is not None:
        raise SettingError("--no-price and --budget: a budget needs a price. Leave one of them out.")
    return CallSettings(
        concurrency=concurrency,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        deadline=deadline,
        budget=budget,
        prices=prices,
        unpriced=no_price,
    )


def run_on_workers(
    make: Maker,
    calls: CallSettings,
    ledger: str | None,
    workers: int,
    address: str | None,
    *,
    retry: bool,
    force: bool,
) -> Finished:
    """The same by workers of Ray, with a line for everything that happens to them."""
    from eclosure.chat.crew import inquire_on_ray
    from eclosure.store.cluster import RaySettings

    ray = RaySettings(workers=workers, address=address)
    return inquire_on_ray(make, calls, ledger or "ledger.sqlite", ray, retry=retry, force=force, tell=say)


def shown_estimate(estimate: Estimate) -> str:
    """``40 calls, about 61,000 tokens read and at most 40,960 written, at most 0.12``."""
    from eclosure.chat.prices import MILLION

    cost = "cost unknown" if estimate.cost is None else f"about {estimate.cost / MILLION:.2f} at most"
    return (
        f"{estimate.calls:,} calls, about {estimate.prompt_tokens:,} tokens read and "
        f"at most {estimate.completion_tokens:,} written, {cost}"
    )
