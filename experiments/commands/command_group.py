"""Typer command group that restores help texts of positional arguments under recent Click versions."""

import inspect

import click
from typer.core import TyperGroup
from typer.models import ArgumentInfo


class Group(TyperGroup):
    """Command group that restores the help texts of its commands' arguments; see `with_argument_help`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command with the help texts of its arguments."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else with_argument_help(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names. Errors suggest others once: by Click, not by typer too."""
        return click.Group.resolve_command(self, ctx, args)


def with_argument_help(command: click.Command) -> click.Command:
    """Return a command with the help texts of its arguments, from the `Annotated` types.

    Click from 8.5 on sets them to None under typer below 0.21, which Flower needs.
    """
    if command.callback is not None:
        declared = inspect.signature(command.callback).parameters
        for parameter in command.params:
            for info in getattr(declared[str(parameter.name)].annotation, "__metadata__", ()):
                if isinstance(info, ArgumentInfo) and isinstance(parameter, click.Argument):
                    parameter.help = info.help
    return command
