"""Options of the commands that read responses from files of other tools: what is a case, and where its parts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from eclose.benchmarks.import_settings import CaseSelection, ImportSettings, TraceMode
from eclose.cli.shared.option_group import add_option_group


def takes_import_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which takes them as one parameter, ``imported``."""
    return add_option_group(command, _read_import_options, "imported")


def _read_import_options(
    *,
    field_map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=PATH,...",
            help="Paths of the fields of a record, such as question=a.b,answer=c[0],documents=hits[*].text; repeatable."
            " Fields: question, documents, reference, aliases, kind, hops, answer, trace, messages, id, model, dataset."
            " Of a list of references, the first is the reference and the others are aliases.",
            show_default=False,
        ),
    ] = None,
    source_model: Annotated[
        str | None,
        typer.Option("--model", help="Name of the model that wrote the responses, where the file has none."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Name of the dataset, where the file has none.")
    ] = None,
    trace: Annotated[
        TraceMode,
        typer.Option(
            "--trace", help="Steps: as the file marks them, or else the sentences of an answer in prose as well."
        ),
    ] = TraceMode.MARKED,
    case: Annotated[
        str,
        typer.Option("--case", help="Spans that are cases of a trace file: root, 'span NAME', or attribute=value."),
    ] = "root",
    question_at: Annotated[
        str | None, typer.Option("--question-at", help="JSON pointer to the question in the content of the span.")
    ] = None,
    documents_at: Annotated[
        str | None, typer.Option("--documents-at", help="JSON pointer to the documents in the content of the span.")
    ] = None,
    answer_at: Annotated[
        str | None, typer.Option("--answer-at", help="JSON pointer to the answer in the content of the span.")
    ] = None,
) -> ImportSettings:
    from eclose.benchmarks.mapping import parse_field_map

    return ImportSettings(
        columns=parse_field_map(",".join(field_map)) if field_map else {},
        model=source_model,
        dataset=dataset,
        trace=trace,
        cases=CaseSelection(case, question_at, documents_at, answer_at),
    )
