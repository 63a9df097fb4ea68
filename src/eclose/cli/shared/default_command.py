"""A command group with a default: ``eclose judge RUN`` means ``eclose judge run RUN``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperGroup

if TYPE_CHECKING:
    import typer


class RunByDefault(TyperGroup):
    """A command group in which ``run`` may be left out."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Insert ``run`` where the first argument is no command."""
        # Without arguments nothing is inserted, so that the help of the group is shown.
        names = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in names else ["run", *args])
