"""The command `fedkernel join`: a site with its own data joins a server until the work is done."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedkernel import site
from fedkernel.data import checks
from fedkernel.engines import grpc
from fedkernel.experiments import commands
from fedkernel.experiments.commands.console import Debug, check_finite, report_errors
from fedkernel.experiments.commands.logging_setup import LogJSON, site_log
from fedkernel.experiments.commands.received_models import QUOTA, ReceivedModels
from fedkernel.experiments.commands.server_commands import Insecure, read_tls_of
from fedkernel.experiments.commands.table_options import ReadingOptions, with_schema_columns
from fedkernel.ground import InputError
from fedkernel.protocol import TABLE_SHARE


def join(
    server: Annotated[str, Argument(metavar="HOST:PORT", help="Address of the server.")],
    name: Annotated[str, Option(help="The site's name, as in its certificate.")],
    out: Annotated[Path, Option(help="Folder for the site's results: labels, embedding, ...")],
    *,
    data: Annotated[Path | None, Option(help="The site's table: .csv, .xlsx, .parquet, .npz or .npy.")] = None,
    new: Annotated[
        Path | None,
        Option(
            help="Later rows with the columns of --data: serve --project projects them, and received models are "
            "applied to them, or without it to --data if the server asks nothing else."
        ),
    ] = None,
    rehearse: Annotated[
        Path | None,
        Option(
            metavar="SCHEMA",
            help="In place of --data: made-up rows by a schema (`fedkernel policy schema`). Results go to the folder "
            "rehearsal in --out; --approve is any by default.",
        ),
    ] = None,
    tls: Annotated[Path | None, Option(help="The site's folder of `fedkernel certs`.")] = None,
    insecure: Insecure = False,
    reading: ReadingOptions,
    against: Annotated[
        Path | None,
        Option(
            metavar="SCHEMA",
            help="Join only if the table fits a schema (`fedkernel check --schema`), and take its order of columns.",
        ),
    ] = None,
    id_key: Annotated[
        Path | None,
        Option(
            help="File with a secret to hash ids with, unknown to the server, which one site makes for all: (umask "
            "77; openssl rand -hex 32 > FILE)."
        ),
    ] = None,
    ids_without_key: Annotated[
        bool, Option("--ids-without-key", help="Let hashes leave without that secret; ids can be guessed from them.")
    ] = False,
    identity: Annotated[
        Path | None, Option(help="The site's key for letters and masked sums: `fedkernel identity`.")
    ] = None,
    pins: Annotated[Path | None, Option(help='TOML file with peers\' fingerprints: NAME = "FINGERPRINT".')] = None,
    peers_without_pins: Annotated[
        bool,
        Option("--peers-without-pins", help="Write letters to peers without pins, which may be the server itself."),
    ] = False,
    policy: Annotated[
        Path | None,
        Option(
            help="The site's policy (`fedkernel policy init`), in place of --peers-without-pins, --share-rows, "
            "--table-share, --allow, --given-seed, --min... and --max..."
        ),
    ] = None,
    approval: Annotated[
        str | None,
        Option(
            "--approve",
            metavar="ask|any|HASH",
            help="ask: at this terminal or by `fedkernel study approve`; any: all that the policy allows; HASH: this "
            "study; by default as the policy says.",
        ),
    ] = None,
    share_rows: Annotated[
        bool, Option("--share-rows", help="Let rows leave as they are, if a method sends some.")
    ] = False,
    table_share: Annotated[
        float | None,
        Option(
            help="Numbers that may leave in a run for each entry; by default "
            f"{TABLE_SHARE:g}. `fedkernel check --study` says how many a study needs."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="Class of a client or kernel that may be used, by name or package.module:Class; by default "
            "fedkernel's; may be repeated.",
        ),
    ] = None,
    take_models: Annotated[
        bool, Option("--take-models", help="Keep models that the server sends in OUT/received, and apply them.")
    ] = False,
    models_quota: Annotated[int, Option(min=0, help="With --take-models: most bytes of all.")] = QUOTA,
    keep: Annotated[bool, Option("--keep", help="Store all that leaves in --out.")] = False,
    min_rows: Annotated[
        int | None, Option(min=1, help=f"Least number of rows to answer from; by default {site.MIN_ROWS}.")
    ] = None,
    min_sites: Annotated[
        int | None, Option(min=1, help=f"Least number of sites in a run; by default {site.MIN_SITES}.")
    ] = None,
    given_seed: Annotated[
        bool, Option("--given-seed", help="Let the server choose the seed by which rows are drawn.")
    ] = False,
    max_message: Annotated[
        int | None,
        Option(min=site.LEAST_MESSAGE, max=site.MOST_MESSAGE, help="Largest message in bytes; by default 2^30."),
    ] = None,
    max_memory: Annotated[
        int | None,
        Option(min=site.LEAST_MEMORY, help="Most bytes of memory for answers; by default half of the machine's."),
    ] = None,
    max_seconds: Annotated[
        float | None, Option(help=f"Most seconds for an answer, above 0; by default {site.USUAL_SECONDS:g}.")
    ] = None,
    log: Annotated[Path | None, Option(help="File for messages and details of errors.")] = None,
    log_json: LogJSON = False,
    patience: Annotated[
        float, Option(min=0, callback=check_finite, help="Seconds to look for the server, each time.")
    ] = grpc.SITE_PATIENCE,
    debug: Debug = False,
) -> None:
    """Join a server as a site, with the site's own data, until the work is done."""
    with site_log(log, name, log_json) as report_line, report_errors(debug):
        grpc.check_address(server)
        grpc.check_name(name)
        secured = read_tls_of(tls, insecure, server, "site", report_line)
        if rehearse is not None:
            if data is not None or reading.id is not None or reading.label:
                raise InputError("--rehearse replaces --data, --id and --label; allowed: none of these with it")
            schema = checks.read_schema(rehearse)
            out, approval = out / "rehearsal", approval or "any"
            data, reading = out / "made-up.parquet", replace(reading, id=schema.id)
        if data is None:
            raise InputError("--data FILE or --rehearse SCHEMA is needed, but neither is given")
        if secured is not None and secured.name != name:
            raise InputError(f"name = {name!r}, but the certificate in {tls} is that of {secured.name!r}")
        file = reading.of(data)
        options = {
            "new": new, "id-key": id_key, "identity": identity, "pins": pins, "out": out, "policy": policy,
            "allow": ",".join(allow) if allow else None, "approve": approval,
            "min-rows": min_rows, "min-sites": min_sites, "share-rows": share_rows or None, "table-share": table_share,
            "given-seed": given_seed or None, "peers-without-pins": peers_without_pins or None,
            "max-message": max_message, "max-memory": max_memory, "max-seconds": max_seconds,
            "keep-payloads": keep, "ids-without-key": ids_without_key, "keep-letter-keys": True, "name": name,
        }  # fmt: skip
        set_options = {key: value for key, value in options.items() if value is not None}
        config: dict[str, str | int] = {**file.to_node()}
        config |= {key: value if isinstance(value, int) else str(value) for key, value in set_options.items()}
        if approval not in (None, "ask", "any"):
            site.check_hash(approval)
        rules = site.own_policy(config)
        site.allowed(rules.study.pairs or [])
        site.check_own_pin(site.read_own_keys(config), name)
        if rehearse is not None:
            schema.write(data)
        if against is not None:
            config |= with_schema_columns(site.own_file(config)[0], against).to_node()
        receiving = ReceivedModels(out, report_line, take_models, models_quota, apply=rehearse is None)
        commands.serve_site(server, secured, config, rules, file, receiving=receiving, new=new, patience=patience)
