"""Groups of options that several commands share, each passed to the command as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any


def add_option_group(
    command: Callable[..., None],
    read: Callable[..., Any],
    parameter: str,
    check: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
) -> Callable[..., None]:
    """Return the command with the options of ``read`` in place of one parameter.

    Args:
        command: A command with a parameter of this name.
        read: Function whose parameters are the options; its value is passed to the command.
        parameter: Name of the parameter.
        check: Called with the options and the other arguments before the command runs.
    """
    # Annotations are strings in these modules; typer needs the objects behind them.
    signature, shared = (inspect.signature(function, eval_str=True) for function in (command, read))
    own_parameters = [own for name, own in signature.parameters.items() if name != parameter]
    # A command with several groups is called by one function, which reads the group that was added last first.
    groups = [(shared.parameters, read, parameter, check), *getattr(command, "option_groups", ())]
    run = command.__wrapped__ if len(groups) > 1 else command  # type: ignore[attr-defined]

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        for options, read_group, name_of_group, check_group in groups:
            values = {name: arguments.pop(name) for name in options}
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
