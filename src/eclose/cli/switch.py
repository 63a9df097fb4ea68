"""``eclose switch``: test whether a model's preferences follow evidence, question and trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from eclose.cli.shared.output import QUARANTINED, count_progress, printable
from eclose.cli.switch_tables import print_contrasts, print_counts, print_rates, print_unjudged, to_json
from eclose.protocol.response_prompt import PromptOrder


def switch(
    families: Annotated[Path, typer.Argument(help="Families, one JSON object a line.", show_default=False)],
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Weights by name, folder or GGUF file.  [default: from the adapter's recipe]", show_default=False
        ),
    ] = None,
    adapter: Annotated[
        list[Path] | None, typer.Option(help="Folder of an adapter; repeatable.", show_default=False)
    ] = None,
    backbone: Annotated[bool, typer.Option("--backbone", help="Also test the model without an adapter.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the scores and margins of every family.")
    ] = None,
    demonstrations: Annotated[
        int | None, typer.Option(min=0, help="Worked examples in the prompt.  [default: as trained, or 2]")
    ] = None,
    order: Annotated[
        PromptOrder | None,
        typer.Option(help="What comes first in the prompt.  [default: as trained, or evidence_first]"),
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=1, help="Longest path in tokens; longer families are rejected.")
    ] = 8_192,
    tokens_per_forward: Annotated[
        int, typer.Option(min=1, help="Most tokens of one forward pass. Changes no result.")
    ] = 16_384,
    dtype: Annotated[str, typer.Option(help="Precision of the weights: auto, float32, bfloat16.")] = "auto",
    device: Annotated[
        str | None,
        typer.Option(help="Device, such as cpu or cuda:1.  [default: a GPU if there is one]", show_default=False),
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples of families.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 42,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that other settings wrote.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Test whether the preferred step, trace and answer switch with their input: twelve scores a family.

    No response is generated or judged: a preference is a difference of mean token log-likelihoods. Where a family has
    several evidence edits, the first by passage and content is used, the same for every model.

    \b
    S   evidence to step: another passage, another first affected step
    T   question to trace: another question, another trace
    C   trace to answer: another trace, another answer, the evidence as it was
    O   the preference is right under the original input
    CF  under the counterfactual input
    SW  under both: the preference switches; a tie fails
    margin o, c   the mean difference under either input

    With several models, gain is SW minus that of the first row, families resampled within datasets, datasets of equal
    weight. An adapter is prompted as it was trained: its recipe.json gives model, demonstrations and order.
    """
    from eclose.training.api import SwitchSettings, switch_test

    settings = SwitchSettings(
        model=model,
        adapters=tuple(adapter or ()),
        backbone=backbone,
        demonstrations=demonstrations,
        order=order,
        max_length=max_length,
        tokens_per_forward=tokens_per_forward,
        dtype=dtype,
        device=device,
    )
    result = switch_test(
        families,
        settings=settings,
        out=out,
        seed=seed,
        resamples=resamples,
        force=force,
        # On standard error: with --json, standard output is one JSON object.
        notify=lambda message: typer.echo(f"eclose: {printable(message)}", err=True),
        wrap=count_progress,
    )
    if as_json:
        typer.echo(json.dumps(to_json(dict(result.settings), result.counts, result.rates, result.contrasts)))
    else:
        print_counts(result.step, families, result.counts, again=result.again)
        if result.rows:
            print_contrasts(result.contrasts, result.rates)
            print_rates(result.rates)
            print_unjudged(result.rows)
    raise typer.Exit(QUARANTINED if result.counts.quarantined else 0)
