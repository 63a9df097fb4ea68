"""``eclose verifier``: train verifiers of dependencies on counterfactual families."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import format_count, format_percent, print_line, print_table

if TYPE_CHECKING:
    from eclose_train.verifier.fit import TrainedVerifier

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Train verifiers of dependencies: cheap detectors learned from families.",
)


# A group also with a single command, so that its name stays `verifier train`.
@app.callback()
def _verifier() -> None:
    pass


@app.command()
def train(
    families: Annotated[list[Path], typer.Argument(help="Files of families to train on, JSON Lines.", dir_okay=False)],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the verifier; new or empty.")],
    seed: Annotated[int, typer.Option(help="Seed of the edits that are drawn and of the folds.")] = 0,
    without_shortcuts: Annotated[
        bool,
        typer.Option("--without-shortcuts", help="Leave out features of form alone: number of steps, conclusion word."),
    ] = False,
) -> None:
    """Train a verifier: the probability that evidence supports the steps, that the trace pursues the question, and
    that the trace establishes the answer.

    Families give labelled pairs without people or judges: the parts of one view belong together, the parts of two
    views do not. Every edit of a text occurs under both labels, or training refuses it. Writes verifier.json, the card
    README.md with its data card.json, and manifest.json. The card says what the verifier was trained on and what it
    reaches on held-out families, beside word overlap and features of form alone. Score responses with it:
    eclose detect RUN --detector verifier --verifier DIR.
    """
    from eclose_train.verifier.fit import train_verifier

    trained = train_verifier(families, out, seed=seed, shortcuts=not without_shortcuts)
    _print_trained(trained)


def _print_trained(trained: TrainedVerifier) -> None:
    card = trained.card
    rows = [
        (
            control.head,
            control.score,
            "-" if control.auroc is None else f"{control.auroc:.3f}",
            "-" if control.recall is None else f"{format_percent(control.recall)} %",
        )
        for control in card.controls
        if control.edit == "all"
    ]
    rows_read = format_count(sum(group.rows for group in card.rows), "row")
    print_line(f"{card.name}: {format_count(card.families, 'family', 'families')}, {rows_read}")
    print_table("On held-out families", ("head", "scored by", "AUROC", "R@95"), rows)
    print_line(f"{trained.folder}: written")
