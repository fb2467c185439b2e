"""The command `fedkernel advise`: which pairs fit the sites' tables, what each takes and tells, and which to take."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments import commands
from experiments.commands.console import errors
from experiments.commands.reading import Decimal, Delimiter, Drop, Encoding, Header, Id


class Partition(StrEnum):
    """What is divided among the sites, or that they have no coordinator."""

    vertical = "vertical"
    horizontal = "horizontal"
    peers = "peers"


class Aim(StrEnum):
    """What is wanted."""

    components = "components"
    clusters = "clusters"


def advise(  # noqa: PLR0917 - one option each
    tables: Annotated[
        list[str],
        typer.Argument(metavar="FILE|ROWSxCOLUMNS...", help="The sites' tables, or their shapes, such as 500x30."),
    ],
    partition: Annotated[
        Partition | None,
        typer.Option(help="What is divided: columns (vertical), rows (horizontal); peers: no server is trusted."),
    ] = None,
    goal: Annotated[Aim, typer.Option(help="What is wanted.")] = Aim.components,
    number: Annotated[int, typer.Option("--number", "-k", min=1, help="How many components, or clusters.")] = 2,
    sites: Annotated[int | None, typer.Option(min=1, help="How many have such a table, where one is named.")] = None,
    id_: Id = None,
    label: Annotated[str | None, typer.Option(help="A column to compare with, kept out.")] = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    header: Header = None,
    share_rows: Annotated[
        bool, typer.Option("--share-rows/--no-share-rows", help="Whether rows may leave as they are.")
    ] = False,
    memory: Annotated[float, typer.Option(min=0.001, help="Gigabytes of memory that each machine has for it.")] = 16.0,
    round_time: Annotated[float, typer.Option(min=0, help="Seconds that a round takes, beside what it sends.")] = 0.1,
    bandwidth: Annotated[float, typer.Option(min=0.001, help="Megabits a second of each site.")] = 100.0,
    toml: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an experiment to start with.")] = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Say which pairs fit the sites' tables, what each takes, what leaves, and which to take."""
    with errors(debug):
        reading = {"id": id_, "label": label, "drop": drop, "delimiter": delimiter, "decimal": decimal}
        commands.print_advice(
            tables,
            {**reading, "encoding": encoding, "header": header},
            partition=partition,
            goal=goal,
            number=number,
            sites=sites,
            share_rows=share_rows,
            memory=memory,
            round_time=round_time,
            bandwidth=bandwidth,
            toml=toml,
        )
