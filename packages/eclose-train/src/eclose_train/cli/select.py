"""``eclose select``: select the best checkpoint of a training run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eclose.cli.shared.model_options import VllmSettings, parse_vllm_settings
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    format_count,
    format_percent,
    print_line,
    print_table,
    show_status,
)
from eclose.cli.shared.recipe import recipe_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclose_train.training.select import Selection


def select(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    *,
    families: Annotated[str, typer.Option(help="Held-out families: JSON Lines, Parquet, or a folder of either.")],
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch families from a hub: hf://datasets/OWNER/NAME[@REVISION].")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Name or folder of the weights.  [default: as in the run's recipe]")
    ] = None,
    engine: Annotated[Literal["transformers", "vllm"], typer.Option(help="What runs the model.")] = "transformers",
    vllm: VllmSettings = None,
    max_new_tokens: Annotated[int, recipe_key(min=1)] = 512,
    batch_tokens: Annotated[int, recipe_key(min=1)] = 32_768,
    force: Annotated[
        bool, typer.Option("--force", help="Select again although it was done with other settings.")
    ] = False,
) -> None:
    """Let every checkpoint answer held-out families, and select the one that answers best.

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
    from eclose_train.training.api import read_families
    from eclose_train.training.api import select as select_checkpoint

    # Read before the weights are loaded, so that a wrong file is refused at once.
    values, counts = read_families(families, hub=hub)
    with _show_progress() as (on_checkpoint, on_replies):
        selection = select_checkpoint(
            run,
            values,
            model=model,
            engine=engine,
            engine_settings=parse_vllm_settings(vllm),
            max_new_tokens=max_new_tokens,
            batch_tokens=batch_tokens,
            force=force,
            on_checkpoint=on_checkpoint,
            on_replies=on_replies,
        )
    print_line(f"{families}: {counts}")
    for name in selection.interrupted:
        print_line(f"  {name}: has no complete.json, so its writing was interrupted; skipped")
    _print_selection(selection, len(values))
    # Without any answer all scores are 0 and the first checkpoint would win by the rule for ties: nothing was measured.
    raise typer.Exit(QUARANTINED_EXIT_CODE if counts.quarantined or not selection.has_answers else 0)


@contextmanager
def _show_progress() -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show the checkpoint and the number of its replies on standard error, on a terminal only."""
    current = ""
    with show_status("") as show:

        def on_checkpoint(name: str) -> None:
            nonlocal current
            current = name
            show(name)

        def on_replies(count: int, total: int) -> None:
            show(f"{current}: {count:,} of {total:,} replies")

        yield on_checkpoint, on_replies


def _print_selection(selection: Selection, families: int) -> None:
    rows = []
    for scored in selection.checkpoints:
        accuracy = scored.accuracy
        shares = [format_percent(rate.value) for rate in accuracy.rates.values()]
        mark = "selected" if selection.has_answers and scored is selection.best else ""
        score = format_percent(float(accuracy.score))
        rows.append([str(scored.checkpoint.step), *shares, score, str(accuracy.unanswered), mark])
    title = f"{format_count(len(rows), 'checkpoint')} on {families:,} {'family' if families == 1 else 'families'}"
    typer.echo()
    print_table(title, ["step", "original", "evidence", "question", "score", "incomplete", ""], rows)
    if selection.has_answers:
        print_line(f"{selection.best.checkpoint.folder.name} is the best: {selection.adapter}")
    if selection.warning:
        # On standard error as well: a warning must not get lost where the tables are redirected to a file.
        typer.echo(f"eclose: {selection.warning}.", err=True)
