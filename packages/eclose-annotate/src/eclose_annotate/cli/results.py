"""``eclose annotate agree``, ``export`` and ``import``: agreement and labels of people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import format_count, print_line, print_table
from eclose.cli.shared.recipe import recipe_key
from eclose_annotate.choices import LabelExportFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose_annotate.results.agreement_report import AgreementReport
    from eclose_annotate.results.agreement_tables import AgreementTable
    from eclose_annotate.results.export_files import AnnotationExport

Judge = Annotated[str, typer.Option(help="Name of the judge in the settled judgments.")]


Layouts = Annotated[
    list[LabelExportFormat] | None, typer.Option("--format", help="File format to write; repeatable.  [default: jsonl]")
]


def agree(
    project: Annotated[Path, typer.Argument(help="Folder of a project or of its export, or a file of annotations.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File of the report: .json, .md or .tex.")] = None,
    seed: Annotated[int, recipe_key(min=0)] = 42,
    resamples: Annotated[int, recipe_key(min=100)] = 2_000,
) -> None:
    """Report the agreement of annotators before adjudication, and which cases were adjudicated and why.

    No person is named.

    \b
    maj.      the share of the most frequent label
    raw       the share of cases with two equal labels
    alpha     Krippendorff's, nominal, with 95 % over questions
    specific  agreement on the majority and on the minority label
    AC1       Gwet's, where nearly all labels are equal; always in --json
    """
    from eclose_annotate.results.agreement_report import agreement_to_json, build_agreement_report
    from eclose_annotate.results.agreement_tables import build_agreement_tables
    from eclose_annotate.results.export_project import load_annotations

    report = build_agreement_report(load_annotations(project), seed=seed, resamples=resamples)
    tables = build_agreement_tables(report)
    if out is not None:
        _write(out, report, tables)
    if as_json:
        typer.echo(json.dumps(agreement_to_json(report), allow_nan=False))
        return
    for number, table in enumerate(tables):
        if number:
            print_line("")
        print_table(table.title, table.heads, table.rows)
        for note in table.notes:
            print_line(note)
    if out is not None:
        print_line(f"{out}: written")


def _write(out: Path, report: AgreementReport, tables: Sequence[AgreementTable]) -> None:
    """Write the agreement as JSON, Markdown or LaTeX, by the ending of the file name."""
    from eclose.errors import SettingError
    from eclose.files.atomic import AtomicFile
    from eclose_annotate.results.agreement_report import agreement_to_json
    from eclose_annotate.results.agreement_tables import format_agreement_latex, format_agreement_markdown

    # AtomicFile writes to a temporary file and renames it: an interrupted command leaves no half-written report.
    if out.suffix not in {".json", ".md", ".tex"}:
        raise SettingError(f"--out {out}: the name must end in .json, .md or .tex.")
    texts = {".md": format_agreement_markdown, ".tex": format_agreement_latex}
    text = (
        texts[out.suffix](tables)
        if out.suffix in texts
        else json.dumps(agreement_to_json(report), indent=1, allow_nan=False) + "\n"
    )
    with AtomicFile(out) as file:
        file.write(text.encode())


def export(
    project: Annotated[Path, typer.Argument(help="Folder of the project.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the files.", file_okay=False)],
    layouts: Layouts = None,
    names: Annotated[bool, typer.Option("--names", help="Write the names of people instead of A1, A2, S1.")] = False,
    judge: Judge = "people",
) -> None:
    """Write the labels of a project for other commands, into a folder that eclose diagnose reads as a run.

    \b
    judgments.jsonl    settled labels, for eclose diagnose
    verdicts.jsonl     the same for eclose judge validate --verdicts
                       and eclose metrics
    labels.jsonl       the same with the origin of each label: agreed,
                       adjudicated or single
    annotations.jsonl  the labels of each person, to compute agreement again
    screening.jsonl    which questions are eligible, as eclose screen writes
                       it; screening-annotations.jsonl by person
    open.jsonl         responses that are not settled, and why
    ineligible.jsonl   responses to ineligible questions, with the reason
    drafts.jsonl       unfinished work of people who left their tasks to
                       others
    times.jsonl        seconds of each person for each pass; fast ones marked
    instances.jsonl, responses.jsonl
                       the labelled material

    For an audit of families, writes the filled forms for eclose annotate audit report. With csv or parquet, writes the
    same as flat tables: labels, annotations, steps, screening; no cell of a csv is a formula. A folder with other
    labels is never overwritten.
    """
    from eclose_annotate.results.export_project import export_project

    formats = layouts or [LabelExportFormat.JSONL]
    result = export_project(project, out, formats=formats, names=names, judge=judge)
    # A project of families has filled forms instead of labels; `eclose annotate audit report` reads them.
    if result.labels is None:
        for path, count in result.forms.items():
            print_line(f"{path}: {format_count(count, 'form')}")
        print_line("Then: eclose annotate audit report AUDIT forms-1.jsonl forms-2.jsonl ...")
        return
    _print_export(out, result.labels)


def _print_export(out: Path, result: AnnotationExport) -> None:
    from eclose_annotate.annotations import INELIGIBLE

    for noun, counts in result.manifest.funnel.items():
        # Counts in = counts out: what is not settled is named with its reason.
        excluded = {reason: count for reason, count in counts.rejected.items() if reason.startswith(INELIGIBLE)}
        unsettled = {reason: count for reason, count in counts.rejected.items() if reason not in excluded}
        parts = [f"{counts.accepted:,} settled"]
        if unsettled:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(unsettled.items()))
            parts.append(f"{sum(unsettled.values()):,} open ({reasons})")
        parts += [f"{count:,} {reason}" for reason, count in sorted(excluded.items())]
        print_line(f"{counts.received:,} {noun} = {', '.join(parts)}")
    # The manifest does not list itself.
    files = format_count(len(result.manifest.outputs) + 1, "file")
    print_line(f"{out}: {'done before, nothing to do' if result.again else files}")


def import_labels(
    files: Annotated[list[Path], typer.Argument(help="Files of labels: JSON Lines, JSON, CSV or Parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the files.", file_okay=False)],
    run: Annotated[
        Path | None, typer.Option(help="Folder of the labelled run, with instances.jsonl and responses.jsonl.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Name of a column in the files, such as aligned=on_target; repeatable.")
    ] = None,
    per_response: Annotated[
        int | None,
        typer.Option(min=1, help="Number of people who label each response.  [default: the most of any response]"),
    ] = None,
    annotator: Annotated[
        str | None, typer.Option(help="Name of the person who labelled, for files without that column.")
    ] = None,
    layouts: Layouts = None,
    judge: Judge = "people",
) -> None:
    """Import labels from other tools, one row for each response and annotator, and settle them.

    \b
    response_id, annotator   who labelled what; --annotator NAME names the
                             person of a file without that column
    question_id              not needed with --run
    locally_sound, aligned, closed, complete, correct
                             or L, A, C, K, Acc: yes or no, true or false,
                             1 or 0; empty where there is no label
    adjudicates              yes in the rows of an adjudicator, who settles
                             disagreements of the others

    Writes the same files as export, and reads annotations.jsonl of an export. Where rows cannot be used, all of them
    are listed and no file is written.
    """
    from eclose.files.manifest import hash_files
    from eclose_annotate.results.export_files import export_annotations
    from eclose_annotate.results.import_labels import read_label_files, read_run_material

    material = None if run is None else read_run_material(run)
    # Raises before anything is written, with every unusable row in one message.
    labels = read_label_files(
        files, columns=_parse_columns(column or []), run=material, per_response=per_response, annotator=annotator
    )
    settings = {"columns": sorted(column or []), "per_response": per_response}
    result = export_annotations(
        labels.annotations,
        out,
        stage="annotate import",
        # Without the option as before it existed, so that earlier imports are recognised as done.
        settings=settings if annotator is None else {**settings, "annotator": annotator},
        # The manifest records these hashes: the same files again are recognised as done, changed ones are refused.
        inputs=hash_files(files),
        material=material,
        judge=judge,
        formats=layouts or [LabelExportFormat.JSONL],
    )
    if labels.notice:
        print_line(labels.notice)
    if labels.skipped:
        print_line(f"{format_count(labels.skipped, 'annotation')} without labels, skipped by the annotator")
    _print_export(out, result)


def _parse_columns(options: Sequence[str]) -> dict[str, str]:
    """Return ``name=column`` options as a mapping; raise where one has no name or no column."""
    from eclose.errors import SettingError

    columns = {}
    for option in options:
        name, sign, column = option.partition("=")
        if not (name and sign and column):
            raise SettingError(f"--column {option}: write the name here, =, and the name in the file.")
        columns[name.strip()] = column.strip()
    return columns
