"""The commands for separate machines: certificates, the server, and the site that joins it."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from experiments.commands.applying import apply_received
from experiments.commands.console import Follow, errors, output, progress, say, show_results, site_log
from experiments.commands.projecting import projection_of
from experiments.commands.reading import (
    Columns,
    Decimal,
    Delimiter,
    Drop,
    Encoding,
    Id,
    Label,
    as_agreed,
    how_read,
    site_file,
)
from experiments.commands.study import answers_of, show_study
from experiments.config import Sites, read_config
from experiments.running import plan, run_experiment, study_of
from fedkernel.data import SiteFile, read_raw
from fedkernel.data.schemas import read_schema
from fedkernel.engines import grpc
from fedkernel.engines.grpc.address import check_address, is_loopback
from fedkernel.engines.grpc.certificates import TLS, check_name, make_certificates, read_tls
from fedkernel.engines.grpc.frames import LIMIT
from fedkernel.engines.grpc.handshakes import report_failed_handshakes
from fedkernel.engines.grpc.hub import PATIENCE
from fedkernel.engines.grpc.node import PATIENCE as NODE_PATIENCE
from fedkernel.engines.grpc.node import Node
from fedkernel.errors import InputError, RefusedError
from fedkernel.flower_apps import client as client_app
from fedkernel.peers.sealing import KeyPair
from fedkernel.run import (
    MIN_ROWS,
    MIN_SITES,
    SHORT,
    Job,
    Policy,
    allowed,
    approve,
    check_approved,
    check_hash,
    check_record,
    foreseen,
    is_approved,
    own_file,
    own_policy,
    read_own_data,
    read_own_keys,
    verdicts,
)
from fedkernel.storage import check_folder, write_new

Debug = Annotated[bool, typer.Option(help="Show tracebacks.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Plaintext, on loopback only, in place of --tls.")]


def certs(  # noqa: PLR0917 - one option each
    folder: Annotated[Path, typer.Argument(help="Where the authority is, or is to be; a folder in it for each name.")],
    server: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A host name or address of the server; again for more.")
    ] = None,
    client: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A site's name; again for more.")] = None,
    days: Annotated[float, typer.Option(help="How long the certificates are valid.")] = 365,
    renew: Annotated[bool, typer.Option("--renew", help="Replace certificates that are there.")] = False,
    debug: Debug = False,
) -> None:
    """Make certificates for a server and its sites, signed by an authority of your own."""
    with errors(debug):
        folders = make_certificates(folder, server or [], client or [], days=days, renew=renew)
        for owner in folders:
            output.print(
                f"{owner}: for {owner.name}, whose --tls names it", highlight=False, markup=False, soft_wrap=True
            )
        output.print(f"{folder / 'ca.key'} signs further certificates: keep it to yourself", highlight=False)


def identity(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The key; it is made where there is none.")],
    name: Annotated[str, typer.Option(help="The site's name.")] = "NAME",
    debug: Debug = False,
) -> None:
    """Make a site's key for letters to its peers, and print the line by which these pin it."""
    with errors(debug):
        if not path.exists():
            KeyPair.new().write(path)
            say(f"wrote {path}: only this site is to have it")
        own = KeyPair.read(path)
        output.print(f'{name} = "{own.fingerprint}"', highlight=False, markup=False, soft_wrap=True)


def serve(  # noqa: PLR0917 - one option each
    config: Annotated[
        Path,
        typer.Argument(help="The experiment, whose [data] table names the sites; with --project its output folder."),
    ],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where sites can join.")] = "127.0.0.1:8443",
    tls: Annotated[Path | None, typer.Option(help="The server's folder of `fedkernel certs`.")] = None,
    insecure: Insecure = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a value of the configuration.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder; by default runs/NAME.")] = None,
    restart: Annotated[bool, typer.Option(help="Throw away what the output folder holds of an experiment.")] = False,
    patience: Annotated[float, typer.Option(min=0, help="Seconds that a site may be gone.")] = PATIENCE,
    max_message: Annotated[int, typer.Option(min=1, max=LIMIT, help="Bytes of a message, at most.")] = LIMIT,
    project: Annotated[
        bool,
        typer.Option("--project", help="Project rows that are new at the sites (join --new) onto what a run found."),
    ] = False,
    run: Annotated[str | None, typer.Option(help="With --project: which run, where there are several.")] = None,
    name: Annotated[str, typer.Option(help="With --project: what the new rows are called, such as week-14.")] = "new",
    to_sites: Annotated[
        bool,
        typer.Option("--to-sites/--coordinator-only", help="With --project: whether sites get the coordinates, too."),
    ] = True,
    debug: Debug = False,
) -> None:
    """Wait until all sites have joined, run an experiment with them, and write its report.

    With --project: have them project new rows, of which the server writes the coordinates and each site its own.
    """
    with errors(debug):
        secured = _tls(tls, insecure, listen, "server")
        host = check_address(listen, any_port=True).rpartition(":")[0]
        if project:
            projection, folder = projection_of(config, run, name, to_sites=to_sites), out or config / "projected"
            with report_failed_handshakes(say), Follow(say, "fedkernel.run.alignment"):
                projection.serve(folder, listen, secured, host, patience=patience, limit=max_message)
            return
        experiment = read_config(config, [*(overrides or []), "engine=grpc"])
        sites = experiment.data
        if not isinstance(sites, Sites):
            raise InputError(f'{config}: serve needs a table [data] with sites = ["name", ...], who may join')

        def engine(job: Job) -> Iterator[str]:
            return grpc.serve(
                job,
                sites.sites,
                listen,
                secured,
                patience=patience,
                limit=max_message,
                share_model=sites.share_model,
                tell=say,
                ready=lambda port: say(f"listening at {host}:{port}, waiting for {', '.join(sites.sites)}"),
            )

        folder = out or Path("runs") / experiment.name
        if (study := study_of(experiment, plan(experiment))) is not None:
            say(f"study {study.sha256}, which each site approves: fedkernel study show {config}")
        with report_failed_handshakes(say), Follow(say, "fedkernel.run.alignment"), progress() as tell:
            outcome = run_experiment(experiment, folder, restart=restart, progress=tell, engine=engine)
        show_results(experiment, outcome, folder)


def join(  # noqa: PLR0917 - one option each
    server: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the server listens.")],
    name: Annotated[str, typer.Option(help="The site's name, as its certificate has it.")],
    out: Annotated[Path, typer.Option(help="Folder for what the site keeps of each run: labels, embedding, ...")],
    data: Annotated[Path | None, typer.Option(help="The site's table: .csv, .xlsx, .parquet, .npz or .npy.")] = None,
    new: Annotated[
        Path | None, typer.Option(help="Rows that came since, with the same columns, for runs that project such.")
    ] = None,
    rehearse: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA",
            help="In place of --data: rows are made up as a schema says (`fedkernel check --schema`), the table "
            "is not opened, and what is kept goes to the folder rehearsal in --out. Every study that the policy allows "
            "is taken part in.",
        ),
    ] = None,
    tls: Annotated[Path | None, typer.Option(help="The site's folder of `fedkernel certs`.")] = None,
    insecure: Insecure = False,
    columns: Columns = None,
    label: Label = None,
    id_: Id = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA",
            help="Join only if the table is as a file says that `fedkernel check --schema` writes or people do; its "
            "columns are put into the order that they have there.",
        ),
    ] = None,
    id_key: Annotated[
        Path | None, typer.Option(help="A file with a secret of all sites, which the server lacks, to hash ids with.")
    ] = None,
    ids_without_key: Annotated[
        bool, typer.Option("--ids-without-key", help="Let hashes of ids leave that anybody can compute.")
    ] = False,
    identity: Annotated[
        Path | None, typer.Option(help="The site's key for letters to its peers: `fedkernel identity`.")
    ] = None,
    pins: Annotated[
        Path | None, typer.Option(help='Its peers\' fingerprints, a TOML file with lines NAME = "FINGERPRINT".')
    ] = None,
    peers_without_pins: Annotated[
        bool, typer.Option("--peers-without-pins", help="Write to whomever the server calls a peer, itself perhaps.")
    ] = False,
    policy: Annotated[Path | None, typer.Option(help="What the site allows: see `fedkernel policy init`.")] = None,
    approval: Annotated[
        str | None,
        typer.Option(
            "--approve",
            metavar="ask|any|HASH",
            help="Which studies to take part in: each that is approved at this terminal or by `fedkernel study "
            "approve`, all that the policy allows, or one. By default what the policy says.",
        ),
    ] = None,
    share_rows: Annotated[
        bool, typer.Option("--share-rows", help="Let rows leave as they are, where a method sends some.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A client to answer as, or a kernel, by its name or package.module:Class; again for more. By default, "
            "those of fedkernel's clients that the job names.",
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Store what leaves, beside the record of it in --out.")] = False,
    min_rows: Annotated[
        int | None, typer.Option(min=1, help=f"Answer nothing from fewer rows than these; by default {MIN_ROWS}.")
    ] = None,
    min_sites: Annotated[
        int | None, typer.Option(min=1, help=f"Take part with at least so many sites; by default {MIN_SITES}.")
    ] = None,
    given_seed: Annotated[
        bool, typer.Option("--given-seed", help="Let the server choose the seed also of what is drawn from the rows.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="A file for what is told here, and the details of errors.")] = None,
    patience: Annotated[float, typer.Option(min=0, help="Seconds for which a server is looked for.")] = NODE_PATIENCE,
    debug: Debug = False,
) -> None:
    """Join a server as a site, with the site's own data, until the work is done."""
    with errors(debug):
        check_address(server)
        check_name(name)
        secured = _tls(tls, insecure, server, "site")
        if rehearse is not None:
            if data is not None or id_ is not None or label:
                raise InputError(
                    "--rehearse stands in place of --data, --id and --label; allowed: none of them beside it"
                )
            schema = read_schema(rehearse)
            out, approval = out / REHEARSAL, approval or "any"
            data, id_ = out / "made-up.parquet", schema.id
        if data is None:
            raise InputError("--data FILE or --rehearse SCHEMA is needed, but neither is given")
        if secured is not None and secured.name != name:
            raise InputError(f"name = {name!r}, but the certificate in {tls} is that of {secured.name!r}")
        file = site_file(
            data, id_=id_, label=label, drop=drop, columns=columns,
            delimiter=delimiter, decimal=decimal, encoding=encoding,
        )  # fmt: skip
        options = {
            "new": new,
            "id-key": id_key, "identity": identity, "pins": pins, "out": out,
            "allow": ",".join(allow) if allow else None, "policy": policy, "approve": approval,
        }  # fmt: skip
        config: dict[str, str | int] = {**file.to_node()}
        config |= {key: str(value) for key, value in options.items() if value is not None}
        numbers = {"min-rows": min_rows, "min-sites": min_sites, "share-rows": share_rows or None}
        numbers |= {"given-seed": given_seed or None, "peers-without-pins": peers_without_pins or None}
        config |= {name: number for name, number in numbers.items() if number is not None}
        config |= {"keep-payloads": keep, "ids-without-key": ids_without_key}
        if approval not in (None, "ask", "any"):
            check_hash(approval)
        rules = own_policy(config)
        allowed(rules.study.pairs or [])
        read_own_keys(config)
        if rehearse is not None:
            schema.write(data)
        if against is not None:
            config |= as_agreed(own_file(config)[0], against).to_node()
        rows, width = _checked_shape(config, rules)
        fresh = None if new is None else replace(file, path=new, columns=None, label=None, drop=())
        if fresh is not None:
            read_raw(fresh)  # whose faults are told now
        check_folder(out)
        check_record(out)

        with site_log(log) as tell, report_failed_handshakes(lambda text: None):  # the node tells what they mean here
            if guessed := how_read(file):
                tell(guessed)
            tell(f"{data}: {rows:,} rows, {width:,} columns; looking for {server}")
            approves = str(config.get("approve", rules.study.approve))
            consider = partial(_consider, rules, approves, out, tell, shape=(rows, width))
            receive = partial(_receive, out, fresh, tell)
            Node(client_app, name, {**config, "name": name}, tell, receive, consider).attend(server, secured, patience)
            tell(f"the work is done; what this site keeps is in {out}, what left it: fedkernel outbox show {out}")


def _receive(out: Path, new: SiteFile | None, tell: Callable[[str], object], sent: str, content: bytes) -> None:
    """Keep a file that the server sends, and apply it to the site's rows if it is a model."""
    path = write_new(out / "received" / sent, content)
    tell(f"received {path}")
    if sent.endswith(MODEL) and out.name != REHEARSAL:
        try:
            tell(apply_received(path, sent.removesuffix(MODEL), out, new) or f"{path} is not applied")
        except (InputError, OSError) as error:  # what the server sends is no reason to leave it
            tell(f"{path} cannot be applied here: {error}")


def _checked_shape(config: Mapping[str, str | int], rules: Policy) -> tuple[int, int]:
    """Return how many rows and columns the site's table has; InputError if it, or its new rows, cannot be used."""
    own = read_own_data(config)
    rows, width = own.X.shape
    if rows < rules.table.min_rows:
        least = f"{rules.table.min_rows}; allowed: as many rows or more (--min-rows, table.min_rows)"
        raise InputError(f"{config['data']} has {rows} rows, but answers from {least}")
    return rows, width


def _consider(
    policy: Policy,
    approval: str,
    out: Path,
    tell: Callable[[str], object],
    job: Job,
    *,
    shape: tuple[int, int] | None = None,
) -> None:
    """Show a job's study and have it approved; what is not is refused, request by request."""
    if (study := job.study) is None:
        return
    known = f"study {study.sha256[:SHORT]}"
    held = [*verdicts(policy, study), *foreseen(policy, study, shape, answers_of)]
    if faults := [f"{verdict.text} ({verdict.rule})" for verdict in held if verdict.allowed is False]:
        tell(f"{known} is refused by the policy: {'; '.join(faults)}")
        return
    with suppress(RefusedError):
        check_approved({"approve": approval, "out": out}, policy, job)
        tell(f"{known} is {'allowed' if approval == 'any' else 'approved'}: {study.sha256}")
        return
    show_study(study)
    if approval == "ask" and sys.stdin.isatty():
        if typer.confirm("Take part in this study?"):
            approve(out, study.sha256)
        return
    tell(f"{known} is not approved: fedkernel study approve {study.sha256} --out {out}")
    if approval == "by hash":
        while not is_approved(out, study.sha256):
            time.sleep(LOOK)
        tell(f"{known} is approved")


REHEARSAL = "rehearsal"
"""The folder in a site's own for what a rehearsal keeps."""

MODEL = ".model.npz"
"""How the name of a file ends that is a run's model."""

LOOK = 0.5
"""Seconds between two looks at what is approved."""


def _tls(folder: Path | None, insecure: bool, address: str, role: str) -> TLS | None:
    if (folder is None) != insecure:
        both = "both are given" if folder is not None else "neither is given"
        raise InputError(f"--tls DIR or --insecure is needed, but {both}")
    if folder is not None:
        return read_tls(folder, role)
    if not is_loopback(address):
        raise InputError(f"--insecure with {address}, but plaintext is allowed on loopback only, such as 127.0.0.1")
    return None
