"""``eclose select``: which checkpoint of a run is kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED, percent, plural, print_table, printable, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose.core.family import Family
    from eclose.store.records.counts import Counts
    from eclose.training.select import Adaptable, Origin, Selection


class EngineName(StrEnum):
    """What runs the model."""

    TRANSFORMERS = "transformers"
    VLLM = "vllm"


def select(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.", show_default=False)],
    families: Annotated[Path, typer.Option(help="Held-out families, one JSON object a line.", show_default=False)],
    model: Annotated[
        str | None, typer.Option(help="Where the weights lie, if not where the recipe says.", show_default=False)
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="What runs the model.")] = EngineName.TRANSFORMERS,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Longest reply in tokens; what is cut off is wrong.")
    ] = 512,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of a batch, prompts and replies; transformers only. Changes no result.")
    ] = 32_768,
    force: Annotated[bool, typer.Option("--force", help="Select anew though it was done with other settings.")] = False,
) -> None:
    """Let every checkpoint answer held-out families, and keep the one that answers best.

    Greedy decoding; an answer counts when it matches the view's own, or an alias of the source's. Where a family has
    several evidence edits, the first by passage and content is taken, the same for every checkpoint.

    \b
    original, evidence, question   % right under the three inputs of a family
    score       half of the first and a quarter of the others; ties go to
                the earlier checkpoint
    incomplete  replies without a submitted answer; they count as wrong

    Where no reply submits an answer, no checkpoint is selected: the exit code is 3 and selection.json says why.
    Stopped at any moment, the same command goes on with the first checkpoint that is not finished.
    """
    from eclose.training.select import Settings, read_origin
    from eclose.training.select import select as choose

    origin = read_origin(run, model)
    given, counts = _families(families)
    with _progress() as (tell, count):
        selection = choose(
            run,
            given,
            Settings(origin, engine.value, max_new_tokens),
            lambda: _load(origin, engine, run, batch_tokens, count),
            force=force,
            tell=tell,
        )
    say(f"{families}: {counts}")
    for name in selection.torn:
        say(f"  {name}: has no complete.json, so it broke off while it was written; passed over")
    _print(selection, len(given))
    raise typer.Exit(QUARANTINED if counts.quarantined or not selection.answered else 0)


def _families(path: Path) -> tuple[list[Family], Counts]:
    from eclose.errors import UserError
    from eclose.store.records.counts import RecordCounter
    from eclose.store.records.families import scan_families

    tally, found = RecordCounter(), []
    for record in scan_families(path):
        tally.note(record)
        if record.value is not None:
            found.append(record.value)
    if not found:
        raise UserError(f"{path}: there is no family to select on ({tally.counts()}).")
    return found, tally.counts()


def _load(
    origin: Origin, engine: EngineName, run: Path, batch_tokens: int, count: Callable[[int, int], None]
) -> Adaptable:
    if engine is EngineName.VLLM:
        from eclose.models.local.vllm_model import VllmModel, adapter_rank
        from eclose.training.checkpoints import find_candidates

        rank = max(adapter_rank(candidate.folder) for candidate in find_candidates(run)[0])
        return VllmModel.load(origin.model, revision=origin.revision, dtype=origin.dtype, rank=rank)
    _require_torch()
    from eclose.models.local.transformers_model import TransformersModel

    return TransformersModel.load(
        origin.model, revision=origin.revision, dtype=origin.dtype, batch_tokens=batch_tokens, progress=count
    )


def _require_torch() -> None:
    from importlib.util import find_spec

    from eclose.errors import UserError

    if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
        raise UserError(f"generating needs {', '.join(missing)}. Run: pip install 'eclose[train]'")


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """On a terminal, a line on standard error that says which checkpoint is asked and how far it got."""
    if not sys.stderr.isatty():
        yield (lambda _: None), (lambda _done, _of: None)
        return
    from rich.console import Console
    from rich.text import Text

    asked = ""
    with Console(stderr=True).status("") as status:

        def tell(checkpoint: str) -> None:
            nonlocal asked
            asked = printable(checkpoint)
            status.update(Text(asked))

        def count(done: int, of: int) -> None:
            status.update(Text(f"{asked}: {done:,} of {of:,} replies"))

        yield tell, count


def _print(selection: Selection, families: int) -> None:
    rows = []
    for scored in selection.scored:
        accuracy = scored.accuracy
        shares = [percent(rate.value) for rate in accuracy.rates.values()]
        mark = "selected" if selection.answered and scored is selection.chosen else ""
        score = percent(float(accuracy.score))
        rows.append([str(scored.candidate.step), *shares, score, str(accuracy.unanswered), mark])
    title = f"{plural(len(rows), 'checkpoint')} on {families:,} {'family' if families == 1 else 'families'}"
    typer.echo()
    print_table(title, ["step", "original", "evidence", "question", "score", "incomplete", ""], rows)
    if selection.answered:
        say(f"{selection.chosen.candidate.folder.name} is the best: {selection.adapter}")
    if selection.warning:
        typer.echo(f"eclose: {selection.warning}.", err=True)
