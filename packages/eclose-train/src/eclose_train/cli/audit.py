"""``eclose experiment audit``: let people label a sample of results, and report what they found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eclose.cli.shared.output import format_count, print_line, print_table

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Let people label a sample of results, and compare the labels."
)

ExperimentFolder = Annotated[
    Path, typer.Argument(help="Folder of an experiment.", file_okay=False, show_default=False, metavar="DIR")
]


@app.command()
def sample(
    folder: ExperimentFolder,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the sample.", file_okay=False, show_default=False)
    ],
    questions: Annotated[int, typer.Option(min=1, help="Questions of each dataset and backbone.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 42,
    training_seed: Annotated[
        int | None,
        typer.Option(help="Training seed of the audited models.  [default: the first of the plan]", show_default=False),
    ] = None,
) -> None:
    """Draw responses of all tuned methods for people to label.

    Every dataset and backbone gets its own questions; no question is used with two backbones. All methods answer the
    same questions. Writes instances.jsonl and responses.jsonl, and prints the command that opens a project with them.
    """
    from eclose_train.experiment.audit import sample_audit

    drawn = sample_audit(folder, out, questions=questions, seed=seed, training_seed=training_seed)
    rows = [[backbone, benchmark, str(len(ids))] for (backbone, benchmark), ids in drawn.questions.items()]
    print_table(f"{out}: {format_count(len(drawn.responses), 'response')}", ["backbone", "dataset", "questions"], rows)
    print_line(f"counts: {drawn.counts}")
    print_line(
        f"Label them with: eclose annotate init PROJECT {out} --share-questions --annotators NAMES --adjudicators NAME"
    )


@app.command()
def report(
    folder: ExperimentFolder,
    labels: Annotated[
        Path,
        typer.Argument(
            help="People's verdicts, as eclose annotate export writes them.", dir_okay=False, show_default=False
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder of the tables; default: report in DIR.", file_okay=False, show_default=False
        ),
    ] = None,
) -> None:
    """Compare the labels of the judge with people's in an audit, and write the tables as JSON, Markdown and LaTeX.

    Agreement by label, rates of every method under both kinds of labels, their differences, and the methods compared
    under people's labels. Set audit_labels in the plan to have the tables in experiment report too.
    """
    from eclose_train.experiment.audit import report_audit

    written = report_audit(folder, labels, out)
    audit = written.results
    print_line(f"{format_count(audit.responses, 'response')} to {format_count(audit.questions, 'question')} labelled")
    if audit.not_in_runs:
        print_line(f"not used: {format_count(audit.not_in_runs, 'label')} of responses outside the experiment")
    for path in written.paths:
        print_line(f"  {path}")
