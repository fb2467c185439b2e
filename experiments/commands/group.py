"""A group of commands whose help says what their arguments are."""

from typing import get_type_hints

import click
from typer.core import TyperGroup
from typer.models import ArgumentInfo


class Group(TyperGroup):
    """Gives arguments their help text back, which click from 8.5 on sets to None where typer below 0.21 names it.

    Flower needs such a typer. Ours are declared by `Annotated`, where the text is found again.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, its arguments with their help."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.callback is not None:
            hints = get_type_hints(command.callback, include_extras=True)
            for parameter in command.params:
                for info in getattr(hints.get(str(parameter.name)), "__metadata__", ()):
                    if isinstance(info, ArgumentInfo) and isinstance(parameter, click.Argument):
                        parameter.help = info.help
        return command
