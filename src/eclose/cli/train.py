"""``eclose train``: train an adapter on counterfactual families."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import format_count, print_line

if TYPE_CHECKING:
    from eclose.training.run import TrainingResult

# Every field of TrainingArguments is a flag of this command, so unknown options are passed on instead of refused.
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
_EXAMPLES = 3


def train(
    context: typer.Context,
    families: Annotated[
        str,
        typer.Argument(help="Families to train on: JSON Lines, Parquet, or a folder of either.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run.", show_default=False)],
    recipe: Annotated[
        Path | None, typer.Option(help="File of settings (YAML); flags take precedence.", show_default=False)
    ] = None,
    development: Annotated[
        str | None,
        typer.Option(
            help="Families to evaluate every checkpoint on: JSON Lines, Parquet, or a folder.", show_default=False
        ),
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
) -> None:
    """Train an adapter on families, each in one forward where the model allows it.

    Any other setting is a flag of the same name, after the families, with the paper's value where it is not given.
    Every field of Transformers' TrainingArguments is one; docs/train-settings.md lists ours.

    \b
      --model NAME            weights: a name on the hub, a folder, a GGUF file
      --method sft            another objective than e_closure: sft, cf_sft, rm
      --method e_closure-S    E-Closure without S; -T and -C without T and C
      --method dpo            a baseline by TRL (or simpo), not a method of the paper
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
    from eclose.errors import SettingError

    if families.startswith("-"):
        # Settings are not known here, so what follows one might be its value or the families.
        raise SettingError(f"{families}: settings come after the families. Write eclose train FAMILIES {families} ...")
    from eclose.training.api import train as train_families
    from eclose.training.recipe import parse_recipe_flags

    # A seed of None is left out, so that a recipe's seed is used; a flag takes precedence over the recipe.
    settings = {**parse_recipe_flags(context.args), **({} if seed is None else {"seed": seed})}
    _print_result(train_families(families, out=out, recipe=recipe, development=development, hub=hub, **settings))


def _print_result(result: TrainingResult) -> None:
    """Print the adapter, the counts of families and the last figures; one process of several does."""
    from eclose.training.run import is_first_process

    # torchrun runs this command in several processes, which all print to the same terminal.
    if not is_first_process():
        return
    print_line(f"{result.adapter}: {result.counts}" + (" (done before, nothing to do)" if result.again else ""))
    if result.resumed_from:
        print_line(f"  resumed from {result.resumed_from}")
    for record in result.left_out[:_EXAMPLES]:
        print_line(f"  {record.where}: {record.rejected or record.error}")
    if len(result.left_out) > _EXAMPLES:
        more = format_count(len(result.left_out) - _EXAMPLES, "more record")
        print_line(f"  and {more}: {result.adapter.parent / 'left_out.jsonl'}")
    figures = [f"{name} {value:.4g}" for name, value in result.metrics.items() if name in ("loss", "eval_loss")]
    if figures:
        print_line("  " + ", ".join(figures))
