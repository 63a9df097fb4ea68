"""The commands of ``eclose`` by name. Each is imported when it is run, so that ``--help`` answers at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from eclose.cli.command_entry import CommandEntry
from eclose.cli.shared.recipe import read_recipe_keys
from eclose.errors import UserError

ENTRY_POINT_GROUP = "eclose.commands"


def _of_extra(extra: str) -> CommandEntry:
    return CommandEntry(target="", help=f"pip install 'eclose[{extra}]'")


COMMANDS = {
    "construct": _of_extra("train"),
    "demo": CommandEntry(
        "eclose.cli.demo:demo",
        "Show a complete diagnosis in seconds, without a key, a model or a network.",
    ),
    "diagnose": CommandEntry(
        "eclose.cli.diagnose:diagnose",
        "Say which responses of judged runs are unreliable and why: rates with intervals, and every response "
        "to look at.",
    ),
    "export": CommandEntry(
        "eclose.cli.export:export",
        "Send the verdicts of a judged run to a trace store, or write them to a file.",
    ),
    "failures": CommandEntry(
        "eclose.cli.failures:failures",
        "List the responses that need mending: what is wrong with each, in which step, and what the judge says.",
    ),
    "gate": CommandEntry(
        "eclose.cli.gate:gate",
        "Check a judged run against limits: exit with 0 where it passes, 100 where it fails, 101 where it cannot tell.",
    ),
    "generate": CommandEntry(
        "eclose.cli.generate:generate",
        "Let a model answer questions step by step: greedy decoding, one completion each, in the order of ids.",
    ),
    "label": _of_extra("annotate"),
    "metrics": CommandEntry(
        "eclose.cli.diagnose:metrics",
        "Compute accuracy, soundness, sufficiency, reliability and the gap, with 95 % intervals over questions.",
    ),
    "report": CommandEntry(
        "eclose.cli.diagnose:report",
        "Write the report of judged runs: the same files as diagnose, or some of them, without its tables.",
    ),
    "screen": CommandEntry(
        "eclose.cli.screen:screen",
        "Let a model decide which questions are well posed, decided by their passages, and correctly answered"
        " by their reference.",
    ),
    "select": _of_extra("train"),
    "switch": _of_extra("train"),
    "train": _of_extra("train"),
    "trend": CommandEntry(
        "eclose.cli.trend:trend",
        "Follow a rate of a judged run over time windows, with bounds that hold while the run grows.",
    ),
    "annotate": _of_extra("annotate"),
    "data": CommandEntry(
        "eclose.cli.data:app",
        "Convert benchmarks and files of other tools, draw samples, describe and check them.",
    ),
    "detect": CommandEntry(
        "eclose.cli.detect:app",
        "Score responses with a detector that sees no reference answer (eclose detect RUN --detector NAME).",
    ),
    "experiment": _of_extra("train"),
    "families": _of_extra("train"),
    "judge": CommandEntry(
        "eclose.cli.judge:app",
        "Judge responses with a model, and validate the judge against people.",
    ),
    "ledger": CommandEntry(
        "eclose.cli.ledger:app",
        "Check the ledger of model calls, and free the calls that broke off or were refused.",
    ),
    "verifier": _of_extra("train"),
    "world": _of_extra("world"),
}
"""Commands of this package, and places for those of the others, in the order of the help."""
OWN_COMMANDS = {name: entry for name, entry in COMMANDS.items() if entry.target}


def find_commands() -> dict[str, CommandEntry]:
    """Return the commands of all packages that are installed, in the order of the help."""
    return merge_commands(find_command_tables())


def find_command_tables() -> list[Mapping[str, CommandEntry]]:
    """Return the tables that packages name in the group ``eclose.commands`` of their entry points."""
    # Importing it and looking at every package take half as long as importing Typer.
    from importlib.metadata import entry_points

    return [entry.load() for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)]


def merge_commands(tables: Iterable[Mapping[str, CommandEntry]]) -> dict[str, CommandEntry]:
    """Return the commands of this package with those of others: in their places, or at the end where they have none."""
    merged = dict(COMMANDS)
    for table in tables:
        merged |= {name: entry for name, entry in table.items() if name not in OWN_COMMANDS}
    return merged


class LazyCommands(Mapping[str, Any]):
    """All commands, each made when it is first asked for; other packages are looked at only where it is theirs."""

    def __init__(self) -> None:
        self._load = cache(lambda name: load_command(name, OWN_COMMANDS.get(name) or self.entries[name]))

    @cached_property
    def entries(self) -> dict[str, CommandEntry]:
        """The table of all commands, in the order of the help."""
        return find_commands()

    def __getitem__(self, name: str) -> Any:
        return self._load(name)

    def __contains__(self, name: object) -> bool:
        return name in OWN_COMMANDS or name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def load_command(name: str, entry: CommandEntry) -> Any:
    """Import a command and return it as Typer runs it.

    Raises:
        UserError: The package of the command is not installed.
    """
    if not entry.target:
        raise UserError(f"{name} is not installed. Run: {entry.help}")
    module, _, attribute = entry.target.partition(":")
    target = getattr(import_module(module), attribute)
    # A group of one, since only a group hands its plain texts of help down to a Typer application.
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(target, typer.Typer):
        holder.add_typer(target, name=name)
    else:
        holder.command(name=name, context_settings=entry.context_settings)(target)
    command = typer.main.get_group(holder).commands[name]
    read_recipe_keys(command)
    return command


class OptionWithoutDefault(TyperOption):
    """An option that is converted only where it is given: Typer imports pydantic for that, which takes a moment."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """Return the converted value, or None."""
        return None if value is None else super().process_value(ctx, value)


class EcloseCommands(TyperGroup):
    """The group of all commands, whose help is printed from the table."""

    def __init__(self, *, commands: Any = None, **settings: Any) -> None:
        super().__init__(commands=commands, **settings)
        self.commands = LazyCommands()  # type: ignore[assignment]

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, --help among them."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if parameter.default is None:
                # Typer makes the options itself, and lets no class be named for them.
                parameter.__class__ = OptionWithoutDefault
        return parameters

    def list_commands(self, _context: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.commands)

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        entries = self.commands.entries  # type: ignore[attr-defined]
        room = formatter.width - 6 - max(map(len, entries))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, TyperCommand(name, help=entry.help).get_short_help_str(room))
                    for name, entry in entries.items()
                ]
            )
