"""The command `fedkernel show`: a page about a site's own runs."""

import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import fedkernel.data
from fedkernel.experiments.commands.console import print_line
from fedkernel.experiments.commands.table_options import ReadingOptions
from fedkernel.ground import InputError


def show(
    out: Annotated[
        Path, Argument(metavar="OUT", help="The site's --out, or the folder of a simulated run or experiment.")
    ],
    *,
    data: Annotated[Path | None, Option(metavar="FILE", help="The site's own table.")] = None,
    reading: ReadingOptions,
    model: Annotated[Path | None, Option(metavar="FILE", help="Model file, in place of the received one.")] = None,
    run: Annotated[str | None, Option(help="Show this run only.")] = None,
    page: Annotated[Path | None, Option(metavar="FILE", help="The page; by default OUT/page.html.")] = None,
    open_: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Write a site's own page about its runs: rows, clusters, columns, and what left."""
    options = vars(reading) | vars(reading.form)
    if data is None and (named := [name for name, value in options.items() if value and name != "form"]):
        raise InputError(f"{named[0]} is given, but no data; allowed: with --data FILE")
    from fedkernel.experiments.report.site_page import write_site_page  # noqa: PLC0415 - no other command waits for matplotlib
    from fedkernel.experiments.report.site_results import runs_of  # noqa: PLC0415

    table = None if data is None else fedkernel.data.read_raw(reading.of(data))
    all_runs = list(runs_of(out, model=model, table=table))
    runs = [site_run for site_run in all_runs if run in (None, site_run.name)]
    if not runs:
        raise InputError(f"run = {run!r}, but {out} has {', '.join(site_run.name for site_run in all_runs)}")
    path = write_site_page(page or out / "page.html", out, runs)
    print_line(path)
    if open_:
        webbrowser.open(path.resolve().as_uri())
