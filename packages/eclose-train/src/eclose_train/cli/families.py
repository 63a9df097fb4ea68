"""``eclose families``: show, validate and export families, without a model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    format_count,
    print_line,
    print_step_result,
    print_table,
    show_record_count,
)
from eclose.prompts.response_prompt import PromptOrder
from eclose_train.cli.show import show
from eclose_train.training.row_formats import ExportedEdits, ExportRowFormat

if TYPE_CHECKING:
    from eclose_train.construction.checks import FamilyValidation

FAILED = 1
"""Exit code where a family does not pass."""
_EXAMPLES = 20
"""Number of problems that are printed without --all."""


def validate(
    families: Annotated[
        str, typer.Argument(help="File of families, JSON Lines or Parquet, or folder of a run or dataset.")
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Folder or name of the model to train, to count tokens exactly.  [default: estimate]"),
    ] = None,
    max_length: Annotated[int, typer.Option(min=1, help="Longest training path in tokens.")] = 8_192,
    everything: Annotated[bool, typer.Option("--all", help="Print every problem, not only the first 20.")] = False,
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch families from a hub: hf://datasets/OWNER/NAME[@REVISION].")
    ] = False,
) -> None:
    """Check families for everything that code can check: their form, the edits, the shared steps, the answers, and
    whether they are short enough to train on.

    Checks that need understanding (is a step sound, does the trace answer the question) are for people: see eclose
    annotate audit. Exits with 1 where a family does not pass, and with 3 where a record cannot be read.
    """
    from eclose_train.construction.checks import validate_families

    validation = validate_families(
        families, tokenizer=tokenizer, max_length=max_length, hub=hub, wrap=show_record_count
    )
    _print_validation(validation, None if everything else _EXAMPLES)
    # Unreadable records come first: a file that cannot be read says nothing about its families.
    raise typer.Exit(QUARANTINED_EXIT_CODE if validation.unreadable else FAILED if validation.failed else 0)


def _print_validation(validation: FamilyValidation, limit: int | None) -> None:
    print_line(
        f"{validation.path}: {validation.received:,} received = {validation.passed:,} passed + "
        f"{validation.failed:,} failed + {validation.unreadable:,} unreadable"
    )
    problems = validation.problems
    if not problems:
        return
    gates = Counter(problem.gate for problem in problems)
    print_table("Problems by gate", ("gate", "problems"), [(gate, f"{count:,}") for gate, count in gates.most_common()])
    for problem in problems[:limit]:
        print_line(f"  {problem.where}: {problem.gate}: {problem.detail}")
    if limit is not None and len(problems) > limit:
        print_line(f"  and {format_count(len(problems) - limit, 'more problem')}: --all prints them")


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show, validate and export families.")
app.command()(show)
app.command()(validate)


_PROMPT_OPTIONS = ("edits", "demonstrations", "order")
"""Options of prompts; families that are exported as they are have none."""


@app.command()
def export(
    context: typer.Context,
    families: Annotated[
        Path, typer.Argument(help="File of families, JSON Lines; for datasets also the folder of a run.")
    ],
    *,
    layout: Annotated[ExportRowFormat, typer.Option("--format", help="Format to write.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="File to write, JSON Lines, compressed where its name ends in .gz; for datasets a folder.",
        ),
    ],
    edits: Annotated[
        ExportedEdits,
        typer.Option(help="Evidence edits: the first one, which the switch test uses, or all of a family."),
    ] = ExportedEdits.FIRST,
    demonstrations: Annotated[int, typer.Option(min=0, help="Number of worked examples in the prompt.")] = 2,
    order: Annotated[PromptOrder, typer.Option(help="What comes first in the prompt.")] = PromptOrder.EVIDENCE_FIRST,
    force: Annotated[bool, typer.Option("--force", help="Replace output that other settings wrote.")] = False,
    push_to_hub: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Upload the folder to this dataset on a hub.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Let a dataset that is created be public.")] = False,
) -> None:
    """Export families for other tools: complete as tables, or as rows for TRL, to train baselines on the same prompts.

    \b
    datasets        a folder for the datasets library and for hubs: Parquet with
                    a row per family, one table for each split of a run's
                    folder, and the data card. Needs eclose[parquet].
    trl-sft         prompt, completion: a row per view. The Gold rows alone are
                    SFT, all of them counterfactual SFT.
    trl-preference  prompt, chosen, rejected: the four comparisons of the
                    full-response margin (RM), two with each evidence edit,
                    two with the question edit.

    Each row for TRL has its family_id, its weight within the family, and the arguments of the chat template. Most
    trainers ignore the weight.

    RM and SFT only: the margins on S, T and C compare steps, traces or answers after part of a response, which
    preference rows over complete responses cannot express. Use eclose train for those.
    """
    from eclose.prompts.response_prompt import ResponsePrompt
    from eclose_train.training.trl_rows import build_row_export_step, make_family_rows

    if layout is ExportRowFormat.DATASETS:
        code = _export_dataset(context, families, out, force=force)
        if push_to_hub is not None:
            from eclose_train.families.files import push_dataset

            print_line(f"{out}: uploaded to {push_dataset(out, push_to_hub, private=not public)}")
        raise typer.Exit(code)
    if push_to_hub is not None or public:
        from eclose.errors import SettingError

        raise SettingError("--push-to-hub and --public: only datasets are uploaded. Pass --format datasets.")
    prompt = ResponsePrompt(demonstrations, order)
    step = build_row_export_step(families, out, layout, prompt, edits)
    manifest = step.claim(force=force)
    # Lazy: nothing is read where the step was done before.
    rows = make_family_rows(families, layout, prompt, edits)
    counts = manifest.counts if manifest else step.write(show_record_count(rows, f"writing {out.name}"))
    print_step_result(step, counts, again=manifest is not None, doubt="is this a file of families")
    raise typer.Exit(QUARANTINED_EXIT_CODE if counts.quarantined else 0)


def _export_dataset(context: typer.Context, families: Path, out: Path, *, force: bool) -> int:
    from eclose.errors import SettingError
    from eclose_train.families.publish import QUARANTINE, export_dataset

    # A default cannot be told from a given value by the value itself, so the source of the parameter decides.
    for name in _PROMPT_OPTIONS:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise SettingError(f"--{name}: is for rows with a prompt, which datasets do not have. Leave it out.")
    manifest, again = export_dataset(families, out, force=force)
    counts = manifest.counts
    print_line(f"{out}: {counts}" + (" (done before, nothing to do)" if again else ""))
    if counts.quarantined:
        print_line(f"  records that could not be read, with reasons: {out / QUARANTINE}")
    return QUARANTINED_EXIT_CODE if counts.quarantined else 0
