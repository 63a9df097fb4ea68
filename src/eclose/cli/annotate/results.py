"""``eclose annotate agree``, ``export_annotations`` and ``import``: what came of annotation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.annotation.results.formats import ANNOTATIONS, SCREENING_ANNOTATIONS, ExportFormat
from eclose.cli.shared.output import plural, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eclose.annotation.annotations import Annotations
    from eclose.annotation.results.agreement_report import AgreementReport
    from eclose.annotation.results.export import ExportResult
    from eclose.annotation.results.tables import AgreementTable
    from eclose.protocol.auditing import AuditForm

Seed = Annotated[int, typer.Option(min=0, help="For the intervals.")]
Resamples = Annotated[int, typer.Option(min=100, help="Bootstrap resamples of questions.")]
Judge = Annotated[str, typer.Option(help="The judge that the settled judgments are by.")]


Layouts = Annotated[
    list[ExportFormat] | None,
    typer.Option("--format", help="May be given several times.  [default: jsonl]", show_default=False),
]


def agree(
    project: Annotated[
        Path, typer.Argument(help="A project, an export of one, or a file of annotations.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write it: .json, .md or .tex by the name of the file.", show_default=False),
    ] = None,
    seed: Seed = 42,
    resamples: Resamples = 2_000,
) -> None:
    """How far people agree before adjudication, and what went to adjudication and why.

    Rests on what everybody submitted first; changes that were allowed later do not count. Nobody is named.

    \b
    maj.      how common the most frequent label is
    raw       the share of cases on which two say the same
    alpha     Krippendorff's, nominal, with 95 % over questions
    specific  agreement on the majority and on the minority label
    AC1       Gwet's, where nearly all labels are alike; always in --json
    """
    from eclose.annotation.results.agreement_report import report_agreement, to_json
    from eclose.annotation.results.tables import build_tables

    found = report_agreement(_told(project), seed=seed, resamples=resamples)
    made = build_tables(found)
    if out is not None:
        _write(out, found, made)
    if as_json:
        typer.echo(json.dumps(to_json(found), allow_nan=False))
        return
    for number, table in enumerate(made):
        if number:
            say("")
        print_table(table.title, table.heads, table.rows)
        for note in table.notes:
            say(note)
    if out is not None:
        say(f"{out}: written")


def _told(place: Path) -> Annotations:
    """What people said, in a project or in files."""
    from eclose.annotation.results.import_labels import read_labels

    if not place.is_dir():
        return read_labels([place]).annotations
    if files := [place / name for name in (ANNOTATIONS, SCREENING_ANNOTATIONS) if (place / name).is_file()]:
        return read_labels(files).annotations
    from eclose.annotation.project import open_project
    from eclose.annotation.read_annotations import read_annotations

    project = open_project(place)
    try:
        with project.reading() as connection:
            return read_annotations(connection)
    finally:
        project.close()


def _write(out: Path, found: AgreementReport, made: Sequence[AgreementTable]) -> None:
    from eclose.annotation.results.agreement_report import to_json
    from eclose.annotation.results.tables import format_latex, format_markdown
    from eclose.errors import SettingError
    from eclose.store.records.atomic import AtomicFile

    if out.suffix not in {".json", ".md", ".tex"}:
        raise SettingError(f"{out}: let its name end in .json, .md or .tex.")
    texts = {".md": format_markdown, ".tex": format_latex}
    text = (
        texts[out.suffix](made) if out.suffix in texts else json.dumps(to_json(found), indent=1, allow_nan=False) + "\n"
    )
    with AtomicFile(out) as file:
        file.write(text.encode())


def export(
    project: Annotated[Path, typer.Argument(help="The project's folder.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A folder for the files.", file_okay=False, show_default=False)
    ],
    layouts: Layouts = None,
    label_studio: Annotated[bool, typer.Option("--label-studio", help="Also write tasks for Label Studio.")] = False,
    names: Annotated[bool, typer.Option("--names", help="Name people instead of A1, A2, S1.")] = False,
    judge: Judge = "people",
) -> None:
    """Write the labels of a project for other commands: a folder that eclose diagnose reads as a run.

    \b
    judgments.jsonl    what holds, for eclose diagnose
    verdicts.jsonl     the same for eclose judge validate --verdicts
                       and eclose metrics
    labels.jsonl       the same with where each label comes from: agreed,
                       adjudicated or single
    annotations.jsonl  what each person said, to work out agreement again
    screening.jsonl    which questions can be used, as eclose screen
                       writes it; screening-annotations.jsonl, who said what
    open.jsonl         what does not hold yet, and why
    instances.jsonl, responses.jsonl
                       what was labelled

    Of an audit of families, the forms that people filled in, for eclose families audit report.
    With csv or parquet, the same as flat tables: labels, annotations, steps, screening. In csv no text is a formula.
    A folder that holds other labels is never overwritten.
    """
    from eclose.annotation.audit_log import append_event
    from eclose.annotation.family_audit import read_filled_forms
    from eclose.annotation.material import read_material
    from eclose.annotation.project import LEAD, guideline_hashes, open_project
    from eclose.annotation.read_annotations import read_annotations
    from eclose.annotation.results.export import export_annotations as write_export
    from eclose.annotation.results.label_studio import WARNING

    opened = open_project(project)
    try:
        with opened.reading() as connection:
            said, shown = read_annotations(connection, names=names), read_material(connection)
            audited = read_filled_forms(connection)
        if audited:
            _write_forms(out, audited)
            return
        done = write_export(
            said,
            out,
            stage="annotate export",
            settings={"project": opened.settings.name, "names": names, "guidelines": guideline_hashes()},
            material=shown,
            judge=judge,
            formats=layouts or [ExportFormat.JSONL],
            for_label_studio=label_studio,
        )
        if not done.again:
            # Whoever has the files knows who said what of which model: that is for the log.
            with opened.writing() as connection:
                append_event(
                    connection, LEAD, "exported", detail={"files": dict(done.manifest.outputs), "names": names}
                )
            opened.record_head()
    finally:
        opened.close()
    _say_exported(out, done)
    if label_studio:
        say(f"Careful: {WARNING}")


def _write_forms(out: Path, audited: Mapping[int, Sequence[AuditForm]]) -> None:
    """The forms of an audit as eclose families audit report reads them."""
    from eclose.construction.audit.file_names import FormFormat
    from eclose.construction.audit.forms import encode_forms
    from eclose.store.records.atomic import AtomicFile

    for number, forms in audited.items():
        place = out / f"forms-{number}.jsonl"
        with AtomicFile(place) as file:
            file.write(encode_forms(forms, FormFormat.JSONL))
        say(f"{place}: {plural(len(forms), 'form')}")
    say("Then: eclose families audit report AUDIT forms-1.jsonl forms-2.jsonl ...")


def _say_exported(out: Path, done: ExportResult) -> None:
    for noun, counts in done.manifest.funnel.items():
        left = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.rejected.items()))
        still = f", {counts.received - counts.accepted:,} open ({left})" if left else ""
        say(f"{counts.received:,} {noun} = {counts.accepted:,} settled{still}")
    again = "the same is there already, nothing to do" if done.again else plural(len(done.manifest.outputs), "file")
    say(f"{out}: {again}")


def import_labels(
    files: Annotated[
        list[Path], typer.Argument(help="JSON Lines, CSV, Parquet, or Label Studio's JSON export.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A folder for the files.", file_okay=False, show_default=False)
    ],
    run: Annotated[
        Path | None,
        typer.Option(help="The run that was labelled, with instances.jsonl and responses.jsonl.", show_default=False),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Where a column has another name: aligned=on_target.", show_default=False),
    ] = None,
    per_response: Annotated[
        int | None,
        typer.Option(
            min=1, help="People who label each.  [default: the most that any response has]", show_default=False
        ),
    ] = None,
    layouts: Layouts = None,
    judge: Judge = "people",
) -> None:
    """Take in labels that were made elsewhere, one row for each response and annotator, and settle them.

    \b
    response_id, annotator   who labelled what
    question_id              or name the run, which knows
    locally_sound, aligned, closed, complete, correct
                             or L, A, C, K, Acc: yes or no, true or false,
                             1 or 0; empty where there is no label
    adjudicates              yes in the rows of whoever settles what the
                             others disagree about

    Writes the files that export writes; annotations.jsonl of an export comes back as it was. Rows that cannot be used
    are told all at once, and nothing is written.
    """
    from eclose.annotation.results.export import export_annotations as write_export
    from eclose.annotation.results.import_labels import read_labels, read_run_material
    from eclose.store.runs.manifest import hash_files

    shown = None if run is None else read_run_material(run)
    found = read_labels(files, columns=_columns(column or []), run=shown, per_response=per_response)
    done = write_export(
        found.annotations,
        out,
        stage="annotate import",
        settings={"columns": sorted(column or []), "per_response": per_response},
        inputs=hash_files(files),
        material=shown,
        judge=judge,
        formats=layouts or [ExportFormat.JSONL],
    )
    if found.skipped:
        say(f"{plural(found.skipped, 'annotation')} without labels, passed over by whoever was asked")
    _say_exported(out, done)


def _columns(given: Sequence[str]) -> dict[str, str]:
    from eclose.errors import SettingError

    pairs = [one.partition("=") for one in given]
    if wrong := [one for one, (name, sign, column) in zip(given, pairs, strict=True) if not (name and sign and column)]:
        raise SettingError(f"--column {wrong[0]}: write the name here, =, and the name in the file.")
    return {name.strip(): column.strip() for name, _, column in pairs}
