"""Description of a job, its runs and their study: plain data for coordinator, sites and engines, as JSON."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from fedkernel.data import SOURCES, DataSpec, PartitionSpec, Prepare, SiteFile
from fedkernel.ground import (
    Group,
    InputError,
    Precision,
    ShareableError,
    Sums,
    installed_version,
    own_short_names,
    read_json,
    short_name,
    short_names,
)
from fedkernel.numerics import kernel_tables
from fedkernel.protocol import WIRE_VERSION, Plan, Privacy, check_covered
from fedkernel.wire.quorum import Deadlines, Quorum, Seconds
from fedkernel.wire.row_id_hashes import Missing


def shares_rows(parameters: Mapping[str, Any]) -> bool:
    """Return whether a strategy's parameters, or those of a nested strategy, set ``share_rows``."""
    inner = (value for value in parameters.values() if isinstance(value, Mapping))
    return parameters.get("share_rows") is True or any(map(shares_rows, inner))


def _absolute(path: str) -> str:
    """Return an absolute path, valid in processes with another working folder."""
    return os.path.abspath(Path(path).expanduser())


def _absolute_file(file: str | SiteFile) -> str | SiteFile:
    return _absolute(file) if isinstance(file, str) else replace(file, path=_absolute(str(file.path)))


AnyFile = Annotated[str | SiteFile, pydantic.AfterValidator(_absolute_file)]

MOST_SITES = 10_000
"""Most named sites of a run."""

RunId = Annotated[str, pydantic.Field(pattern=r"^[\w.=,+-]+$", max_length=240)]
"""Id of a run: part of file names at the sites, so without slashes."""


class Projecting(pydantic.BaseModel, extra="forbid", frozen=True):
    """Projection of new rows onto the model of an earlier run, in place of fitting.

    - `of`: the earlier run's id. Each site takes that run's rows, in their order, from its own files.
    - `order`: the id of that order, see `fedkernel.wire.order_id`.
    - `model`: SHA-256 of the model's file, which stays with the coordinator.
    - `coordinates`: who gets them: only the coordinator, which computes them, or also every site.
    """

    of: RunId
    order: int = pydantic.Field(ge=0, lt=2**48)
    model: str = pydantic.Field(pattern="^[0-9a-f]{64}$")
    coordinates: Literal["coordinator", "sites"] = "sites"


class RunSpec(pydantic.BaseModel, extra="forbid", frozen=True):
    """Description of a run: one strategy, one partition of one data set, and one seed.

    - `id`: names the run's folder and files; 240 characters at most.
    - `strategy`: its address, ``package.module:Name``, or a short name.
    - `pair`: address or short name of its client class; without it, a site with data of its own answers nothing.
    - `parameters`: hyper-parameters, as in a TOML table.
    - `data`, `partition`: source of simulated sites' parts; ``partition.clients`` None means one per node.
    - `shards`: instead of `data`, one file per site: .npy, .npz (arrays ``X`` and maybe ``new``, or written by
      scipy.sparse.save_npz) or .parquet; or a `SiteFile`.
    - `labels`: with `shards`, .npy files of each site's labels, for clients that need them.
    - `sites`: instead of `data` and `shards`, the names of the sites in client order, each with data of its own (see
      `fedkernel.site.site_of_job`).
    - `clients`: number of clients; None: all sites, or all nodes.
    - `missing`: for sites that hold columns and know rows by ids: drop rows that a site lacks, or refuse the run.
    - `evaluate`: measure the model on the clients in one or two more rounds, if the method has such a measure.
    - `align`: whether the sites' rows may be compared by ids; with a horizontal partition no method needs that.
    - `plan`: the strategy's requests to each client.
    - `joint_seed`: whether named sites draw the seed (`fedkernel.wire.seed_agreement`); `seed` then only names the run.
    - `prepare`: preparation of the sites' raw tables, whose requests begin `plan`. With `project`, the preparation of
      the earlier run, kept by each site, without requests.
    - `project`: in place of fitting, with a vertical partition and named sites that know their rows by ids.
    - `compare`: with `evaluate`, the id of an earlier run of the same method with another seed; the sites compare
      clusters.
    - `wire`: precision of the arrays in the method's messages, up and down.
    - `sums`: "masked" hides each site's reply in the sum over all (`fedkernel.wire.masked_sums`). `identities`: the
      named sites' public keys for that and for receipts (`KeyPair.listed`), in the order of `sites`.
    - `privacy`: of the sums, by noise; then all that leaves are such sums, and named sites are asked for nothing else.
    """

    id: RunId
    strategy: str
    pair: str | None = None
    parameters: dict[str, Any] = {}
    seed: int = pydantic.Field(default=0, ge=0)
    data: DataSpec | None = None
    partition: PartitionSpec | None = None
    shards: list[AnyFile] | None = None
    labels: list[Annotated[str, pydantic.AfterValidator(_absolute)] | None] | None = None
    sites: list[str] | None = pydantic.Field(default=None, min_length=1, max_length=MOST_SITES)
    clients: int | None = pydantic.Field(default=None, ge=1)
    missing: Missing = "drop"
    evaluate: bool = False
    align: bool = True
    plan: Plan | None = None
    joint_seed: bool = False
    prepare: Prepare | None = None
    project: Projecting | None = None
    compare: RunId | None = None
    wire: Precision = "float64"
    sums: Sums = "plain"
    identities: list[Annotated[str, pydantic.Field(pattern="^[0-9a-f]{128}$")]] | None = None
    privacy: Privacy | None = None

    @pydantic.field_validator("data")
    @classmethod
    def _has_absolute_path(cls, data: DataSpec | None) -> DataSpec | None:
        return None if data is None else data.within(Path())

    @pydantic.model_validator(mode="before")
    @classmethod
    def _all_sites(cls, table: Any) -> Any:
        """Set the number of clients to that of the sites, unless the table sets another."""
        if isinstance(table, dict) and isinstance(table.get("sites"), list) and table.get("clients") is None:
            return table | {"clients": len(table["sites"]) or None}
        return table

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> "RunSpec":
        sources = [self.data, self.shards, self.sites]
        if (self.data is None) != (self.partition is None) or sources.count(None) != len(sources) - 1:
            raise ValueError(f"run {self.id} needs data and partition, or shards, or sites")
        if self.sites is not None and (len(set(self.sites)) < len(self.sites) or "" in self.sites):
            raise ValueError(f"sites = {self.sites}, but must be different names")
        if self.sites is not None and self.clients != len(self.sites):
            raise ValueError(f"clients = {self.clients}, but must be the number of sites, {len(self.sites)}")
        if self.joint_seed and self.sites is None:
            raise ValueError("joint_seed = true, but only named sites draw a seed together")
        needed = len(self.sites or ()) if self.sums == "masked" else 0
        if len(self.identities or ()) != needed:
            raise ValueError(
                f"identities has {len(self.identities or ())} keys, but must have {needed}: one for each "
                'named site of a run with sums = "masked", else none'
            )
        if self.project is not None and (self.sites is None or not self.align):
            raise ValueError("project is for runs of named sites whose rows are compared by their ids")
        if self.privacy is not None and self.sites is not None:
            others = self.plan is None or self.align or self.evaluate or self.compare
            check_covered(self.prepare, masked=self.sums == "masked" and not others, where=f"run {self.id}: ")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _without_defaults(self, plain: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit newer fields, such as wire and sums, at their defaults, so that older studies keep their hashes."""
        table: dict[str, Any] = plain(self)
        defaults: dict[str, Any] = dict.fromkeys(["labels", "compare", "identities", "privacy"])
        defaults |= {"wire": "float64", "sums": "plain"}
        return {name: value for name, value in table.items() if name not in defaults or value != defaults[name]}

    @property
    def key(self) -> str:
        """SHA-256 of all fields of the run."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def prepares(self) -> Prepare | None:
        """Preparation at the run's start, or None if there is none or an earlier run's is reused."""
        return self.prepare if self.project is None else None

    @property
    def shares_rows(self) -> bool:
        """True if the strategy's parameters allow clients to send rows."""
        return shares_rows(self.parameters)


class Study(pydantic.BaseModel, extra="forbid", frozen=True):
    """Runs of an experiment, for approval by sites before the first request, with the coordinator's versions."""

    name: str
    runs: Annotated[list[RunSpec], pydantic.FailFast()] = pydantic.Field(min_length=1)
    versions: dict[str, str] = pydantic.Field(
        default_factory=lambda: {"fedkernel": installed_version(), "messages": str(WIRE_VERSION)}
    )

    @pydantic.model_validator(mode="after")
    def _has_valid_runs(self) -> "Study":
        if len({run.id for run in self.runs}) < len(self.runs):
            raise ValueError("two of its runs have the same id")
        try:
            json.dumps([run.model_dump() for run in self.runs], default=repr, allow_nan=False)
        except ValueError:
            raise ValueError("a number in it is not finite") from None
        return self

    @property
    def text(self) -> str:
        """Canonical JSON of the study: keys sorted, no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of `text`, 64 hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str, what: str = "the study") -> "Study":
        """Read a study from its JSON; `what` names it in error texts."""
        return read_json(cls, text, what, InputError)

    def check_run(self, run: RunSpec) -> None:
        """Raise ShareableError unless a run equals, as JSON, one of the study's runs."""
        if run.model_dump_json() not in {own.model_dump_json() for own in self.runs}:
            raise ShareableError(f"run {run.id!r} differs from the run in study {self.sha256[:HASH_DIGITS]}")


HASH_DIGITS = 12
"""Digits of a study's hash that texts show."""


class Apps(pydantic.BaseModel, extra="forbid", frozen=True):
    """Addresses, ``package.module:name``, of the Flower ServerApp and ClientApp that execute a job."""

    server: str = pydantic.Field(pattern=r"^\w+(\.\w+)*:\w+$")
    client: str = pydantic.Field(pattern=r"^\w+(\.\w+)*:\w+$")


class Job(pydantic.BaseModel, extra="forbid", frozen=True):
    """Runs that one start of the coordinator executes, one after the other.

    - `study`: the study that the runs belong to; it may have more runs.
    - `signatures`: of the study, see `fedkernel.site.sign`.
    - `apps`: for an engine to start; None: the job goes to running apps.
    - `out`: folder for the results, made absolute; None: they are only logged.
    - `mark`: name of a file in `out`, for apps that may run elsewhere. Without that file, `out` is another machine's
      folder: results then come through the log (see `fedkernel.run.result_transport`), and simulated sites keep
      nothing.
    - `models`: model files that runs project onto, by the run's id.
    - `deadline`: most seconds of a round. `deadlines`: by phase, seconds in place of the `deadline`.
    - `quorum`: number or fraction of clients that must remain, see `fedkernel.wire.quorum`.
    - `threads`: BLAS threads of each client and of the coordinator, set here since they decide the last bits.
    - `journals`: write each run's replies to its folder and resume a stopped run (`fedkernel.run.journal`); the caller
      removes them once it has the result.
    - `go_on`: continue with the next run after a failed one, which is reported (`fedkernel.run.result_transport`).
    - `whole`: write coresets too, if sites are simulated and `out` is read at once and removed.

    Sites are not sent `out`, `models`, `journals`, `go_on` and `whole`.
    """

    runs: Annotated[list[RunSpec], pydantic.FailFast()] = pydantic.Field(min_length=1)
    study: Study | None = None
    signatures: list[str] = []
    apps: Apps | None = None
    out: Annotated[str, pydantic.AfterValidator(_absolute)] | None = None
    mark: str | None = None
    models: dict[str, str] = {}
    deadline: Seconds = 3600.0
    deadlines: Deadlines = {}
    quorum: Quorum | None = None
    threads: int = pydantic.Field(default=1, ge=1)
    journals: bool = False
    go_on: bool = False
    whole: bool = False

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Read a job from its JSON. Raises ShareableError, in one sentence, if it is invalid."""
        return read_json(cls, text, "the job", ShareableError)

    @property
    def folder(self) -> Path | None:
        """Result folder if this process can write to it, else None."""
        if self.out is None or self.mark is None:
            return None if self.out is None else Path(self.out)
        here = os.access(Path(self.out) / self.mark, os.R_OK) and os.access(self.out, os.W_OK)
        return Path(self.out) if here else None

    @property
    def work(self) -> str:
        """Summary of the job's strategies and clients, for a site's operator."""
        work = dict.fromkeys(
            f"{short_name(run.strategy, 'pairs')} ({short_name(run.pair, 'clients') if run.pair else 'no client'})"
            + (", which sends raw rows" if run.shares_rows else "")
            for run in self.runs
        )
        return "; ".join(work)

    @property
    def packages(self) -> set[str]:
        """Names of the packages with the runs' strategies, clients, kernels and loaders, and fedkernel's own pairs."""
        groups: dict[Group, list[str]] = {
            "pairs": [run.strategy for run in self.runs],
            "clients": [run.pair for run in self.runs if run.pair is not None],
            "kernels": [table["type"] for run in self.runs for table in kernel_tables(run.parameters)],
            "datasets": [run.data.name for run in self.runs if run.data is not None],
        }
        addresses = {short_names(group).get(name, name) for group, written in groups.items() for name in written}
        addresses |= {*own_short_names("pairs").values(), *own_short_names("clients").values()}
        return {address.partition(":")[0].partition(".")[0] for address in addresses if ":" in address} - set(SOURCES)

    def run(self, run_id: str) -> RunSpec:
        """Return the job's run with this id. Raises ShareableError if there is none."""
        for run in self.runs:
            if run.id == run_id:
                return run
        raise ShareableError(f"the job has no run {run_id!r}")
