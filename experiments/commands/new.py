"""The command of whoever has a method of his own: `fedkernel new`."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.console import errors, output
from experiments.commands.new_pair import write_pair


def new(
    pair: Annotated[str, typer.Argument(metavar="PAIR", help="The strategy's class, such as MyPCA.")],
    out: Annotated[Path, typer.Option(help="Folder.")] = Path(),
    flower: Annotated[bool, typer.Option("--app", help="Make it a Flower app, for flwr run.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Write a pair of your own to start from: client, strategy, test and experiment."""
    with errors(debug):
        for path in write_pair(pair, out, app=flower):
            output.print(path, highlight=False, markup=False, soft_wrap=True)
