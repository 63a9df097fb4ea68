"""``eclosure families``: what can be done with a file of families without a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclosure.cli import families_audit
from eclosure.cli.families_show import show
from eclosure.cli.families_validate import validate
from eclosure.cli.output import QUARANTINED, counted, say, say_written
from eclosure.protocol.response import Order
from eclosure.train.formats import Edits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eclosure.protocol.response import ResponsePrompt
    from eclosure.store.records import ReadRecord

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at families and take them elsewhere.")
app.command()(show)
app.command()(validate)
app.add_typer(families_audit.app, name="audit")


class RowFormat(StrEnum):
    """What a row looks like."""

    TRL_SFT = "trl-sft"
    TRL_PREFERENCE = "trl-preference"
    DATASETS = "datasets"


_OF_PROMPTS = ("edits", "demonstrations", "order")
"""Options that decide how a prompt looks, and mean nothing where a family is written as it is."""


@app.command()
def export(
    context: typer.Context,
    families: Annotated[
        Path,
        typer.Argument(help="Families, one JSON object a line; for datasets also a run's folder.", show_default=False),
    ],
    layout: Annotated[RowFormat, typer.Option("--format", help="What to write.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="JSON Lines to write, packed if the name ends in .gz; for datasets a folder."),
    ],
    edits: Annotated[
        Edits, typer.Option(help="The evidence edit of the switch test, or all that a family has.")
    ] = Edits.FIRST,
    demonstrations: Annotated[int, typer.Option(min=0, help="Worked examples in the prompt.")] = 2,
    order: Annotated[Order, typer.Option(help="What comes first in the prompt.")] = Order.EVIDENCE_FIRST,
    force: Annotated[bool, typer.Option("--force", help="Replace what other work has written.")] = False,
) -> None:
    """Write families for other tools: whole as tables, or as rows for TRL, to train baselines on the same prompts.

    \b
    datasets        a folder for the datasets library and for hubs: Parquet with
                    a row per family, one table for each split of a run's
                    folder, and the data card. Needs eclosure[parquet].
    trl-sft         prompt, completion: a row per view. The Gold rows alone are
                    SFT, all of them counterfactual SFT.
    trl-preference  prompt, chosen, rejected: the four comparisons of the
                    full-response margin (RM), two with each evidence edit,
                    two with the question edit.

    Each row for TRL has its family_id, its weight within the family, and what TRL must tell the chat template. Most
    trainers ignore the weight.

    RM and SFT only: the margins on S, T and C prefer a step, a trace or an answer given part of a response, and that
    cannot be expressed as preference rows over whole responses. For those there is eclosure train.
    """
    from eclosure.protocol.response import ResponsePrompt
    from eclosure.store.stage import Stage

    if layout is RowFormat.DATASETS:
        raise typer.Exit(_export_dataset(context, families, out, force=force))
    prompt = ResponsePrompt(demonstrations, order)
    settings = {"format": layout.value, "edits": edits.value, "prompt": prompt.hash}
    stage = Stage("families export", settings, (families,), out)
    manifest = stage.finished(force=force)
    rows = _rows(families, layout, prompt, edits)
    counts = manifest.counts if manifest else stage.write(counted(rows, f"writing {out.name}"))
    say_written(stage, counts, again=manifest is not None, doubt="is this a file of families")
    raise typer.Exit(QUARANTINED if counts.quarantined else 0)


def _export_dataset(context: typer.Context, families: Path, out: Path, *, force: bool) -> int:
    from eclosure.construct.publish.dataset import QUARANTINE, export_dataset
    from eclosure.errors import SettingError

    for name in _OF_PROMPTS:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise SettingError(f"--{name}: is for rows with a prompt; here families stay as they are. Leave it out.")
    exported = export_dataset(families, out, force=force)
    counts = exported.manifest.counts
    say(f"{out}: {counts}" + (" (done before, nothing to do)" if exported.again else ""))
    if counts.quarantined:
        say(f"  what could not be read, and why: {out / QUARANTINE}")
    return QUARANTINED if counts.quarantined else 0


def _rows(path: Path, layout: RowFormat, prompt: ResponsePrompt, edits: Edits) -> Iterator[ReadRecord[Any]]:
    """The rows of each family in turn; what is no family is passed on as it is."""
    from eclosure.store.families import scan_families
    from eclosure.store.records import ReadRecord
    from eclosure.train.export import preference_rows, sft_rows

    write = sft_rows if layout is RowFormat.TRL_SFT else preference_rows
    for record in scan_families(path):
        if record.value is None:
            yield record
            continue
        for row in write(record.value, prompt, edits):
            yield ReadRecord(record.where, value=row)
