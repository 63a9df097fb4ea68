"""A command group with a default: ``eclose judge RUN`` means ``eclose judge run RUN``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    import typer


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
