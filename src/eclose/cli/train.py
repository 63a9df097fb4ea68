"""``eclose train``: families to an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import plural, say

if TYPE_CHECKING:
    from eclose.training.run import Trained

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
_NAMED = 3


def train(
    context: typer.Context,
    families: Annotated[Path, typer.Argument(help="Families to train on, JSON Lines.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder of the run.", show_default=False)],
    recipe: Annotated[
        Path | None, typer.Option(help="Settings as YAML; flags come before it.", show_default=False)
    ] = None,
    development: Annotated[
        Path | None, typer.Option(help="Families to evaluate on with every checkpoint.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of order, edits and the adapter's first values.  [default: 42]")
    ] = None,
) -> None:
    """Train an adapter on families, each in one forward where the model allows it.

    Any other setting is a flag of the same name, after the families, with the paper's value where it is not given.
    Every field of Transformers' TrainingArguments is one; docs/train-settings.md lists ours.

    \b
      --model NAME            weights: a name on the hub, a folder, a GGUF file
      --method sft            another objective than e_closure
      --learning-rate 1e-4
      --max-steps 100
      --report-to tensorboard

    Stopped at any moment, the same command goes on from the last complete checkpoint; once done, it does nothing.

    \b
    Several processes on one machine, also without a GPU:
      torchrun --nproc_per_node 2 -m eclose.cli.main train ...
    """
    from eclose.errors import SettingError

    if str(families).startswith("-"):
        # Settings are not known here, so what follows one might be its value or the families.
        raise SettingError(f"{families}: settings come after the families. Write eclose train FAMILIES {families} ...")
    from eclose.training.recipe import flags, read_recipe
    from eclose.training.run import train as run

    settings = {**flags(context.args), **({} if seed is None else {"seed": seed})}
    result = run(families, read_recipe(recipe, settings), out, development)
    _tell(result)


def _tell(result: Trained) -> None:
    from eclose.training.run import is_first_process

    if not is_first_process():
        return
    say(f"{result.adapter}: {result.counts}" + (" (done before, nothing to do)" if result.again else ""))
    if result.resumed_from:
        say(f"  went on from {result.resumed_from}")
    for record in result.left_out[:_NAMED]:
        say(f"  {record.where}: {record.rejected or record.error}")
    if len(result.left_out) > _NAMED:
        more = plural(len(result.left_out) - _NAMED, "more record")
        say(f"  and {more}: {result.adapter.parent / 'left_out.jsonl'}")
    shown = [f"{name} {value:.4g}" for name, value in result.metrics.items() if name in ("loss", "eval_loss")]
    if shown:
        say("  " + ", ".join(shown))
