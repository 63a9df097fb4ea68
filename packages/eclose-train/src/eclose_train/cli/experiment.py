"""``eclose experiment``: run a study of backbones, methods and seeds from one plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import QUARANTINED_EXIT_CODE, format_count, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose_train.experiment.cells import Cell, StageTask
    from eclose_train.experiment.folder import Experiment
    from eclose_train.experiment.forecast import ExperimentForecast

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Run a study of backbones, methods and seeds from one plan."
)

audit = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Let people label a sample of results, and compare the labels."
)
app.add_typer(audit, name="audit")

ExperimentFolder = Annotated[Path, typer.Argument(help="Folder of an experiment.", file_okay=False, metavar="DIR")]


@app.command()
def init(
    plan: Annotated[Path, typer.Argument(help="Plan of the experiment (YAML).", dir_okay=False)],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the experiment.", file_okay=False)],
) -> None:
    """Check a plan, write it into a folder, and print what it takes.

    Prints the grid with the stages that are finished already, and the expected numbers of adapters, switch runs,
    responses, hours of training and cost of judging. Hours come from recorded hours of the plan and from runs that
    are finished. Nothing is run, and results made elsewhere are taken in. A folder with an earlier plan keeps its
    finished stages: a plan with one more seed or method adds cells, and the others are not run again.
    """
    from eclose_train.experiment.folder import init_experiment
    from eclose_train.experiment.forecast import forecast_experiment

    experiment = init_experiment(plan, out)
    _print_grid(experiment)
    _print_forecast(forecast_experiment(experiment), experiment)
    _print_judge_forecast(experiment)
    for missing in experiment.missing_inputs:
        print_line(f"not there yet: {missing}")
    print_line(f"Run it with: eclose experiment run {out}")


@app.command()
def status(folder: ExperimentFolder) -> None:
    """Print the state of every stage of every cell, from the files in the folder.

    \b
    finished  the stage's own manifest is there
    failed    the last attempt failed; the reason is listed below the table
    begun     it runs now, or was stopped; run continues it
    -         the cell has no such stage
    """
    from eclose_train.experiment.cells import Stage
    from eclose_train.experiment.folder import StageState, load_experiment

    experiment = load_experiment(folder)
    states = {task: experiment.state(task) for task in experiment.tasks}
    rows = []
    for cell, tasks in _group_by_cell(experiment.tasks).items():
        cells = {task.stage: states[task].value for task in tasks}
        seed = "-" if cell.seed is None else str(cell.seed)
        rows.append([cell.backbone, cell.method, seed, *(cells.get(stage, "-") for stage in Stage)])
    finished = sum(state is StageState.FINISHED for state in states.values())
    title = f"{folder}: {finished:,} of {format_count(len(states), 'stage')} finished"
    print_table(title, ["backbone", "method", "seed", *Stage], rows)
    for task, state in states.items():
        if state is StageState.FAILED:
            print_line(f"failed: {task.cell}, {task.stage}: {experiment.read_failure(task)}")
    for path, cell_name in experiment.find_other_stages():
        print_line(f"not of this plan: {path} ({cell_name})")


@app.command()
def run(
    folder: ExperimentFolder,
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only these stages: key=value with backbone, method, seed, stage or id (the name of a stage's "
            "folder); may be repeated.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of stages at once; default: 1, or that of the profile. Several run on Snakemake.", min=1
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile of Snakemake: a name or folder that sets the executor of a cluster.")
    ] = None,
    wait: Annotated[
        float, typer.Option(help="Longest time to wait for a stage that another process is running (seconds).", min=0)
    ] = 0.0,
) -> None:
    """Run every stage that is not finished: train, select, generate, judge, switch.

    Each stage is the command of its name in a folder of its own. Stopped at any moment, the same command goes on. A
    stage that fails is listed, with the exit code 3, and the other cells go on; the next run tries it again. On a
    terminal a table shows the progress, and the output of a stage is in stage.log of its folder.

    Several --jobs, or a --profile, run on Snakemake (pip install 'eclose[experiment]') with the stages that the chosen
    ones need, from a Snakefile in DIR that can be read and run without this command. Judging runs one stage at a time
    unless the plan names a PostgreSQL ledger, and so do the stages on a GPU of this machine.
    """
    from eclose_train.cli.live import show_experiment_progress
    from eclose_train.experiment.run import run_experiment

    # Snakemake prints its own progress.
    with show_experiment_progress(folder, live=profile is None and jobs in (None, 1)) as progress:
        result = run_experiment(
            folder, only or (), jobs=jobs, profile=profile, wait=wait, on_stage=progress.begin, on_result=progress.end
        )
    for problem in (*result.failed, *result.waiting):
        state = "failed" if problem in result.failed else "waiting"
        print_line(f"{state}: {problem.task.cell}, {problem.task.stage}: {problem.problem}")
    print_line(
        f"{folder}: {format_count(len(result.finished), 'stage')} finished now, {len(result.before):,} before, "
        f"{len(result.failed):,} failed, {len(result.waiting):,} waiting"
    )
    raise typer.Exit(QUARANTINED_EXIT_CODE if result.failed or result.waiting else 0)


@app.command()
def report(
    folder: ExperimentFolder,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the report; default: report in DIR.", file_okay=False)
    ] = None,
) -> None:
    """Write tables and figures of everything that is finished: one HTML page, JSON, Markdown, LaTeX, CSV, SVG and PDF.

    The last table checks the paper's claims against the results. Runs that are missing are listed first, here and in
    the report; an incomplete grid has no paired intervals.
    """
    from eclose_train.experiment.results import report_experiment

    written, paths = report_experiment(folder, out)
    for sentence in written.missing:
        print_line(f"missing: {sentence}")
    for path in paths:
        print_line(f"  {path}")


@audit.command()
def sample(
    folder: ExperimentFolder,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the sample.", file_okay=False)],
    questions: Annotated[int, typer.Option(min=1, help="Questions of each dataset and backbone.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 42,
    training_seed: Annotated[
        int | None, typer.Option(help="Training seed of the audited models.  [default: the first of the plan]")
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


@audit.command(name="report")
def report_labels(
    folder: ExperimentFolder,
    labels: Annotated[
        Path, typer.Argument(help="People's verdicts, as eclose annotate export writes them.", dir_okay=False)
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the tables; default: report in DIR.", file_okay=False)
    ] = None,
) -> None:
    """Compare the labels of the judge with people's in an audit, and write the tables as JSON, Markdown and LaTeX.

    Agreement by label, rates of every method under both kinds of labels, their differences, and the methods compared
    under people's labels. Set audit_labels in the plan to have the tables in experiment report too.
    """
    from eclose_train.experiment.audit import report_audit

    results, paths = report_audit(folder, labels, out)
    print_line(
        f"{format_count(results.responses, 'response')} to {format_count(results.questions, 'question')} labelled"
    )
    if results.not_in_runs:
        print_line(f"not used: {format_count(results.not_in_runs, 'label')} of responses outside the experiment")
    for path in paths:
        print_line(f"  {path}")


def _group_by_cell(tasks: Sequence[StageTask]) -> dict[Cell, list[StageTask]]:
    groups: dict[Cell, list[StageTask]] = {}
    for task in tasks:
        groups.setdefault(task.cell, []).append(task)
    return groups


def _print_grid(experiment: Experiment) -> None:
    from eclose_train.cli.live import list_grid_rows
    from eclose_train.experiment.cells import Stage

    cells = len({task.cell for task in experiment.tasks})
    title = f"{experiment.folder}: {format_count(cells, 'cell')}; finished of all"
    print_table(title, ["backbone", "method", "cells", *Stage], list_grid_rows(experiment))


def _print_forecast(forecast: ExperimentForecast, experiment: Experiment) -> None:
    plan = experiment.plan
    responses = "unknown" if forecast.responses is None else f"{forecast.responses:,}"
    parts = [format_count(forecast.adapters, "adapter"), format_count(forecast.switch_runs, "switch run")]
    more = f", {forecast.ablation_responses:,} more of ablations" if forecast.ablation_responses else ""
    print_line(f"Expected: {', '.join(parts)}, {responses} responses{more}")
    for name, methods in (("main comparison", plan.methods), ("ablations", plan.ablations)):
        if methods:
            print_line(f"Training, {name}: {_describe_hours(forecast, methods)}")


def _describe_hours(forecast: ExperimentForecast, methods: Sequence[str]) -> str:
    """Return the hours of training by recorded hours, and those left by the runs that are finished."""
    parts = []
    if (hours := forecast.hours(methods)) is not None:
        recorded = forecast.hours(methods, recorded=True)
        beside = "" if recorded is None else f", {recorded:,.0f} h as recorded"
        parts.append(f"{hours:,.0f} h by the fit{beside}")
    if (projected := forecast.hours_on_tree(methods)) is not None:
        parts.append(f"{projected:,.0f} h on the prefix tree, projected")
    finished = sum(row.finished for row in forecast.training if row.method in methods)
    if (left := forecast.hours_left(methods)) is not None:
        parts.append(f"{left:,.3g} h left, by {format_count(finished, 'finished run')}")
    return "; ".join(parts) or "hours unknown; run one as a pilot, or give hours of a backbone"


def _print_judge_forecast(experiment: Experiment) -> None:
    """Print the calls and the cost of judging that is left."""
    from eclose.calls.prices import format_money
    from eclose_train.experiment.forecast import forecast_judge_cost

    if (forecast := forecast_judge_cost(experiment)) is None:
        print_line("Judging: cost unknown until there are questions, and families or responses")
        return
    money = "cost unknown, the judge has no price"
    if forecast.cost is not None:
        money = format_money(forecast.cost, forecast.currency)
    print_line(
        f"Judging: {format_count(forecast.responses, 'response')} left, {format_count(forecast.calls, 'call')}, {money}"
        f" (by {forecast.basis})"
    )
