"""The command `fedkernel new`: template files for a new strategy with its client."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.console import print_line
from experiments.commands.new_pair import write_pair


def new(
    pair: Annotated[str, typer.Argument(metavar="PAIR", help="The strategy's class, such as MyPCA.")],
    out: Annotated[Path, typer.Option(help="Folder.")] = Path(),
    flower: Annotated[bool, typer.Option("--app", help="Make it a Flower app, for flwr run.")] = False,
) -> None:
    """Write a pair of your own to start from: client, strategy, test and experiment."""
    for path in write_pair(pair, out, app=flower):
        print_line(path)
