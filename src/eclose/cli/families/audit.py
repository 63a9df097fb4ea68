"""``eclose families audit``: let people look at a sample of families, and report what they found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eclose.cli.shared.output import percent, percent_span, percent_with_interval, print_table, say
from eclose.construction.audit.file_names import REPORT, FormFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.construction.audit.report import AnnotatorForms, AuditReport, PassRate, WeightedPassRate
    from eclose.construction.audit.sample import AuditKey

DISAGREEMENTS = "disagreements"

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Let people look at a sample of families (appendix B.6)."
)


@app.command()
def sample(
    run: Annotated[
        Path,
        typer.Argument(
            help="A construct run's folder, with train.jsonl and development.jsonl, or one file of families.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the forms and their key.", show_default=False)],
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Families to look at, as many of every dataset.")] = 300,
    seed: Annotated[int, typer.Option(help="Another seed draws other families.")] = 42,
    annotators: Annotated[int, typer.Option(min=1, help="People who look at every family, each alone.")] = 2,
    layout: Annotated[FormFormat, typer.Option("--format", help="How the forms are written.")] = FormFormat.JSONL,
) -> None:
    """Draw families for people to look at, and write a file of forms for each of them.

    \b
    forms-1.jsonl    one file for each annotator, in an order of its own
    audit_family.md  the guideline: what is asked, with examples; hand it out
    audit.json       the key: which form is which family. Keep it to yourself

    \b
    csv    recommended where people fill in the forms by hand, in a
           spreadsheet: a row a family, yes or no in the empty cells
    jsonl  recommended where a tool of yours shows them: every text exactly
           as it is, null to be replaced by true or false

    Of every dataset the same number is drawn, nine tenths from training and one tenth from development, and of every
    family one evidence edit. A form tells neither the family nor the dataset, and nothing that models said. The same
    seed gives the same files; forms that are already there are left as they are.
    """
    from eclose.construction.audit.sample import draw_sample, read_corpus, write_audit

    key = draw_sample(read_corpus(run), n=n, seed=seed, annotators=annotators)
    written = write_audit(out, key, layout)
    _say_drawn(key, n)
    for path, new in written.items():
        say(f"{path}: {'written' if new else 'was there, left as it is'}")


def _say_drawn(key: AuditKey, n: int) -> None:
    rows = [(one.dataset, one.split, f"{one.families:,}", f"{one.asked:,}", f"{one.drawn:,}") for one in key.strata]
    print_table("Families to look at", ("dataset", "part", "families", "asked for", "drawn"), rows)
    for one in key.strata:
        if one.drawn < one.asked:
            say(f"{one.dataset}, {one.split}: {one.asked:,} were asked for, and there are only {one.families:,}")
    if len(key.items) < n:
        say(f"drawn in all: {len(key.items):,} of {n:,}")
    for reason, count in key.set_aside.items():
        say(f"set aside and not drawn from: {count:,} ({reason})")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder with the key, audit.json.", show_default=False)],
    forms: Annotated[
        list[Path], typer.Argument(help="The forms as they came back, a file for each annotator.", show_default=False)
    ],
    adjudicated: Annotated[
        Path | None, typer.Option(help="The forms of a third person on what the others disagree about.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For the intervals.")] = 42,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2_000,
) -> None:
    """Report how far people agree and how many families pass.

    A view passes when all that is asked of it is answered with yes, a family when its three views pass. Families on
    which people disagree are written as blank forms, disagreements.jsonl or .csv, for a third person; until these come
    back with --adjudicated, and while answers are missing, rates stay open and bounds are shown.

    By dataset: rate and Wilson interval. For the corpus: rates weighted by the datasets' shares of it, with percentiles
    of a bootstrap within datasets. Everything is written to audit-report.json.
    """
    from pydantic import TypeAdapter

    from eclose.construction.audit.report import AuditReport
    from eclose.construction.audit.report import build_audit_report as report_on
    from eclose.construction.audit.sample import read_key
    from eclose.protocol.auditing import GUIDELINE
    from eclose.protocol.prompts import load_text
    from eclose.store.records.atomic import AtomicFile

    key = read_key(folder)
    sheets = [_sheet(key, path) for path in forms]
    third = None if adjudicated is None else _sheet(key, adjudicated)
    found = report_on(key, sheets, third, seed=seed, resamples=resamples)
    with AtomicFile(folder / REPORT) as file:
        file.write(TypeAdapter(AuditReport).dump_json(found, indent=1) + b"\n")
    _say_handed(found)
    _say_agreement(found)
    _say_rates(found)
    if key.guideline != load_text(GUIDELINE).hash:
        say("the guideline of this version is another than the one that was handed out")
    _say_open(found, key, folder, forms[0])
    say(f"{folder / REPORT}: written")


def _sheet(key: AuditKey, path: Path) -> AnnotatorForms:
    from eclose.construction.audit.forms import read_forms
    from eclose.construction.audit.report import match_forms

    return match_forms(key, path, read_forms(path))


def _say_handed(found: AuditReport) -> None:
    head = ("annotator", "expected", "complete", "half-filled", "blank", "missing")
    rows = []
    for one in found.handed:
        counts = (one.expected, one.complete, len(one.half_filled), len(one.blank), len(one.missing))
        rows.append((str(one.annotator), *(f"{count:,}" for count in counts)))
    print_table("Forms", head, rows)
    for one in found.handed:
        for name in ("half_filled", "blank", "missing"):
            if ids := getattr(one, name):
                say(f"annotator {one.annotator}, {name.replace('_', '-')}: {_listed(ids)}")
        if one.surplus:
            say(f"annotator {one.annotator}, not in dispute and not used: {_listed(one.surplus)}")


def _listed(ids: Sequence[str], most: int = 10) -> str:
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _say_agreement(found: AuditReport) -> None:
    if not found.agreement:
        say("agreement is undefined: there is one annotator")
        return
    head = ("annotators", "view", "n", "agreed", "percent", "AC1")
    rows = [
        (
            " and ".join(map(str, one.annotators)),
            one.what,
            f"{one.n:,}",
            f"{one.agreed:,}",
            percent(one.raw),
            "-" if one.ac1 is None else f"{one.ac1:.3f}",
        )
        for one in found.agreement
    ]
    print_table("Agreement before anybody settles anything", head, rows)


def _say_rates(found: AuditReport) -> None:
    from eclose.construction.audit.report import COLUMNS

    rows = [
        (name, f"{found.audited[name]:,}", *(_shown(row[what]) for what in COLUMNS))
        for name, row in found.datasets.items()
    ]
    total = f"{sum(found.audited.values()):,}"
    rows.append(("unweighted", total, *(_shown(found.unweighted[what]) for what in COLUMNS)))
    rows.append(("corpus-weighted", total, *(_shown(found.weighted[what]) for what in COLUMNS)))
    print_table("Passing, in percent", ("dataset", "audited", *COLUMNS), rows)
    if constant := [what for what in COLUMNS if found.weighted[what].constant]:
        say(
            f"{', '.join(constant)}: all audited families of a dataset say the same, so resampling them shows no "
            "spread; see the datasets' own intervals for what that leaves open"
        )
    if None in (found.weighted[what].bounds for what in COLUMNS):
        missing = [name for name, count in found.audited.items() if not count]
        say(f"corpus-weighted is undefined: no family was audited of {', '.join(missing)}")


def _shown(rate: PassRate | WeightedPassRate) -> str:
    """``97.3 % [95.3, 98.9]``; what is open by its bounds, what is undefined by a dash."""
    if rate.value is not None:
        return percent_with_interval(rate.value, rate.interval)
    return "-" if rate.bounds is None else f"open: {percent_span(rate.bounds)}"


def _say_open(found: AuditReport, key: AuditKey, folder: Path, example: Path) -> None:
    """What is left to do, and the blank forms for whoever is to do it."""
    if found.disputed:
        settled = len(found.disputed) - len(found.unresolved)
        say(f"people disagree on {len(found.disputed):,} of {len(key.items):,} families; {settled:,} settled")
        say(
            _write_disagreements(
                found, key, folder, FormFormat.CSV if example.suffix.lower() == ".csv" else FormFormat.JSONL
            )
        )
    if unanswered := len(set(found.open) - set(found.unresolved)):
        say(f"of {unanswered:,} families answers are missing; rates stay open until they are there")


def _write_disagreements(found: AuditReport, key: AuditKey, folder: Path, layout: FormFormat) -> str:
    """Write the blank forms, unless somebody has begun to fill them in; says which."""
    from eclose.construction.audit.forms import encode_forms, read_forms
    from eclose.store.records.atomic import AtomicFile

    path = folder / f"{DISAGREEMENTS}.{layout}"
    disputed = set(found.disputed)
    third = key.annotators + 1
    blank = [item.form(third) for item in key.items if item.family_id in disputed]
    blank.sort(key=lambda form: form.id)
    if path.exists() and any(not form.blank or form.note for form in read_forms(path)):
        listed = {form.id for form in read_forms(path)}
        lacking = sum(form.id not in listed for form in blank)
        return f"{path}: is being filled in, left as it is" + (f"; it lacks {lacking:,} of them" if lacking else "")
    with AtomicFile(path) as file:
        file.write(encode_forms(blank, layout))
    return f"{path}: blank forms for a third person"
