"""A group of commands whose help says what their arguments are."""

import inspect

import click
from typer.core import TyperGroup
from typer.models import ArgumentInfo


class Group(TyperGroup):
    """Gives arguments their help text back, see `with_argument_help`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, its arguments with their help."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else with_argument_help(command)


def with_argument_help(command: click.Command) -> click.Command:
    """Return a command, its arguments with their help text.

    Click from 8.5 on sets it to None where typer below 0.21 names it, and Flower needs such a typer. Ours are declared
    by `Annotated`, where the text is found again.
    """
    if command.callback is not None:
        declared = inspect.signature(command.callback).parameters
        for parameter in command.params:
            for info in getattr(declared[str(parameter.name)].annotation, "__metadata__", ()):
                if isinstance(info, ArgumentInfo) and isinstance(parameter, click.Argument):
                    parameter.help = info.help
    return command
