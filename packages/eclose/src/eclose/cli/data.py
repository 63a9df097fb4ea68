"""``eclose data``: convert, sample, describe and check files of questions; tables of labels; import and export logs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eclose.cli import data_read
from eclose.cli.shared.options import takes_import_options
from eclose.cli.shared.output import (
    QUARANTINED_EXIT_CODE,
    AllowStale,
    format_count,
    print_line,
    print_step_result,
    print_table,
    show_record_count,
    show_status,
)
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eclose.files.jsonl import ReadRecord
    from eclose.readers.load import QuestionFileCheck
    from eclose.readers.sampling import BenchmarkCharacteristics, Quartiles
    from eclose.values.instance import Instance

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Convert benchmarks and files of other tools, draw samples, describe and check them.",
)

# In the package folder cli/examples. README.md and the guide to data begin with them.
EXAMPLES = ("example-instances.jsonl", "example-verdicts.jsonl")
INVALID = 2
"""Exit code of validate where a record is wrong."""

File = Annotated[Path, typer.Argument(help="JSON Lines, a JSON array or Parquet; gzip is recognised.")]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="File to write, JSON Lines; compressed where its name ends in .gz.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace output that other settings wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command()
@takes_import_options
def convert(
    file: File,
    out: Out,
    aliases: Annotated[Path | None, typer.Option(help="File id_aliases.json of 2WikiMultiHopQA.")] = None,
    responses: Annotated[
        Path | None, typer.Option(help="File for the responses beside the questions, JSON Lines.")
    ] = None,
    force: Force = False,
    *,
    imported: ImportSettings,
) -> None:
    """Convert a file in any known layout into instances."""
    from eclose.cli.data_read import print_reading_summary
    from eclose.errors import SettingError
    from eclose.files.jsonl import read_records
    from eclose.files.step import PipelineStep, run_pipeline_steps
    from eclose.readers.load import resolve_import_settings
    from eclose.readers.readings import summarize_readings
    from eclose.values.response import Response

    imported = resolve_import_settings(file, imported)
    # Ignoring the file in silence would leave answers without aliases, and right answers would count as wrong.
    if aliases is not None and imported.format is not RecordLayout.TWO_WIKI:
        raise SettingError(f"--aliases: is for 2WikiMultiHopQA, and {file} is read as {imported.format}. Leave it out.")
    inputs = (file,) if aliases is None else (file, aliases)
    steps = [PipelineStep("data convert", imported.identity, inputs, out, explains_rejected=True)]
    if responses is not None:
        name = "data convert responses"
        steps.append(PipelineStep(name, imported.identity, (file,), responses, explains_rejected=True))
    rows = _scan_rows(file, imported, aliases, with_responses=responses is not None)
    option = "--map" if imported.format is RecordLayout.MAPPED else f"--format {imported.format}"
    results = run_pipeline_steps(steps, rows, force=force, wrap=show_record_count)
    for result in results:
        print_step_result(result.step, result.counts, again=result.again, doubt=f"is {option} right")
    if responses is not None:
        readings = summarize_readings(read_records(responses, Response))
        if not readings.in_protocol_layout:
            print_reading_summary(readings, responses)
    quarantined = any(result.counts.quarantined for result in results)
    raise typer.Exit(QUARANTINED_EXIT_CODE if quarantined else 0)


@app.command()
@takes_import_options
def sample(
    file: File,
    out: Out,
    n: Annotated[int, typer.Option("-n", help="Number of questions to draw.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed of the order of questions.")] = 42,
    kind: Annotated[list[str] | None, typer.Option(help="Draw only questions of this type; repeatable.")] = None,
    hops: Annotated[
        list[int] | None, typer.Option(help="Draw only questions with this number of hops; repeatable.")
    ] = None,
    force: Force = False,
    *,
    imported: ImportSettings,
) -> None:
    """Draw a seeded sample; a larger sample begins with the smaller one."""
    from eclose.files.step import PipelineStep
    from eclose.readers.load import resolve_import_settings
    from eclose.readers.sampling import draw_instance_sample

    imported = resolve_import_settings(file, imported)
    # Sorted without repeats, because the settings decide whether an existing output is the same work.
    kinds, lengths = sorted(set(kind or ())), sorted(set(hops or ()))
    settings = {**imported.identity, "n": n, "seed": seed, "kinds": kinds, "hops": lengths}
    stage = PipelineStep("data sample", settings, (file,), out)
    manifest = stage.claim(force=force)
    if manifest is None:
        records = show_record_count(_scan(file, imported), f"reading {file.name}")
        counts = stage.write(*draw_instance_sample(records, n, seed=seed, kinds=kinds, hops=lengths))
    else:
        counts = manifest.counts
    print_step_result(stage, counts, again=manifest is not None)


@app.command()
def intersect(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, or files of responses.")],
    out: Out,
    eligible: Annotated[
        Path | None,
        typer.Option(help="File of screening records (id, eligible) or of ids; other questions are left out."),
    ] = None,
    force: Force = False,
) -> None:
    """Keep the questions to which every run has a complete response, for comparing models.

    A question that a model did not finish is left out for all, so that every model is measured on the same ones.
    """
    from eclose.files.jsonl import read_records
    from eclose.files.step import PipelineStep
    from eclose.readers.sampling import (
        MatchedQuestion,
        find_responses_file,
        load_eligibility_test,
        match_questions_across_runs,
        read_run_completeness,
    )

    paths = [find_responses_file(run) for run in runs]
    inputs = (*paths, *([] if eligible is None else [eligible]))
    stage = PipelineStep("data intersect", {"runs": len(paths), "screened": eligible is not None}, inputs, out)
    manifest = stage.claim(force=force)
    # Read also where the output exists already: the table below counts the responses of every run.
    answers = [read_run_completeness(path) for path in paths]
    if manifest is None:
        counts = stage.write(
            match_questions_across_runs(answers, *([] if eligible is None else [load_eligibility_test(eligible)]))
        )
    else:
        counts = manifest.counts
    pool = {pooled.id for pooled in read_records(out, MatchedQuestion)}
    print_step_result(stage, counts, again=manifest is not None)
    reasons = sorted({reason for run in answers for reason in run.incomplete})
    print_table(
        "Responses by run",
        ("run", "responses", "complete", *reasons, "in pool"),
        [
            (
                str(run),
                f"{counts.responses:,}",
                f"{counts.responses - sum(counts.incomplete.values()):,}",
                *(f"{counts.incomplete.get(reason, 0):,}" for reason in reasons),
                f"{sum(id_ in pool for id_ in counts.complete):,}",
            )
            for run, counts in zip(runs, answers, strict=True)
        ],
    )


@app.command()
@takes_import_options
def stats(
    files: Annotated[list[Path], typer.Argument(help="Files of questions, in any known layout.")],
    as_json: AsJson = False,
    *,
    imported: ImportSettings,
) -> None:
    """Print characteristics of the questions: support, distractors, length and types."""
    from eclose.files.jsonl import unwrap_records
    from eclose.readers.sampling import characterize_benchmarks

    rows = characterize_benchmarks(
        instance
        for file in files
        for instance in unwrap_records(show_record_count(_scan(file, imported), f"reading {file.name}"))
    )
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print_characteristics(rows)


@app.command()
@takes_import_options
def validate(
    file: File,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=0, help="Number of problems to print.")] = 20,
    *,
    imported: ImportSettings,
) -> None:
    """Check all records of a file and print the problems."""
    from eclose.readers.load import check_question_file

    check = check_question_file(show_record_count(_scan(file, imported), f"checking {file.name}"), limit=limit)
    if as_json:
        typer.echo(json.dumps(_check_to_json(file, check), indent=2))
    else:
        _print_check(file, check)
    raise typer.Exit(0 if check.passed else INVALID)


@app.command()
def example(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the files.", file_okay=False)] = Path(),
) -> None:
    """Write two small example files: questions with passages, and verdicts on responses to them."""
    from importlib.resources import files

    from eclose.errors import UserError
    from eclose.files.atomic import AtomicFile

    for name in EXAMPLES:
        content = (files("eclose.cli") / "examples" / name).read_bytes()
        path = out / name
        # The same content may be written again; an edited example is the user's own file.
        if path.exists() and not (path.is_file() and path.read_bytes() == content):
            raise UserError(f"{path}: exists with other content. Choose another folder with --out.")
        with AtomicFile(path) as file:
            file.write(content)
        print_line(path)


@app.command(name="from-inspect")
def from_inspect(
    log: Annotated[Path, typer.Argument(help="Log of Inspect AI, .eval or .json.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.", file_okay=False)],
    score: Annotated[str, typer.Option(help="Name of the score in the log that holds the judgments.")] = "lgg",
    force: Force = False,
) -> None:
    """Convert a log of Inspect AI into the folder of a run: questions, responses and judgments."""
    from eclose.integrations.inspect.read_log import import_inspect_log

    written = import_inspect_log(log, out, score=score, force=force)
    for stage, counts, again in written:
        print_step_result(stage, counts, again=again, doubt="is this a log of a task with passages")
    raise typer.Exit(QUARANTINED_EXIT_CODE if any(counts.quarantined for _, counts, _ in written) else 0)


@app.command()
def labels(
    run: Annotated[Path, typer.Argument(help="Folder of a judged run.", file_okay=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="New Parquet file, or an address: s3://bucket/path, gs://..., abfss://..."),
    ],
    allow_stale: AllowStale = False,
) -> None:
    """Write the labels of a judged run as a Parquet table, which diagnose and gate read as the run itself."""
    from eclose.diagnosis.label_file import write_labels
    from eclose.files.parquet import get_remote_url

    count = write_labels(run, out, allow_stale=allow_stale)
    print_line(f"{get_remote_url(out) or out}: labels of {format_count(count, 'response')} written")


@app.command()
def fetch(
    store: Annotated[str, typer.Argument(help="phoenix, langfuse or mlflow.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write or to go on with, JSON Lines.")],
    *,
    since: Annotated[str, typer.Option(help="When the first trace began: ISO 8601, in UTC without an offset.")],
    until: Annotated[
        str | None, typer.Option(help="Moment before which the last one began.  [default: a quarter of an hour ago]")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address of the store.  [default: the one in the environment, as for export]")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project of Phoenix (default), or experiment of MLflow by id or name (0).")
    ] = None,
    by: Annotated[
        str, typer.Option(help="Length of the windows after which the file is complete: a number with m, h, d or w.")
    ] = "1h",
) -> None:
    """Append the traces of a store that began in a span of time to a file, which judge reads.

    A trace belongs to the window in which it began, and is read whole. The file grows by whole windows, and a file
    beside it, .fetched.json, says up to when it is complete. The same command fetches what came since, or goes on where
    it broke off: no trace is lost or doubled.

    Keys and addresses come from the environment, or from eclose --env-file FILE: PHOENIX_COLLECTOR_ENDPOINT,
    PHOENIX_API_KEY, LANGFUSE_BASE_URL, LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY, MLFLOW_TRACKING_URI,
    MLFLOW_TRACKING_TOKEN.
    """
    from eclose.integrations.fetch import fetch_traces

    with show_status("fetch") as show:
        result = fetch_traces(
            store,
            out,
            since=since,
            until=until,
            url=url,
            project=project,
            by=by,
            watch=lambda state: show(f"fetch: {format_count(state.traces, 'trace')} up to {state.until}"),
        )
    print_line(result)
    if result.empty:
        print_line(f"  {format_count(result.empty, 'trace')} listed and returned without a span, not in the file")


def _scan(file: Path, imported: ImportSettings) -> Iterator[ReadRecord[Instance]]:
    from eclose.readers.load import scan_instances

    return scan_instances(file, settings=imported)


def _scan_rows(
    file: Path, imported: ImportSettings, aliases: Path | None, *, with_responses: bool
) -> Iterator[Sequence[ReadRecord[Any]]]:
    from eclose.readers.benchmarks import read_wikidata_aliases
    from eclose.readers.load import scan_cases, scan_instances

    # A generator: where the output exists already, neither the aliases nor the questions are read.
    table = read_wikidata_aliases(aliases) if aliases else None
    if with_responses:
        yield from scan_cases(file, aliases=table, settings=imported)
    else:
        yield from ((record,) for record in scan_instances(file, aliases=table, settings=imported))


def _print_characteristics(rows: list[BenchmarkCharacteristics]) -> None:
    print_table(
        "Median [25th-75th percentile] per question",
        ("benchmark", "n", "supporting passages", "distractor passages", "support density %", "context words"),
        [
            (
                row.benchmark or "-",
                f"{row.n:,}",
                *map(_format_quartiles, (row.supporting, row.distractors, row.support_density, row.context_words)),
            )
            for row in rows
        ],
    )
    typer.echo()
    print_table(
        "Questions by type, number of hops and kind of answer",
        ("benchmark", "by", "value", "n"),
        [
            (row.benchmark or "-", name, value, f"{count:,}")
            for row in rows
            for name, counts in (("type", row.kinds), ("hops", row.hops), ("answer", row.answers))
            for value, count in counts.items()
        ],
    )


def _format_quartiles(quartiles: Quartiles | None) -> str:
    """Return ``897 [733-1,065]``; a hyphen where unknown."""
    if quartiles is None:
        return "-"
    median, low, high = (f"{value:,.1f}".removesuffix(".0") for value in quartiles)
    return f"{median} [{low}-{high}]"


def _print_check(file: Path, check: QuestionFileCheck) -> None:
    for problem in check.problems:
        print_line(problem)
    # All records are counted; only the first --limit problems are kept for printing.
    hidden = sum(check.counts.quarantined.values()) - len(check.problems)
    if hidden:
        typer.echo(f"... and {hidden:,} more; raise --limit to see them")
    # The file could not be read to its end, for example because its compression is broken.
    if check.stopped is not None:
        print_line(check.stopped)
    if check.counts.received:
        print_line(f"{file}: {check.counts}")


def _check_to_json(file: Path, check: QuestionFileCheck) -> dict[str, object]:
    return {
        "file": str(file),
        "fine": check.passed,
        "counts": asdict(check.counts),
        "problems": [{"where": problem.record, "problem": problem.problem} for problem in check.problems],
        "stopped": str(check.stopped) if check.stopped else None,
    }


app.command()(data_read.read)
