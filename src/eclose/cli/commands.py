"""The commands of ``eclose`` by name. Each is imported when it is run, so that ``--help`` answers at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from eclose.cli.shared.recipe import read_recipe_keys


class CommandEntry(NamedTuple):
    """Where a command is, and its line in the list of commands."""

    target: str
    """``module:name`` of a function, or of a Typer application whose commands are those of the group."""
    help: str
    """The first sentence of the command's own help."""
    context_settings: dict[str, Any] | None = None


COMMANDS = {
    "construct": CommandEntry(
        "eclose.cli.construct:construct",
        "Build counterfactual families for training: a verified response to each question, its counterpart "
        "after one claim of the evidence is changed, and its counterpart for another question.",
    ),
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
    "gate": CommandEntry(
        "eclose.cli.gate:gate",
        "Check a judged run against limits: exit with 0 where it passes, 100 where it fails, 101 where it cannot tell.",
    ),
    "generate": CommandEntry(
        "eclose.cli.generate:generate",
        "Let a model answer questions step by step: greedy decoding, one completion each, in the order of ids.",
    ),
    "label": CommandEntry(
        "eclose.cli.label:label",
        "Label a sample of your responses in the browser, without accounts, and correct the rates of the run.",
    ),
    "metrics": CommandEntry(
        "eclose.cli.metrics:metrics",
        "Compute accuracy, soundness, sufficiency, reliability and the gap, with 95 % intervals over questions.",
    ),
    "report": CommandEntry(
        "eclose.cli.report:report",
        "Write the report of judged runs: the same files as diagnose, or some of them, without its tables.",
    ),
    "screen": CommandEntry(
        "eclose.cli.screen:screen",
        "Let a model decide which questions are well posed, decided by their passages, and correctly answered"
        " by their reference.",
    ),
    "select": CommandEntry(
        "eclose.cli.select:select",
        "Let every checkpoint answer held-out families, and select the one that answers best.",
    ),
    "switch": CommandEntry(
        "eclose.cli.switch:switch",
        "Test whether the preferred step, trace and answer switch with their input: twelve scores a family.",
    ),
    "train": CommandEntry(
        "eclose.cli.train:train",
        "Train an adapter on families, each in one forward where the model allows it.",
        # Every field of TrainingArguments is a flag of train, so unknown options are passed on instead of refused.
        {"allow_extra_args": True, "ignore_unknown_options": True},
    ),
    "annotate": CommandEntry(
        "eclose.cli.annotate.project:app",
        "Let people label responses; each decision is shown only what it may rest on.",
    ),
    "data": CommandEntry(
        "eclose.cli.data:app",
        "Convert benchmarks and files of other tools, draw samples, describe and check them.",
    ),
    "detect": CommandEntry(
        "eclose.cli.detect.scoring:app",
        "Score responses with a detector that sees no reference answer (eclose detect RUN --detector NAME).",
    ),
    "experiment": CommandEntry(
        "eclose.cli.experiment.commands:app",
        "Run a study of backbones, methods and seeds from one plan.",
    ),
    "families": CommandEntry("eclose.cli.families.commands:app", "Show, validate and export families."),
    "judge": CommandEntry(
        "eclose.cli.judge.run:app",
        "Judge responses with a model, and validate the judge against people.",
    ),
    "ledger": CommandEntry(
        "eclose.cli.ledger:app",
        "Check the ledger of model calls, and free the calls that broke off or were refused.",
    ),
    "verifier": CommandEntry(
        "eclose.cli.verifier:app",
        "Train verifiers of dependencies: cheap detectors learned from families.",
    ),
    "world": CommandEntry(
        "eclose.cli.world:app",
        "Make a multi-hop benchmark whose truth is known, judge responses to it exactly, serve a model for it.",
    ),
}


class LazyCommands(Mapping[str, Any]):
    """Commands of a table, each made when it is first asked for."""

    def __init__(self, entries: Mapping[str, CommandEntry]) -> None:
        self.entries = entries
        self._load = cache(lambda name: load_command(name, entries[name]))

    def __getitem__(self, name: str) -> Any:
        return self._load(name)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def load_command(name: str, entry: CommandEntry) -> Any:
    """Import a command and return it as Typer runs it."""
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
        self.commands = LazyCommands(COMMANDS)  # type: ignore[assignment]

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
        room = formatter.width - 6 - max(map(len, COMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, TyperCommand(name, help=entry.help).get_short_help_str(room))
                    for name, entry in COMMANDS.items()
                ]
            )
