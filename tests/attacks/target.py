"""A site as its operator runs it, and requests as a coordinator chooses them: any, in any order, any number."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from flwr.app import Context, Message
from named_sites import draw_seed
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import StandardScaler

from fedkernel import wire
from fedkernel.ground import load_class
from fedkernel.kernel_width import WidthClient
from fedkernel.protocol import is_seeded
from fedkernel.site import Site, approve, site_of_job
from fedkernel.site.client_app import client_app
from fedkernel.strategy import KernelStrategy, strategy_of

NAMES = ("north", "east", "south")
"""The sites of the job; the target is the first."""

WINE = StandardScaler().fit_transform(load_wine().data)  # 178 x 13
CANCER = StandardScaler().fit_transform(load_breast_cancer().data)  # 569 x 30
IDS = [f"patient-{number:04d}" for number in np.random.default_rng(7).permutation(1000)]

KEY = b"0123456789abcdef0123456789abcdef"
"""What the sites' ids are hashed with, where their operators have agreed on a key."""

KINDS = {
    wire.Introduce: "query",
    wire.ShowShare: "query.share",
    wire.TakeShares: "query.seed",
    wire.HashIds: "query.ids",
    wire.TakeRows: "query.align",
}
"""Flower's kind of message, of requests that are none of a client's."""


class Refused(Exception):  # noqa: N818 - no error of the attacker's
    """What the site said instead of an answer."""


UNGUARDED = """
[table]
min_rows = {min_rows}
row_share = 0
rows_apart = 0

[study]
approve = "any"
plan = false
min_sites = 1
attempts = 1000000
joint_seed = "never"
peers = "any"

[limits.total]
{rows}
"""
"""The policy of an operator who has approved of everything but what its options say."""

APPROVING = """
[study]
approve = "any"
plan = false
joint_seed = "never"
peers = "any"
"""
"""Of one who has approved just what an honest-but-curious adversary asks, at a site that is otherwise by default."""

Mode = Literal["unguarded", "approved", "honest study"]
"""The site has neither gate nor guards; what is asked was approved; another study was, and its rows if it has any."""

STUDIES: Mapping[str, Mapping[str, Any]] = {
    "DKPCA": {"n_components": 3},
    "VFedPCA": {"n_components": 3, "merge": "exact"},
    "VFedAKPCA": {"n_components": 3},
    "PeerVFedPCA": {"n_components": 3},
    "FKKMeans": {"n_clusters": 3},
    "RFKKMeans": {"n_clusters": 3},
    "CentroidKMeans": {"n_clusters": 3},
    "CentroidKPCA": {"n_components": 3},
    "DisKPCA": {"n_components": 3, "n_adaptive": 20, "share_rows": True},
    "UniformKPCA": {"n_components": 3, "n_samples": 20, "share_rows": True},
    "SpectralKMeans": {"n_clusters": 3, "components": {"n_components": 3, "n_samples": 20, "share_rows": True}},
    "ADMMKPCA": {"exchange": "features"},
}
"""What the coordinator of each pair said that it would do."""


def node_of(folder: Path, X: Any, ids: bool, operator: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
    """Write the site's file and its policy, and return its node's configuration.

    In `operator` stand ``share-rows`` and ``min-rows``, the key of ids and the peers' pins themselves.
    """
    node = {"name": NAMES[0], "out": str(folder / "out"), "policy": str(folder / "site.toml")}
    rows = "" if "share-rows" in operator else "rows = 0"
    policy = {"unguarded": UNGUARDED.format(min_rows=operator.get("min-rows", 20), rows=rows), "approved": APPROVING}
    (folder / "site.toml").write_text(policy.get(mode, ""))
    if mode == "unguarded":
        node["ids-without-key"] = "true"
    if "id-key" in operator:
        (folder / "sites.key").write_bytes(operator["id-key"])
        node["id-key"] = str(folder / "sites.key")
    if pins := operator.get("pins", {1: "0" * 32} if mode == "honest study" else {}):
        (folder / "pins.toml").write_text("".join(f'{peer} = "{pin}"\n' for peer, pin in pins.items()))
        node["pins"] = str(folder / "pins.toml")
    if not ids:
        np.save(folder / "table.npy", X)
        return {"data": str(folder / "table.npy"), **node}
    lines = [",".join([IDS[place], *map(repr, row.tolist())]) for place, row in enumerate(X)]
    header = ",".join(["patient", *(f"c{place}" for place in range(X.shape[1]))])
    (folder / "table.csv").write_text("\n".join([header, *lines]) + "\n")
    return {"data": str(folder / "table.csv"), "id": "patient", **node}


def job_of(strategy: str, client: type, mode: Mode, folder: Path, study: Mapping[str, Any]) -> wire.Job:
    """Return the job that the coordinator hands out; it says no more than it must to be approved."""
    run = wire.RunSpec(id="study", strategy=strategy, pair=f"{client.__module__}:{client.__name__}", sites=list(NAMES))
    if mode != "honest study":
        return wire.Job(runs=[run])
    honest = strategy_of(strategy, study or STUDIES[strategy])
    plan = honest.plan_of_run(len(NAMES), 0)
    run = run.model_copy(
        update={
            "parameters": honest.hyperparameters,
            "align": honest.partition == "vertical",
            "plan": plan,
            "joint_seed": is_seeded(plan),
        }
    )
    if run.shares_rows:
        (folder / "site.toml").write_text("[limits.total]\nrows = 20")
    approved = wire.Study(name="study", runs=[run])
    approve(folder / "out", approved.sha256)
    return wire.Job(runs=approved.runs, study=approved)


@dataclass
class Target:
    """A site under attack.

    - `folder`: an empty one, for the site's file and its record.
    - `strategy`: the pair.
    - `X`: the site's table (n, d). An attack uses it for its error, and for rows that it says it knows.
    - `ids`: whether the file has a column of ids.
    - `operator`, `mode`: what the operator has decided, see `node_of` and `Mode`.
    - `study`: parameters of the approved study, in place of those in `STUDIES`.
    """

    folder: Path
    strategy: str
    X: Any
    ids: bool = False
    operator: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = "unguarded"
    study: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wire.flower_internals.ensure_task_identity()
        kind = load_class(self.strategy, KernelStrategy, "pairs", "strategy").client
        self.client = kind.__name__
        node = node_of(self.folder, self.X, self.ids, self.operator, self.mode)
        self._job = job_of(self.strategy, kind, self.mode, self.folder, self.study)
        self._app = client_app({}, self._site)
        self._context = wire.flower_internals.new_context(1, node, {"job": self._job.model_dump_json()})
        self.round = 0
        self.restart()

    def _site(self, context: Context, config: Mapping[str, Any]) -> Site:
        site = site_of_job(context, config)
        return replace(site, guards=None, gate=None, noise_key=b"") if self.mode == "unguarded" else site

    @property
    def run(self) -> str:
        return self._job.runs[0].id

    @property
    def rows(self) -> int:
        return len(self.X)

    def restart(self) -> None:
        """Begin the run, once more: the site forgets what it was asked before, but what a study was to be about."""
        self.seed = 0
        introduction = self.ask(wire.Introduce())
        if self._job.runs[0].joint_seed:
            self.seed = draw_seed(introduction, self.ask)

    def ask(self, request: Any, seed: int | None = None) -> Any:
        """Return the site's reply, where a run has a seed that suits; Refused, with its reason, if it gives none."""
        self.round += 1
        seed = self.seed if seed is None else seed
        pair = WidthClient.__name__ if type(request) in WidthClient.answers else self.client
        header = {"pair": pair, "run": self.run, "seed": seed, "round": self.round}
        message = Message(wire.to_content(request, header), 1, KINDS.get(type(request), "train"))
        reply = self._app(message, self._context)
        if reply.has_error():
            raise Refused(reply.error.reason)
        return wire.from_content(type(request).reply_type, reply.content)
