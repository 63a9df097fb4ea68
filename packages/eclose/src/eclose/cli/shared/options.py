"""Groups of options that several commands share, each passed to the command as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from eclose.cli.shared.recipe import recipe_key
from eclose.readers.import_settings import CaseSelection, ImportSettings, TraceMode
from eclose.readers.layouts import RecordLayout


def takes_options(
    read: Callable[..., Any],
    parameter: str,
    check: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of ``read`` in place of one parameter.

    Args:
        read: Function or dataclass whose parameters are the options; its value is passed to the command.
        parameter: Name of the parameter.
        check: Called with the options and the other arguments before the command runs.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        # Annotations are strings in these modules; typer needs the objects behind them.
        signature, shared = (inspect.signature(function, eval_str=True) for function in (command, read))
        own_parameters = [own for name, own in signature.parameters.items() if name != parameter]
        # A command with several groups is called by one function, which reads the group that was added last first.
        groups = [(shared.parameters, read, parameter, check), *getattr(command, "option_groups", ())]
        run = command.__wrapped__ if len(groups) > 1 else command  # type: ignore[attr-defined]

        @wraps(command)
        def with_options(**arguments: Any) -> None:
            for options, read_group, name_of_group, check_group in groups:
                # From Python, an option that is left out has its default.
                values = {name: arguments.pop(name) for name in options if name in arguments}
                if check_group is not None:
                    check_group(values, arguments)
                arguments[name_of_group] = read_group(**values)
            run(**arguments)

        with_options.__wrapped__ = run
        with_options.option_groups = groups  # type: ignore[attr-defined]
        parameters = [*own_parameters, *shared.parameters.values()]
        # Typer reads names, kinds and defaults from the signature, and types and help from the annotations.
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {added.name: added.annotation for added in parameters}
        # The short help of a group's default command leaves out what several commands share.
        with_options.shared_options = {*getattr(command, "shared_options", ()), *shared.parameters}  # type: ignore[attr-defined]
        return with_options

    return add


def _read_import_options(
    *,
    layout: Annotated[RecordLayout, typer.Option("--format", help="Layout of the records.")] = RecordLayout.AUTO,
    field_map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=PATH,...",
            help="Paths of the fields of a record, such as question=a.b,answer=c[0],documents=hits[*].text; repeatable."
            " Fields: question, documents, reference, aliases, kind, hops, answer, trace, messages, id, model, dataset,"
            " time. Of a list of references, the first is the reference and the others are aliases.",
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
        format=layout,
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


takes_import_options = takes_options(_read_import_options, "imported")
"""Adds the options to a command, which takes them as one parameter, ``imported``."""


class RunByDefault(TyperGroup):
    """A command group in which ``run`` may be left out. Its help shows the options that only ``run`` has."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Insert ``run`` where the first argument is no command."""
        # Without arguments nothing is inserted, so that the help of the group is shown.
        names = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in names else ["run", *args])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the own options of ``run`` and the commands; the options of calls and imports are left to ``run``."""
        run = self.commands["run"]
        shared: set[str] = {"recipe", *getattr(run.callback, "shared_options", ())}
        own = [parameter for parameter in run.get_params(ctx) if parameter.name not in shared]
        records = [record for parameter in own if (record := parameter.get_help_record(ctx)) is not None]
        with formatter.section(f"Options of run (for those of calls: {ctx.command_path} run --help)"):
            formatter.write_dl(records)
        self.format_commands(ctx, formatter)
