"""Page of every command and its options, docs/reference/commands.md. ``python docs/command_page.py`` writes it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer
from typer.core import TyperArgument

from fedkernel.experiments.cli import app

PAGE = Path(__file__).parent / "reference" / "commands.md"
BEGIN, END = "<!-- commands -->\n", "<!-- end of commands -->\n"
EVERYWHERE = ("debug", "help")
"""Of every command, so that the page says once what they do."""


def commands(group: Any = None, context: click.Context | None = None) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its name, those of groups after the group's."""
    group = group or typer.main.get_command(app)
    context = context or click.Context(group, info_name="fedkernel")
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        own = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from commands(command, own)
        else:
            yield own.command_path, command


def number(value: float) -> str:
    """Return a number as it is typed."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def values_of(parameter: click.Parameter) -> str:
    """Return what stands after an option, or for an argument, and what by default."""
    kind = parameter.type
    if getattr(parameter, "is_flag", False):
        return ""
    if isinstance(kind, click.Choice):
        explained = all(choice in str(getattr(parameter, "help", "")) for choice in map(str, kind.choices))
        text = "" if explained else ", ".join(f"`{choice}`" for choice in kind.choices)
    elif isinstance(parameter, TyperArgument) or not parameter.metavar:
        text = kind.name.removesuffix(" range").replace("float", "number").replace("integer", "whole number")
    else:
        text = f"`{parameter.metavar}`"
    if isinstance(kind, click.IntRange | click.FloatRange) and kind.min is not None:
        text += f" from {number(kind.min)}" + ("" if kind.max is None else f" to {number(kind.max)}")
    default = parameter.default
    if default is None or parameter.required or parameter.multiple:
        return text
    return f"{text}; by default {number(default) if isinstance(default, int | float) else f'`{default}`'}"


def row(parameter: click.Parameter) -> str:
    """Return a parameter's line."""
    if isinstance(parameter, TyperArgument):
        name = f"`{parameter.metavar or str(parameter.name).upper()}`"
    else:
        names = (*parameter.opts, *(other for other in parameter.secondary_opts if not other.startswith("--no-")))
        name = ", ".join(f"`{name}`" for name in names) + (" (needed)" if parameter.required else "")
    meaning = str(getattr(parameter, "help", None) or "")
    cells = (name, values_of(parameter), meaning.replace("\\[", "["))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


SHARED = "Options of several commands"
"""Heading of the options that commands share to the word, which the page has once."""


def shared_options() -> list[click.Parameter]:
    """Return the options that are the same in several commands; of one name the most common, if one is."""
    every = [option for _, command in commands() for option in command.params if not isinstance(option, TyperArgument)]
    by_name: dict[str, Counter[str]] = {}
    for option in every:
        by_name.setdefault(option.opts[0], Counter())[row(option)] += 1
    first = {row(option): option for option in reversed(every) if option.name not in EVERYWHERE}
    rows = [rows.most_common(2) for rows in by_name.values()]
    return [
        first[most] for (most, times), *others in rows if most in first and times > max([1, *(n for _, n in others)])
    ]


def table(parameters: list[click.Parameter], more: str = "") -> str:
    """Return the table of some parameters, with a last line about others."""
    lines = [*map(row, parameters), *([more] if more else [])]
    return "\n".join(["| option | value | meaning |", "|---|---|---|", *lines, ""]) if lines else ""


def section(name: str, command: click.Command, shared: list[click.Parameter]) -> str:
    """Return what the page says of a command; options that it shares are named only."""
    common, own = {row(parameter) for parameter in shared}, list[click.Parameter]()
    names = list[str]()
    for parameter in (parameter for parameter in command.params if parameter.name not in EVERYWHERE):
        if row(parameter) in common:
            names.append(f"`{parameter.opts[0]}`")
        else:
            own.append(parameter)
    link = f"[see below](#{SHARED.lower().replace(' ', '-')})"
    text = " ".join((command.help or "").replace("\\[", "[").split())
    return "\n".join([f"## {name}", "", text, "", table(own, f"| {', '.join(names)} |  | {link} |" if names else "")])


def page() -> str:
    """Return the page with the commands as they are now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    shared = shared_options()
    sections = "\n".join(section(name, command, shared) for name, command in commands())
    return f"{before}{BEGIN}\n{sections}\n## {SHARED}\n\n{table(shared)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
