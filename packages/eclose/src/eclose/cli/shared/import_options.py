"""Options of the commands that read responses from files of other tools: what is a case, and where its parts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from eclose.cli.shared.options import add_option_group
from eclose.cli.shared.recipe import recipe_key
from eclose.readers.import_settings import CaseSelection, ImportSettings, TraceMode


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
    source_model: Annotated[str | None, recipe_key("--model")] = None,
    dataset: Annotated[str | None, recipe_key()] = None,
    trace: Annotated[
        TraceMode,
        typer.Option(
            "--trace",
            help="Steps: wherever a response has them (auto; prose is the same), or as it marks them (marked).",
        ),
    ] = TraceMode.AUTO,
    answer_marker: Annotated[list[str] | None, recipe_key()] = None,
    trace_marker: Annotated[list[str] | None, recipe_key()] = None,
    language: Annotated[str, recipe_key()] = "auto",
    judge_arguments: Annotated[bool, recipe_key()] = False,
    reader: Annotated[str | None, recipe_key()] = None,
    case: Annotated[str, recipe_key()] = "root",
    question_at: Annotated[str | None, recipe_key()] = None,
    documents_at: Annotated[str | None, recipe_key()] = None,
    answer_at: Annotated[str | None, recipe_key()] = None,
) -> ImportSettings:
    from eclose.readers.mapping import parse_field_map

    return ImportSettings(
        columns=parse_field_map(",".join(field_map)) if field_map else {},
        model=source_model,
        dataset=dataset,
        trace=trace,
        answer_markers=tuple(answer_marker or ()),
        trace_markers=tuple(trace_marker or ()),
        language=language,
        judge_arguments=judge_arguments,
        reader=reader,
        cases=CaseSelection(case, question_at, documents_at, answer_at),
    )
