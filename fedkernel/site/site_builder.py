"""Builder of a `Site` for a run, from its node's configuration and the job."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedkernel.data import SiteData, as_table, version_of
from fedkernel.ground import (
    AnyArray,
    InputError,
    OwnFileError,
    Positions,
    RefusedError,
    ShareableError,
    client_label,
    derive_key,
    ensure_writable_folder,
    load_class,
    locked_folder,
    own_short_names,
    short_names,
)
from fedkernel.kernel_width import WidthClient
from fedkernel.numerics import Kernel
from fedkernel.peers import KEY_BYTES, check_pinned
from fedkernel.preparing import PrepareClient, TableToPrepare, to_text
from fedkernel.protocol import KernelClient, check_plan
from fedkernel.site import data_files
from fedkernel.site.approval import approved_policy, check_approved
from fedkernel.site.audit_log import check_outbox
from fedkernel.site.data_files import OwnRaw
from fedkernel.site.gate import Gate
from fedkernel.site.kept_clusters import OwnClusters
from fedkernel.site.keys import kept_keys, own_secret, read_own_keys
from fedkernel.site.policy_reading import flag, own_policy
from fedkernel.site.result_files import RunRows, kept_noise, stored_preparation, table_at_start, write_results
from fedkernel.site.row_order import VALUES_APART, check_rows_apart, row_contents, row_hashes
from fedkernel.site.simulated_sites import derived_of_file, simulated_site
from fedkernel.site.site_setup import Site
from fedkernel.site.study_check import check_run
from fedkernel.wire import Job, MaskKeys, Projecting, RunSpec


@lru_cache(maxsize=4)
def _read_job(text: str) -> Job:
    """Read a job from its JSON; cached, since every message brings it."""
    return Job.from_json(text)


@lru_cache(maxsize=8)
def _run_of(text: str, run_id: str) -> tuple[RunSpec, str, str]:
    """Return a job's run, the study's hash (empty: no study), and a hash of both that identifies the run."""
    job = _read_job(text)
    run, study = job.run(run_id), "" if job.study is None else job.study.sha256
    if job.study is not None:
        job.study.check_run(run)
    return run, study, hashlib.sha256(f"{study}{run.model_dump_json()}".encode()).hexdigest()


@lru_cache(maxsize=8)
def _check_plan(text: str, run_id: str, kinds: tuple[type[KernelClient], ...]) -> None:
    """Raise InputError if a run's plan differs from the requests of the allowed client classes."""
    run = _read_job(text).run(run_id)
    before = (() if run.prepares is None else PrepareClient.answers) + WidthClient.answers
    check_plan(run.plan or (), [*before, *(request for kind in kinds for request in kind.answers)])


def _own_labels(node: Mapping[str, Any], who: str) -> AnyArray | None:
    file, version = data_files.own_file(node)
    data_files.check_labels_may_be_used(file, own_policy(node), who)
    with _details_logged(who, "read its labels"):
        return data_files.labels_of_file(file, version)


def _number(node: Mapping[str, Any], run: RunSpec) -> int:
    """Return the client's number: the node's partition-id, or the position of its name among the run's sites."""
    sites, name = run.sites or [], node.get("name")
    if name is not None and sites and name not in sites:
        raise ShareableError(f"this node's name = {name!r}, but the sites of run {run.id!r} are {', '.join(sites)}")
    if "partition-id" not in node:
        if name is None or not sites:
            raise ShareableError("this node has no partition-id; without one it needs a name, and a run of named sites")
        return sites.index(str(name))
    number = int(node["partition-id"])
    if name is not None and sites and (own := sites.index(str(name))) != number:
        raise ShareableError(f"this node's partition-id = {number}, but site {name!r} is client {own}")
    return number


def site_of_job(context: Context, config: Mapping[str, Any]) -> Site:
    """Build a node's `Site` for a run of the job, with own or simulated data and the node's settings.

    Settings come from the node's configuration only, never from a job. They are named like the options of ``fedkernel
    join``, which explains them, with commas between several names. Beyond these:

    - ``partition-id``: the client's number; without it, the position of the site's ``name`` in the run's ``sites``.
    - ``data``: with it, paths in the job are ignored. Labels go only to clients that need them and that the operator
      names. Nothing is imported that only a job or a message names.
    - ``out``: folder, required with ``data``, for results (``<run>.npz``; labels and up to 50 coordinates of its rows
      also in ``<run>.csv``), the outbox (``outbox.jsonl``) and approved studies (``approved``).
    - ``policy``: excludes the `fedkernel.site.policy_reading.OPTIONS`.
    - ``keep-payloads``, ``keep-letter-keys``: whether replies (`fedkernel.site.audit_log`) and a run's letter keys
      (`fedkernel.peers.run_key_file`) are stored in ``out``.

    Raises InputError if the run's data are missing or unreadable, or if the node and the run contradict each other.
    """
    text = str(context.run_config["job"])
    job, (run, _, _) = _read_job(text), _run_of(text, str(config["run"]))
    node = context.node_config
    number = _number(node, run)
    name = str(node["name"]) if "name" in node else run.sites[number] if run.sites and number < len(run.sites) else None
    who = client_label(number, name)
    with _details_logged(who, "read its keys"):
        keys = read_own_keys(node)
    own: dict[str, Any] = {"identity": keys.identity, "pins": keys.pins_in(run), "name": name, "id_key": keys.ids}
    site = Site(number, None, None, lambda outputs: None, job.threads, **own)
    clients = run.clients or int(node.get("num-partitions", number + 1))
    if number >= clients:
        return site
    if "data" in node:
        return _own_site(site, node, text, run)
    if run.sites is not None:
        raise ShareableError(f"{who} has no data of its own for run {run.id!r}: its node needs data = PATH")
    return simulated_site(site, job, run, clients)


def _own_site(site: Site, node: Mapping[str, Any], text: str, run: RunSpec) -> Site:
    """Return a real site, with the data of its own file and its operator's rules filled in."""
    who = site.display_name
    if "out" not in node:
        raise ShareableError(f"{who} has data of its own, but no folder for its outbox and results: out = PATH")
    job, (_, study, key) = _read_job(text), _run_of(text, run.id)
    data, out = (Path(str(node[name])).expanduser() for name in ("data", "out"))
    with _details_logged(who, "read its policy"):
        policy = own_policy(node)
    try:
        check_run(policy, run)
        check_approved(node, policy, job)
    except RefusedError as error:
        raise RefusedError(error.rule, f"{who}: {error}") from None
    with _details_logged(who, "read its data"):
        file = data_files.own_file(node)
        own = data_files.read_own_data(node) if run.prepare is None else data_files.own_raw_table(*file, run.prepare)
    with _details_logged(who, "import the allowed clients"):
        pairs = allowed(own_clients([run]) if policy.study.pairs is None else policy.study.pairs)
        if run.pair is not None:  # an allowed one: another client could answer the plan's requests differently
            pairs = allowed([run.pair])
    try:
        _check_plan(text, run.id, tuple(pairs.values()))
    except InputError as error:
        raise RefusedError("study.plan", f"{who}: {error} (study.plan)") from None
    results, sheet = (out / f"{run.id}.{suffix}" for suffix in ("npz", "csv"))
    with _details_logged(who, "keep its secret"):
        secret = own_secret(out)
    policy, approval = approved_policy(policy, out, study), node.get("approve", policy.study.approve)
    clusters = OwnClusters(out, job, run, partial(data_files.sha256_of, node), who)

    def keep(outputs: dict[str, AnyArray]) -> None:
        with _details_logged(who, "store its results"):
            write_results(results, clusters.marked(outputs), sheet, key)

    def check_keep() -> None:
        with _details_logged(who, "store its results"):
            ensure_writable_folder(out, 0o700)
            check_outbox(out)
            for file in (Path(str(node[name])).expanduser() for name in ("data", "new") if name in node):
                if file.resolve() in (results.resolve(), sheet.resolve()):
                    raise InputError(f"results of run {run.id!r} would overwrite {file}; change the folder (--out)")
        clusters.check()

    def remember(positions: Positions | None, order: int) -> None:
        with _details_logged(who, "store its rows"):
            used = own.X.kept if isinstance(own.X, TableToPrepare) else None
            RunRows.of(order, positions, own.ids or (), data_files.sha256_of(node), used).save(out, run.id)

    least, files = 0 if run.privacy else policy.table.rows_apart, ["data"]
    if run.project is None:
        apart = partial(_check_apart, own, site.id_key, secret, out / "rows", least)
        site = replace(site, X=own.X, ids=own.ids, columns=own.columns, check_rows_apart=apart, remember_order=remember)
    else:
        with _details_logged(who, "read its new rows"):
            site, files = _projecting(site, node, run, run.project), ["data", "new"]
    return replace(
        site,
        derived=None if run.prepare or run.project else derived_of_file(*file),
        labels=lambda: _own_labels(node, who),
        keep=keep,
        share_rows=policy.share_rows,
        min_rows=policy.table.min_rows,
        row_share=policy.table.row_share,
        ids_without_key=flag(node, "ids-without-key"),
        peers_pinned=policy.study.peers == "pinned" or "pins" in node,
        has_pins="pins" in node,
        sites=run.sites or (),
        guards=policy.guards,
        pairs=pairs,
        gate=Gate(policy, run, study, site.number, derive_key(derive_key(secret, key), "share").hex(), key),
        noise_key=derive_key(secret, "noise"),  # the same for all runs, or their mean would remove the noise
        threads=min(site.threads, os.cpu_count() or 1),
        path=str(data),  # as in error texts
        masks=_mask_keys(site, run, key, pinned=approval == "any" and policy.study.peers == "pinned"),
        keep_noise=partial(kept_noise, out, key),
        table=partial(data_files.content_of, [str(node[name]) for name in files]),
        table_at_start=partial(table_at_start, out, run.id),
        check_keep=check_keep,
        earlier=None if run.compare is None else clusters.of,
        kept_keys=kept_keys(node, key, secret, site.identity),
    )


def _mask_keys(site: Site, run: RunSpec, key: str, *, pinned: bool) -> Callable[[str], MaskKeys] | None:
    """Return a function that gives a site's keys for a run's masks, or None if the run has no masks.

    `pinned`: only pins vouch for other sites' keys, and not the study's approval. Raises ShareableError or
    ProtocolError if the site lacks a key, or another's has no pin.
    """
    if run.sums == "plain":
        return None
    who, listed = site.display_name, run.identities or []
    public = tuple(bytes.fromhex(keys)[:KEY_BYTES] for keys in listed)
    if site.identity is None:
        raise ShareableError(f"{who} has no key for masked sums; allowed: join --identity")
    if listed[site.number] != site.identity.listed:
        text = f"the run lists other keys for site {site.number} than its own, {site.identity.listed}"
        raise ShareableError(f"{text} (fedkernel identity --public)")
    check_pinned({peer: key for peer, key in enumerate(public) if peer != site.number}, site.pins, run.sites or ())
    if pinned and not site.pins:
        text = f"{who} approves any study, so other sites' keys for masked sums need pins: join --pins (study.peers)"
        raise RefusedError("study.peers", text)
    keys = MaskKeys(site.number, site.identity, public, key.encode())
    return lambda run_id: keys


def _projecting(site: Site, node: Mapping[str, Any], run: RunSpec, project: Projecting) -> Site:
    """Return a site with an earlier run's rows and the new rows to project, both prepared as in that run."""
    out, sha256, what = Path(str(node["out"])).expanduser(), data_files.sha256_of(node), str(node["data"])
    noted, preparation = RunRows.load(out, project.of), stored_preparation(out, project.of, run.prepare)
    noted.check_for(project, sha256, what)
    if run.prepare is None or preparation is None:
        own = data_files.read_own_data(node)
        new, X = data_files.read_new_rows(node, own), as_table(own.X, what).take(noted.positions)
        return replace(site, X=X, new=new.X, ids=new.ids, columns=own.columns, projects=True)
    raw = data_files.own_raw_table(*data_files.own_file(node), run.prepare).X
    file = data_files.new_file(node, preparation.names)
    fresh, text = data_files.own_raw_table(file, version_of(str(file.path)), run.prepare), to_text(preparation)
    X_then, X_new = raw.prepared(text, noted.usable_positions(raw)), fresh.X.prepared(text)
    return replace(site, X=X_then, new=X_new, ids=fresh.ids, projects=True)


def _check_apart(  # noqa: PLR0917 - the last two are arguments of `Site.check_rows_apart`
    own: SiteData | OwnRaw, key: bytes, secret: bytes, folder: Path, least: int, positions: Positions | None, note: bool
) -> int:
    """Apply `check_rows_apart` to a run's ids and contents, and return the latter's result (0 without a limit).

    A run with noise has none: noise hides the difference, which a refusal would show.
    """
    if least:
        values = row_contents(own.X, positions, secret)
        with locked_folder(folder):  # a SuperNode answers each message in a process of its own
            check_rows_apart(folder, row_hashes(own.ids, key, positions, own.X.shape[0]), least, note=note)
            return check_rows_apart(folder / "values", values, least, note=note, wording=VALUES_APART)
    return 0


@contextmanager
def _details_logged(who: str, what: str) -> Iterator[None]:
    """Turn an error about a site's files into one without details, which are logged at the site only."""
    try:
        yield
    except (InputError, OSError) as error:
        raise OwnFileError(f"{who} cannot {what}", f"{who}: {error}") from None


def allowed(listed: Iterable[str]) -> dict[str, type[KernelClient]]:
    """Import the clients and kernels that an operator allows, and return the clients by their unique class names."""
    clients: dict[str, type[KernelClient]] = {}
    for name in filter(None, (name.strip() for name in listed)):
        kind = load_class(name, object, "kernels" if name in short_names("kernels") else "clients", "allow")
        if not (isinstance(kind, type) and issubclass(kind, KernelClient | Kernel)):
            raise InputError(f"allow = {name!r}, but must be a client or a kernel")
        if issubclass(kind, KernelClient) and clients.setdefault(kind.__name__, kind) is not kind:
            raise InputError(f"allow = {name!r}, but another allowed client also has the class name {kind.__name__}")
    return clients


def own_clients(runs: Iterable[RunSpec]) -> list[str]:
    """Return the sorted addresses of fedkernel's own clients that the runs name."""
    ours = own_short_names("clients")
    addresses = {ours.get(run.pair, run.pair) for run in runs if run.pair is not None}
    return sorted(addresses & set(ours.values()))
