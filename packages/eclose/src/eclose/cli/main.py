"""The ``eclose`` command: the ``.env`` file, and exit codes for errors. Its commands are those of ``commands``."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Never

import typer

import eclose
from eclose.cli.commands import EcloseCommands
from eclose.cli.shared.extras import describe_missing_extra
from eclose.cli.shared.output import escape_invisible
from eclose.errors import UserError

# Commands without an option that is also read from the environment, which send with keys from it.
_KEYED_COMMANDS = frozenset({"export"})
# 128 + 2, the number of SIGINT: what a shell reports for a program that Ctrl+C ended.
INTERRUPTED = 130

app = typer.Typer(
    cls=EcloseCommands,
    no_args_is_help=True,
    add_completion=False,
    # main() below prints the user's mistakes as sentences; a bug keeps Python's own traceback.
    pretty_exceptions_enable=False,
    # Help is plain text: the same on a terminal, in a pipe and in the documentation.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"eclose {eclose.__version__}")
        raise typer.Exit


@app.callback()
def _eclose(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback handles it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file", help="File of NAME=value lines to trust; without it, .env may not redirect calls or keys."
        ),
    ] = None,
) -> None:
    """Measure and close the local-global gap: responses in which every step is sound, but the reasoning as a whole
    does not establish the answer.
    """
    # Commands that call no model do not open .env: its content cannot concern them (decision 0033).
    reads_keys = context.invoked_subcommand in _KEYED_COMMANDS
    command = _commands(context.command)[context.invoked_subcommand]
    # Most folders have no such file, and the rules of what it may decide take time to load.
    if env_file is not None or (Path(".env").is_file() and (reads_keys or _reads_environment(command))):
        from eclose.cli.shared.env_file import load_env_file

        load_env_file(env_file, trusted=env_file is not None)


def _commands(command: Any) -> dict[str | None, Any]:
    # Typer brings its own copy of click, so there is no class to check against.
    return getattr(command, "commands", {})


def _reads_environment(command: Any) -> bool:
    reads = any(parameter.envvar for parameter in getattr(command, "params", ()))
    return reads or any(map(_reads_environment, _commands(command).values()))


def main() -> Never:
    """Run the command; print a user's mistake as a sentence with exit code 2, and a bug as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal with another encoding, as on Windows, must not end a command that prints a name.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except UserError as error:
        _fail(str(error), error.exit_code)
    # A missing extra is reported with its install command. Any other import error is a bug and keeps its traceback.
    except ImportError as error:
        if (message := describe_missing_extra(error)) is None:
            raise
        _fail(message)
    except BrokenPipeError:
        # The reader of the output, such as head, has closed the pipe: a message could not be printed.
        sys.exit(1)
    except OSError as error:
        # A full disk or a folder without permission is for the user to correct, wherever it came up.
        _fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    sys.exit(0)


def _fail(message: str, code: int = UserError.exit_code) -> Never:
    sys.stderr.write(f"eclose: {escape_invisible(message)}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
