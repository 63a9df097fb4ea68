"""``eclose train``: train an adapter on counterfactual families."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclose.cli.shared.output import format_count, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.files.jsonl import ReadRecord
    from eclose_train.training.run import TrainingResult, TrainingRunForecast

_EXAMPLES = 3


def train(
    context: typer.Context,
    families: Annotated[str, typer.Argument(help="Families to train on: JSON Lines, Parquet, or a folder of either.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    recipe: Annotated[Path | None, typer.Option(help="File of settings (YAML); flags take precedence.")] = None,
    development: Annotated[
        str | None, typer.Option(help="Families to evaluate every checkpoint on: JSON Lines, Parquet, or a folder.")
    ] = None,
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch families from a hub: hf://datasets/OWNER/NAME[@REVISION].")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Seed of the order of families, the choice of edits and the adapter's initial values.  [default: 42]",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print families, updates, tokens and trained parameters; load no weights and write nothing.",
        ),
    ] = False,
) -> None:
    """Train an adapter on families, each in one forward where the model allows it.

    Any other setting is a flag of the same name, after the families, with the paper's value where it is not given.
    Every field of Transformers' TrainingArguments is one; docs/train-settings.md lists ours.

    \b
      --model NAME            weights: a name on the hub, a folder, a GGUF file
      --method sft            another objective than e_closure: sft, cf_sft, rm
      --method e_closure-S    E-Closure without S; -T and -C without T and C
      --learning-rate 1e-4
      --max-steps 100
      --report-to tensorboard

    Of a folder of eclose construct or eclose families export, the training split is trained on and, for --development,
    the other one is evaluated on. The same families are the same run in every form.

    Stopped at any moment, the same command goes on from the last complete checkpoint; once done, it does nothing.
    SIGTERM finishes the update, writes a checkpoint and exits with 143.

    \b
    Several processes on one machine, also without a GPU:
      torchrun --nproc_per_node 2 -m eclose.cli.main train ...
    """
    import sys

    from eclose.errors import SettingError
    from eclose.progress import write_progress_line

    if families.startswith("-"):
        # Settings are not known here, so what follows one might be its value or the families.
        raise SettingError(f"{families}: settings come after the families. Write eclose train FAMILIES {families} ...")
    from eclose_train.training.api import forecast_training
    from eclose_train.training.api import train as train_families
    from eclose_train.training.recipe import parse_recipe_flags

    # A seed of None is left out, so that a recipe's seed is used; a flag takes precedence over the recipe.
    settings = {**parse_recipe_flags(context.args), **({} if seed is None else {"seed": seed})}
    if dry_run:
        _print_forecast(
            forecast_training(families, out=out, recipe=recipe, development=development, hub=hub, **settings)
        )
        return
    # Off a terminal, lines say how far it is: a training runs for hours, often into a log.
    progress = True if sys.stderr.isatty() else write_progress_line
    result = train_families(
        families, out=out, recipe=recipe, development=development, hub=hub, progress=progress, **settings
    )
    _print_result(result)


def _print_forecast(forecast: TrainingRunForecast) -> None:
    """Print what a run would do, line by line; one process of several does."""
    from eclose_train.training.run import is_first_process

    if not is_first_process():
        return
    counts = forecast.counts
    print_line(f"{forecast.method} on {forecast.model}")
    print_line(f"  families: {counts}")
    _print_left_out(forecast.left_out, "eclose_train.training.api.forecast_training lists all")
    if forecast.held_out is not None:
        print_line(f"  held-out families: {forecast.held_out}")
    updates = format_count(forecast.updates, "update")
    families = format_count(forecast.families_per_update, "family", "families")
    epochs = f"{forecast.epochs:,.4g} {'epoch' if forecast.epochs == 1 else 'epochs'}"
    print_line(f"  {updates} of {families}, {epochs}")
    tokens, total = forecast.tokens, forecast.counts.accepted
    about = "" if tokens.counted >= total else f", estimated from {tokens.counted:,} of {total:,} families"
    print_line(
        f"  tokens of an epoch: {tokens.computed:,} where scores share prefixes, {tokens.plain:,} where they"
        f" cannot{about}"
    )
    share = 100 * forecast.trained_parameters / forecast.parameters
    print_line(f"  trained parameters: {forecast.trained_parameters:,} of {forecast.parameters:,} ({share:.3g} %)")
    print_line(f"  folder: {forecast.out}{_describe_folder(forecast)}")


def _describe_folder(forecast: TrainingRunForecast) -> str:
    if forecast.finished:
        return " (done before, nothing to do)"
    return f" (continues from {forecast.resumes_from.name})" if forecast.resumes_from else " (new)"


def _print_left_out(left_out: Sequence[ReadRecord[Any]], source: str) -> None:
    """Print the first families that are left out with their reasons, and where the others are."""
    for record in left_out[:_EXAMPLES]:
        print_line(f"  {record.where}: {record.rejected or record.error}")
    if len(left_out) > _EXAMPLES:
        print_line(f"  and {format_count(len(left_out) - _EXAMPLES, 'more record')}: {source}")


def _print_result(result: TrainingResult) -> None:
    """Print the adapter, the counts of families and the last figures; one process of several does."""
    from eclose_train.training.run import is_first_process

    # torchrun runs this command in several processes, which all print to the same terminal.
    if not is_first_process():
        return
    print_line(f"{result.adapter}: {result.counts}" + (" (done before, nothing to do)" if result.again else ""))
    if result.resumed_from:
        print_line(f"  resumed from {result.resumed_from}")
    _print_left_out(result.left_out, str(result.adapter.parent / "left_out.jsonl"))
    figures = [f"{name} {value:.4g}" for name, value in result.metrics.items() if name in ("loss", "eval_loss")]
    if figures:
        print_line("  " + ", ".join(figures))
