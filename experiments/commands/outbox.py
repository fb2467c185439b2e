"""The commands `fedkernel outbox show` and `verify` for a site's operator."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import fedkernel.run
import fedkernel.site
from fedkernel.experiments.commands.console import CommandGroup, print_line, print_rows
from fedkernel.ground import InputError, and_more, client_label
from fedkernel.protocol import share_text

app = CommandGroup("Show and check the record of what has left a site.")

Record = Annotated[Path, Argument(metavar="OUT", help="The site's --out, or the outbox.jsonl in it.")]


@app.command(name="show")
def show_(out: Record, run: Annotated[str | None, Option(help="Show this run only.")] = None) -> None:
    """List the site's requests, and each reply, or the reason for refusing it."""
    departures, damage = [], None
    try:
        for line, _ in fedkernel.site.departures_of(out):
            departures.append(line)
    except InputError as error:
        if not departures:
            raise
        damage = error  # raised after the lines before it are shown
    if run is not None and run not in (runs := dict.fromkeys(line.run for line in departures)):
        raise damage or InputError(f"run = {run!r}, but the outbox has only {', '.join(runs) or 'none'}")
    totals = [line.standing.total for line in departures[-1:]]
    departures = [line for line in departures if run in (None, line.run)]
    rows = []
    for line in departures:
        numbers = (f"{line.floats:,}", f"{line.bytes:,}", f"{line.rows:,}") if line.reply else ("", "", "")
        masked = [f"(masked, {line.masked} sites)"] if line.masked else []
        left = f"nothing: {line.refused}" if line.refused else " ".join([line.reply, *_shapes(line.shapes), *masked])
        fields = (f"{name} = {value}" for name, value in line.parameters.items() if value is not None)
        request = f"{line.request}({', '.join([*fields, *_shapes(line.arrays)])})"
        rows.append((str(line.number), line.time, line.run, str(line.round), request, left, *numbers))
    print_rows(("line", "time", "run", "round", "asked", "left"), rows, ("floats", "bytes", "rows"))
    sums = (sum(getattr(line, name) for line in departures) for name in ("floats", "bytes", "rows"))
    for total in totals:
        text = f"in all {total.begun} runs, {share_text(total.share)} numbers for each entry of the table have left"
        usual = f"{fedkernel.site.FULL_RUNS} times its guards.table_share"
        print_line(f"{text} (allowed: limits.total.share of the policy, by default {usual})")
        if total.epsilon:
            print_line(f"the runs with noise have spent epsilon = {total.epsilon:g} (allowed: limits.total.epsilon)")
    print_line("in all {:,} floats, {:,} bytes, {:,} rows as they are".format(*sums))
    if damage is not None:
        raise damage


def _shapes(arrays: Mapping[str, tuple[int, ...]]) -> list[str]:
    return [f"{name} {' x '.join(map(str, shape)) or '1'}" for name, shape in arrays.items()]


@app.command()
def verify(
    out: Record,
    against: Annotated[
        list[Path] | None, Option(metavar="RESULT", help="A run's folder at the server; may be repeated.")
    ] = None,
    client: Annotated[int | None, Option(min=0, help="With --against: the site's place in the study, from 0.")] = None,
) -> None:
    """Check that the outbox is complete and unchanged, and that the server counts no more than left.

    Missing last lines show only against a server's result or a noted SHA-256.
    """
    if (against is None) != (client is None):
        raise InputError("--against RESULT and --client NUMBER go together, but one is missing")
    departures, end = fedkernel.site.read_outbox(out)
    stored = [fedkernel.site.check_payload(out, departure) for departure in departures].count(True)
    print_line(f"hash chain of {len(departures)} lines is intact; the last line's SHA-256 is {end}")
    if stored:
        print_line(f"{stored} replies are stored as they left")
    for folder in against or []:
        who, count = _check_against(folder, client or 0, departures)
        print_line(f"{folder}, {who}: all {count} replies that the server counts are there")


def _check_against(folder: Path, client: int, departures: Sequence["fedkernel.site.Departure"]) -> tuple[str, int]:
    """Return a client's name and number of replies in a result. Raise InputError unless all are in this outbox."""
    run, ledger, sites = folder.resolve().name, fedkernel.run.read_ledger(folder), _sites_of(folder)
    clients = sorted({entry.client for entry in ledger.entries})
    names = {number: client_label(number, sites[number] if number < len(sites) else None) for number in clients}
    if client not in names:
        raise InputError(f"client = {client}, but {folder} has {', '.join(names.values()) or 'no clients'}")
    parts = {number: ledger.of_client(number) for number in names}
    missing = {number: missing_from(departures, run, part) for number, part in parts.items()}
    if not missing[client]:
        return names[client], len(parts[client].entries)
    if len(missing[client]) == len(parts[client].entries):  # no reply has another's salted hash
        owners = [number for number, part in parts.items() if len(missing[number]) < len(part.entries)]
        if owners:
            whose = f"that of {names[owners[0]]}, not of {names[client]}"
            raise InputError(f"{folder}: this outbox is {whose}; allowed: --client {owners[0]}")
    first = missing[client][0]
    raise InputError(
        f"{folder}, {names[client]}: round {first.round} ({first.phase}) has {first.bytes_up} bytes, SHA-256 "
        f"{first.sha256 or 'unknown'}, which is missing from the outbox{and_more(len(missing[client]) - 1)}"
    )


def _sites_of(folder: Path) -> Sequence[str]:
    """Return the names of a result's sites in order. Outside of an experiment's folder there are none."""
    try:
        experiment = json.loads((folder.resolve().parent.parent / "config.json").read_text(encoding="utf-8"))
        sites = experiment["data"]["sites"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return sites if isinstance(sites, list) and all(isinstance(name, str) for name in sites) else ()


def missing_from(
    departures: Sequence["fedkernel.site.Departure"], run: str, ledger: "fedkernel.run.Ledger"
) -> list["fedkernel.run.Entry"]:
    """Return the entries of a client's ledger (`Ledger.of_client`) that are missing from the site's outbox."""
    left = (line for line in departures if line.run == run and not line.refused)
    departed = {(line.round, line.floats, line.bytes, line.rows, line.sha256) for line in left}
    figures = ((it, (it.round, it.floats_up, it.bytes_up, it.rows_up, it.sha256)) for it in ledger.entries)
    return [entry for entry, its in figures if its not in departed]
