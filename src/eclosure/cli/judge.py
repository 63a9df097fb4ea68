"""``eclosure judge``: let a model judge responses under the locked guidelines, and find out how far to trust it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from eclosure.benchmarks.formats import Format
from eclosure.cli.calls import (
    BaseUrl,
    Budget,
    Concurrency,
    Deadline,
    DryRun,
    JudgeName,
    LedgerPlace,
    NoPrice,
    Prices,
    Replay,
    RequestsPerMinute,
    Retry,
    TokensPerMinute,
    call_settings,
    shown_estimate,
)
from eclosure.cli.output import QUARANTINED, percent, percent_range, print_table, say
from eclosure.cli.runs import say_run

if TYPE_CHECKING:
    from eclosure.chat.connect import CallSettings
    from eclosure.chat.named import Named
    from eclosure.judge.asking import JudgeSettings
    from eclosure.judge.run import Sources
    from eclosure.judge.validate import Validation


class _JudgesByDefault(TyperGroup):
    """``eclosure judge RUN`` is ``eclosure judge run RUN``: what is no command of its own is to be judged."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the command in where it was left out."""
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in own else ["run", *args])


app = typer.Typer(
    cls=_JudgesByDefault,
    no_args_is_help=True,
    help="Let a model judge responses (eclosure judge RUN --judge MODEL), and find out how far to trust it.",
)


@app.command(name="run")
def judge(
    responses: Annotated[
        Path,
        typer.Argument(
            help="A run's folder, a file of responses, or a file with questions and responses side by side.",
            show_default=False,
        ),
    ],
    *,
    judge_model: JudgeName,
    instances: Annotated[
        Path | None, typer.Option(help="The questions, where they are in a file of their own.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run's folder.  [default: that of the responses]", show_default=False),
    ] = None,
    base_url: BaseUrl = None,
    reference_free: Annotated[
        bool, typer.Option("--reference-free", help="Show the judge no reference: no completeness, no correctness.")
    ] = False,
    attempts: Annotated[int, typer.Option(min=1, help="Times a judge is asked that answers in no usable form.")] = 2,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 4096,
    layout: Annotated[Format, typer.Option("--format", help="The layout of a file that has both.")] = Format.AUTO,
    concurrency: Concurrency = 64,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    deadline: Deadline = 120.0,
    budget: Budget = None,
    prices: Prices = None,
    no_price: NoPrice = False,
    ledger: LedgerPlace = None,
    dry_run: DryRun = False,
    retry: Retry = False,
    replay: Replay = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what other work has written.")] = False,
) -> None:
    """Let a model judge every response: is the evidence enough, does each step hold, does the trace pursue the
    question, does it establish the answer, and is that answer right.

    One call for each of these, and none of them is shown more than it may see. Writes judgments.jsonl into the run's
    folder. What the judge could not be brought to judge has no label and a reason. Stop it at any moment, and run the
    same command again: it goes on, and nothing that was answered is asked or paid twice.
    """
    from eclosure.chat.named import find_model
    from eclosure.cli.progress import watched
    from eclosure.judge.asking import JudgeSettings
    from eclosure.judge.run import find_sources, judge_responses

    folder = out or (responses if responses.is_dir() else responses.parent)
    sources = find_sources(responses, folder, instances, layout)
    settings = JudgeSettings(reference_free=reference_free, attempts=attempts, max_tokens=max_tokens)
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
    if dry_run:
        asyncio.run(_forecast(sources, model, settings, calls))
        return
    flags = {"ledger": ledger, "retry": retry, "replay": replay, "force": force}
    running = judge_responses(sources, model, folder, settings, calls, watch=watched, **flags)  # type: ignore[arg-type]
    done = asyncio.run(running)
    say_run(done)
    raise typer.Exit(QUARANTINED if done.manifest.counts.quarantined else 0)


async def _forecast(sources: Sources, model: Named, settings: JudgeSettings, calls: CallSettings) -> None:
    from eclosure.chat.named import Served
    from eclosure.judge.run import forecast

    if isinstance(model, Served):
        model = await model.settled(calls.deadline)
    say(f"{model.name}: {shown_estimate(forecast(sources, model, settings, calls))}")


@app.command()
def validate(
    run: Annotated[Path, typer.Argument(help="A judged run's folder.", show_default=False)],
    verdicts: Annotated[
        Path, typer.Option(help="Verdicts of people (or of the world) on some of its responses.", show_default=False)
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="[default: validation.json in the run]", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="For the intervals.")] = 42,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2_000,
) -> None:
    """Hold a judge against people: agreement, what it misses, what it finds that is not there, and corrected rates.

    People need to have labelled only some of the responses, but these must be a random sample. Writes a small file that
    later reports print beside every rate of this judge.
    """
    import numpy as np

    from eclosure.core.response import Response
    from eclosure.judge.validate import read_judgments, read_verdicts, write
    from eclosure.judge.validate import validate as hold_against
    from eclosure.store.folder import JUDGMENTS, RESPONSES, VALIDATION
    from eclosure.store.manifest import read_manifest
    from eclosure.store.records import read
    from eclosure.store.stage import beside

    manifest = read_manifest(beside(run / JUDGMENTS, "manifest.json"))
    found = hold_against(
        read_judgments(run / JUDGMENTS),
        read_verdicts(verdicts),
        read(run / RESPONSES, Response),
        settings=manifest.settings,
        rng=np.random.default_rng(seed),
        resamples=resamples,
    )
    place = out or run / VALIDATION
    write(place, found)
    _say_validation(found)
    say(f"{place}: written")


def _say_validation(found: Validation) -> None:
    """One line for each label: how far the judge agrees, where it errs, and what the rates come to."""
    say(f"{found.judge}: {found.labelled:,} of {found.judged:,} responses were labelled")
    head = ("label", "n", "agreement", "kappa", "balanced", "misses", "false alarms", "judge", "corrected")
    rows = []
    for row in found.overall.rows.values():
        corrected = found.corrected[row.label]
        interval = percent_range(corrected.interval)
        rows.append(
            (
                str(row.label),
                f"{row.n:,}" + (f" of {row.labelled:,}" if row.unjudged else ""),
                f"{percent(row.scores.agreement.value)} [{percent_range(row.scores.agreement.interval)}]",
                percent(row.scores.kappa.value),
                percent(row.scores.balanced_accuracy.value),
                f"{row.misses:,}",
                f"{row.false_alarms:,}",
                percent(corrected.judge),
                f"{percent(corrected.value)} [{interval}]",
            )
        )
    print_table("How far to trust it, in percent; a failure is the event to be found", head, rows)
