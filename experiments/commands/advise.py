"""The command `fedkernel advise`: fitting pairs, their costs and disclosures, and a recommendation."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from experiments import commands
from experiments.commands.table_options import Drop, Form, Id

Goal = Literal["components", "clusters"]
Partition = Literal["vertical", "horizontal", "peers"]


def advise(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="FILE|ROWSxCOLUMNS...", help="The sites' tables, or their shapes, such as 500x30."),
    ],
    *,
    partition: Annotated[
        Partition | None,
        typer.Option(help="What is divided: columns (vertical), rows (horizontal); peers: no server is trusted."),
    ] = None,
    goal: Annotated[Goal, typer.Option(help="What is wanted.")] = "components",
    number: Annotated[int, typer.Option("--number", "-k", min=1, help="How many components, or clusters.")] = 2,
    sites: Annotated[int | None, typer.Option(min=1, help="How many have such a table, where one is named.")] = None,
    id_: Id = None,
    label: Annotated[str | None, typer.Option(help="A column to compare with, kept out.")] = None,
    drop: Drop = None,
    form: Form,
    share_rows: Annotated[
        bool, typer.Option("--share-rows/--no-share-rows", help="Whether rows may leave as they are.")
    ] = False,
    memory: Annotated[float, typer.Option(min=0.001, help="Gigabytes of memory that each machine has for it.")] = 16.0,
    round_time: Annotated[float, typer.Option(min=0, help="Seconds that a round takes, beside what it sends.")] = 0.1,
    bandwidth: Annotated[float, typer.Option(min=0.001, help="Megabits a second of each site.")] = 100.0,
    toml: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an experiment to start with.")] = None,
) -> None:
    """Recommend a method for the sites' tables, with costs and disclosures of each that fits."""
    reading = {"id": id_, "label": label, "drop": drop, **vars(form)}
    fields = {"goal": goal, "share_rows": share_rows, "number": number, "wait": round_time, "memory": 1e9 * memory}
    commands.print_advice(tables, reading, fields, partition=partition, sites=sites, bandwidth=bandwidth, toml=toml)
