"""The command `fedkernel advise`: suitable strategies with costs and disclosures, and a recommendation."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from fedkernel.experiments import commands
from fedkernel.experiments.commands.table_options import Drop, FormatOptions, Id

Goal = Literal["components", "clusters"]
Partition = Literal["vertical", "horizontal", "peers"]


def advise(
    tables: Annotated[
        list[str], Argument(metavar="FILE|ROWSxCOLUMNS...", help="The sites' tables, or their sizes, such as 500x30.")
    ],
    *,
    partition: Annotated[
        Partition | None,
        Option(
            help="vertical: columns are divided; horizontal: rows are; peers: no server is trusted; by default as the "
            "tables suggest."
        ),
    ] = None,
    goal: Annotated[Goal, Option(help="Wanted result.")] = "components",
    number: Annotated[int, Option("--number", "-k", min=1, help="Number of components, or of clusters.")] = 2,
    sites: Annotated[int | None, Option(min=1, help="Number of sites, if one table is given; by default 3.")] = None,
    id_: Id = None,
    label: Annotated[str | None, Option(help="Column of classes, to compare clusters with.")] = None,
    drop: Drop = None,
    form: FormatOptions,
    share_rows: Annotated[
        bool, Option("--share-rows/--no-share-rows", help="Whether raw rows may leave the sites.")
    ] = False,
    memory: Annotated[float, Option(min=0.001, help="Gigabytes of each machine.")] = 16.0,
    round_time: Annotated[float, Option(min=0, help="Seconds that a round takes beside sending.")] = 0.1,
    bandwidth: Annotated[float, Option(min=0.001, help="Megabits per second of each site.")] = 100.0,
    toml: Annotated[Path | None, Option(metavar="FILE", help="Write an experiment to start with.")] = None,
) -> None:
    """Recommend a method for the sites' tables, with costs and disclosures."""
    reading = {"id": id_, "label": label, "drop": drop, **vars(form)}
    fields: dict[str, Any] = {"goal": goal, "share_rows": share_rows, "components_or_clusters": number}
    fields |= {"round_overhead": round_time, "memory": 1e9 * memory}
    commands.print_advice(tables, reading, fields, partition=partition, sites=sites, bandwidth=bandwidth, toml=toml)
