"""Command line `fedkernel`; each command's module is imported when the command is called."""

import importlib
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import click
import typer
from typer import Option
from typer.main import get_command, get_group

from fedkernel.experiments.commands.command_group import Group, with_argument_help

COMMANDS = {
    "experiment": {
        "run": "Run an experiment, or its unfinished runs, and print and write its report.",
        "report": "Print an experiment's table again, and write its plots and report.html anew.",
        "compare": "Compare the experiments in two output folders, method by method.",
    },
    "demo": {"demo": "Run the quickstart on bundled data, and print the path of its report."},
    "init_experiment": {"init": "Write a commented experiment that runs at once, and print the next command."},
    "schema": {"schema": "Print the JSON schema of experiments' TOML files, for editors."},
    "new_pair": {"new": "Write a pair of your own to start from: client, strategy, test and experiment."},
    "advise": {"advise": "Recommend a method for the sites' tables, with costs and disclosures."},
    "check_file": {"check": "Check a site's file, and print every fault with its remedy; nothing leaves."},
    "apply_model": {
        "predict": "Label rows by the clusters of a model; nothing leaves this machine.",
        "transform": "Compute the coordinates of rows along a model's components; nothing leaves this machine.",
    },
    "server_commands": {
        "certs": "Make, renew or revoke certificates of a server and its sites.",
        "identity": "Make a site's key for letters and masked sums, and print its fingerprint for pins.",
        "serve": "Wait until all sites have joined, run an experiment with them, and write its report.",
    },
    "join": {"join": "Join a server as a site, with the site's own data, until the work is done."},
    "site_page": {"show": "Write a site's own page about its runs: rows, clusters, columns, and what left."},
    "list_names": {"list": "List the names that a configuration can use."},
    "study_approval": {"study": "Show a study, which is all that sites will be asked, and approve it."},
    "policy": {"policy": "Write and check a site's policy: what its operator allows."},
    "outbox": {"outbox": "Show and check the record of what has left a site."},
    "receipt": {"receipt": "Make and check signed receipts of what left a site in a run."},
}
"""By module of `fedkernel.experiments.commands`: its commands, and the sentence of each in the list of all."""


class Commands(Group):
    """Command group that imports a command's module only when the command is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of the called command, the imported command and its arguments."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, None if listed is None else _imported(str(name)), rest


def _imported(name: str) -> click.Command:
    from fedkernel.experiments.commands.console import command  # noqa: PLC0415 - the version and the list do not wait for it

    room = next(module for module, commands in COMMANDS.items() if name in commands)
    module = vars(importlib.import_module(f"fedkernel.experiments.commands.{room}"))
    imported = module.get("app") or module.get(name) or module[f"{name}_"]
    if isinstance(imported, typer.Typer):
        group = get_group(imported)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(command(imported))
    return with_argument_help(get_command(alone))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Federated kernel PCA and kernel k-means on Flower: run the papers' methods, compared on the same data.",
)


@app.callback(invoke_without_command=True)
def _root(show_version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False) -> None:
    if show_version:
        typer.echo(version("fedkernel"))
        raise typer.Exit


def _listed() -> None:
    """Stand in for a command in the list of commands; the command itself replaces it when called."""


for _commands in COMMANDS.values():
    for _name, _sentence in _commands.items():
        app.command(_name, help=_sentence)(_listed)


def main() -> None:
    """Run the command line. Addresses can name modules in the current folder, but installed ones come first."""
    sys.path.append(str(Path.cwd()))
    # An engine ends the processes it started on its way out, which the default action would not give it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(app())
