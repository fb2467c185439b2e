"""The commands `fedkernel certs`, `identity` and `serve` for a server and separate sites."""

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import fedkernel.run
from fedkernel import peers
from fedkernel.engines import grpc
from fedkernel.experiments import commands, running
from fedkernel.experiments import config as configuration
from fedkernel.experiments.commands.console import (
    Debug,
    check_finite,
    follow_failures,
    print_line,
    print_status,
    progress,
    report_errors,
)
from fedkernel.experiments.commands.logging_setup import LogJSON, server_log
from fedkernel.experiments.commands.table_options import Overrides
from fedkernel.ground import InputError

Insecure = Annotated[bool, Option("--insecure", help="Plaintext, on loopback only, in place of --tls.")]


def certs(  # noqa: PLR0917 - one option each
    folder: Annotated[Path, Argument(help="Folder of your authority, which signs; each name gets a folder in it.")],
    server: Annotated[
        list[str] | None, Option(metavar="HOST", help="Host name or address of the server; may be repeated.")
    ] = None,
    client: Annotated[list[str] | None, Option(metavar="NAME", help="Name of a site; may be repeated.")] = None,
    days: Annotated[
        float | None,
        Option(
            metavar="DAYS",
            help=f"Days of validity, above 0 and {grpc.AUTHORITY_DAYS} at most; by default {grpc.DAYS}, with "
            f"--renew-expiring as before.",
        ),
    ] = None,
    renew: Annotated[bool, Option("--renew", help="Replace existing certificates and keys.")] = False,
    expiring: Annotated[
        float | None,
        Option(
            "--renew-expiring",
            metavar="DAYS",
            min=0,
            help="Renew certificates that end within so many days; names, hosts and keys remain.",
        ),
    ] = None,
    revoked: Annotated[
        list[str] | None, Option("--revoke", metavar="NAME", help="Site to accept no longer; may be repeated.")
    ] = None,
) -> None:
    """Make, renew or revoke certificates of a server and its sites."""
    for path in grpc.revoke(folder, revoked) if revoked else []:
        print_line(f"{path}: {', '.join(revoked or [])} revoked")
    if expiring is not None:
        _renew(folder, expiring, days)
    if (revoked or expiring is not None) and not (server or client):
        return
    days = grpc.DAYS if days is None else days
    for owner in grpc.make_certificates(folder, server or [], client or [], days=days, renew=renew):
        print_line(f"{owner}: for {owner.name}, whose --tls names it")
    print_line(f"{folder / 'ca.key'} signs further certificates: keep it to yourself")


def _renew(folder: Path, within: float, days: float | None) -> None:
    renewed, left = grpc.renew_expiring(folder, within, days=days)
    for path in renewed:
        print_line(f"{path}: renewed for the key of {path.parent.name}, who needs it in --tls; it is no secret")
    for name in left:
        print_line(f"{folder / name}: revoked, and not renewed; for a new key: --client {name} --renew")
    if not renewed and not left:
        print_line(f"no certificate in {folder} ends within {within:g} days")


def identity(
    path: Annotated[Path, Argument(metavar="FILE", help="File of the key; created if missing.")],
    name: Annotated[str, Option(help="The site's name.")] = "NAME",
    public: Annotated[
        bool, Option("--public", help="Print the public keys, which a study with masked sums needs.")
    ] = False,
) -> None:
    """Make a site's key for letters and masked sums, and print its fingerprint for pins."""
    if not path.exists():
        peers.KeyPair.new().write(path)
        print_status(f"wrote {path}: only this site is to have it")
    own = peers.KeyPair.read(path)
    print_line(f'{name} = "{own.listed if public else own.fingerprint}"')


def serve(  # noqa: PLR0917 - one option each
    config: Annotated[
        Path, Argument(help="The experiment, whose \\[data] table names the sites; with --project its output folder.")
    ],
    listen: Annotated[str, Option(metavar="HOST:PORT", help="Address for sites to join.")] = "127.0.0.1:8443",
    tls: Annotated[Path | None, Option(help="The server's folder of `fedkernel certs`.")] = None,
    insecure: Insecure = False,
    overrides: Overrides = None,
    out: Annotated[Path | None, Option(help="Output folder; by default runs/NAME.")] = None,
    restart: Annotated[bool, Option(help="First delete the experiment in the output folder.")] = False,
    patience: Annotated[
        float,
        Option(
            min=0,
            callback=check_finite,
            help="Seconds to wait for a lost site before the run fails or, with a quorum, goes on. A process that "
            "hangs, or whose network is cut, counts as lost after 40 to 60 s.",
        ),
    ] = grpc.SERVER_PATIENCE,
    mend: Annotated[
        float,
        Option(
            min=0,
            callback=check_finite,
            help="Seconds that all wait for a site to mend a table or files that do not fit the first run.",
        ),
    ] = grpc.REPAIR_SECONDS,
    set_aside: Annotated[
        int,
        Option(metavar="K", min=0, help="Skip further runs of a site by whose fault K in a row have failed; 0: never."),
    ] = 0,
    max_message: Annotated[
        int,
        Option(min=1, max=grpc.MAX_MESSAGE_BYTES, help="Largest message in bytes; each site has a limit of its own."),
    ] = grpc.MAX_MESSAGE_BYTES,
    project: Annotated[
        bool,
        Option(
            "--project", help="Project the sites' new rows (join --new) by a run's result, and write their coordinates."
        ),
    ] = False,
    run: Annotated[str | None, Option(help="With --project: the run, if there are several.")] = None,
    name: Annotated[str, Option(help="With --project: name of the new rows.")] = "new",
    to_sites: Annotated[
        bool, Option("--to-sites/--coordinator-only", help="With --project: whether sites get their coordinates.")
    ] = True,
    log_json: LogJSON = False,
    metrics: Annotated[
        str | None,
        Option(
            metavar="[HOST:]PORT",
            help="Serve counters for Prometheus, by plain HTTP, at 127.0.0.1 by default. Needs fedkernel\\[metrics].",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Wait until all sites have joined, run an experiment with them, and write its report."""
    with server_log(log_json), report_errors(debug):
        secured = read_tls_of(tls, insecure, listen, "server", print_status)
        host = grpc.check_address(listen, any_port=True).rpartition(":")[0]
        serving: dict[str, Any] = {"address": listen, "tls": secured, "patience": patience, "limit": max_message}

        def ready(port: int) -> None:
            print_status(f"listening at {host}:{port}, waiting for {', '.join(sites.sites)}")

        if project:
            projection = commands.projection_of(config, run, name, to_sites=to_sites)
            sites = projection.sites
            with _watched(metrics, sites.sites):
                projection.serve(out or config / "projected", **serving, ready=ready)
            return
        experiment = configuration.read_config(config, [*(overrides or []), "engine=grpc"])
        if not isinstance(experiment.data, configuration.Sites):
            raise InputError(f'{config}: serve needs a table [data] with sites = ["name", ...], who may join')
        sites = experiment.data
        serving |= {"share_model": sites.share_model, "repair_seconds": mend, "set_aside": set_aside, "ready": ready}
        engine = partial(grpc.serve, sites=sites.sites, **serving)
        folder = out or Path("runs") / experiment.name
        if (study := running.study_of(experiment, running.plan(experiment))) is not None:
            shown = shlex.join(["fedkernel", "study", "show", str(config), *(f"--set={it}" for it in overrides or [])])
            print_status(f"study {study.sha256}, which each site approves: {shown}")
        tracebacks = follow_failures(debug) if debug else nullcontext()  # the log has the sentences
        with _watched(metrics, sites.sites) as report_line, tracebacks:
            outcome = running.run_experiment(experiment, folder, restart=restart, progress=report_line, engine=engine)
        commands.show_results(experiment, outcome, folder)
        commands.exit_if_failed(outcome, debug)


@contextmanager
def _watched(metrics: str | None, sites: Sequence[str]) -> Iterator[Callable[[str, int, int], None]]:
    """Report a server's progress and refused handshakes, and serve metrics; yields the progress callback."""

    def refuse(text: str) -> None:
        fedkernel.run.log_event("refused", "%s", text, level=logging.INFO, cause="handshake")

    with ExitStack() as stack:
        if metrics is not None:
            print_status(f"metrics at {stack.enter_context(commands.serving_metrics(metrics, sites))}")
        stack.enter_context(grpc.report_failed_handshakes(refuse, print_status))
        yield stack.enter_context(progress(phases=True))


def read_tls_of(
    folder: Path | None, insecure: bool, address: str, role: str, report_line: Callable[[str], object]
) -> "grpc.TLS | None":
    """Return a command's certificates, or None for plaintext on loopback; warn before the certificates end."""
    if (folder is None) != insecure:
        raise InputError(f"--tls DIR or --insecure is needed, but {'both are' if insecure else 'neither is'} given")
    if folder is not None:
        tls = grpc.read_tls(folder, role)
        if warning := grpc.expiry_warning(tls):
            report_line(warning)
        return tls
    if not grpc.is_loopback(address):
        raise InputError(f"--insecure with {address}, but plaintext is allowed on loopback only, such as 127.0.0.1")
    return None
