"""``eclosure screen``: which questions can be used to study reasoning."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclosure.benchmarks.formats import Format
from eclosure.cli.calls import (
    BaseUrl,
    Budget,
    Concurrency,
    Deadline,
    JudgeName,
    LedgerPlace,
    NoPrice,
    Prices,
    Replay,
    RequestsPerMinute,
    Retry,
    TokensPerMinute,
    call_settings,
)
from eclosure.cli.output import QUARANTINED, plural
from eclosure.cli.runs import say_run

if TYPE_CHECKING:
    from eclosure.chat.inquiry import Finished


def screen(
    instances: Annotated[
        Path, typer.Argument(help="Questions with passages and reference answers.", show_default=False)
    ],
    *,
    judge_model: JudgeName,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the run.", file_okay=False, show_default=False)
    ],
    base_url: BaseUrl = None,
    attempts: Annotated[int, typer.Option(min=1, help="Times a judge is asked that answers in no usable form.")] = 2,
    layout: Annotated[Format, typer.Option("--format", help="The layout of the records.")] = Format.AUTO,
    concurrency: Concurrency = 64,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    deadline: Deadline = 120.0,
    budget: Budget = None,
    prices: Prices = None,
    no_price: NoPrice = False,
    ledger: LedgerPlace = None,
    retry: Retry = False,
    replay: Replay = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what other work has written.")] = False,
) -> None:
    """Let a model say which questions are well posed, settled by their passages, and rightly answered by their
    reference; the others get one reason, N1 to N5.

    Writes screening.jsonl, which eclosure data intersect --eligible reads.
    """
    from eclosure.chat.named import find_model
    from eclosure.cli.progress import watched
    from eclosure.judge.asking import JudgeSettings
    from eclosure.judge.screen import screen_questions

    calls = call_settings(
        concurrency=concurrency,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        deadline=deadline,
        budget=budget,
        prices=prices,
        no_price=no_price,
    )
    model = find_model(judge_model, base_url=base_url)
    running = screen_questions(
        instances,
        model,
        out,
        JudgeSettings(attempts=attempts),
        calls,
        layout=layout,
        ledger=ledger,
        retry=retry,
        replay=replay,
        force=force,
        watch=watched,
    )
    done = asyncio.run(running)
    say_run(done, _outcome(done))
    raise typer.Exit(QUARANTINED if done.manifest.counts.quarantined else 0)


def _outcome(done: Finished) -> str:
    """``866 eligible, 434 not (N1 65, N2 165, …), 0 without a label``."""
    from eclosure.core.judgment import Screening
    from eclosure.store.records import read

    found = Counter((one.eligible, one.code) for one in read(done.stage.out, Screening))
    codes = {code: count for (_, code), count in sorted(found.items(), key=str) if code is not None}
    listed = ", ".join(f"{code} {count:,}" for code, count in sorted(codes.items()))
    refused = f"{sum(codes.values()):,} not" + (f" ({listed})" if listed else "")
    return f"{plural(found[True, None], 'question')} eligible, {refused}, {found[None, None]:,} without a label"
