"""Settings of one run, which the coordinator sends with every message."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from flwr.app import RecordDict

from fedkernel.data import Prepare
from fedkernel.ground import InputError, Precision
from fedkernel.protocol import ConfigValue
from fedkernel.wire import Missing, check_quorum, digest, flower, identity_of, records_of


@dataclass(frozen=True)
class RunSettings:
    """What every message of a run carries: which run it belongs to, its seed, and how long a round may take.

    With a vertical partition and ids, rows that are `missing` somewhere are dropped, or the run is refused. The
    protocol's own steps have as many BLAS `threads`. With `hashes`, the ledger has that of every reply. With
    `joint_seed`, the clients draw the seed, in two rounds more, and the history has it. With `prepare`, the sites'
    tables are raw, and are prepared first. With `project`, it is the clients' new rows that are compared by their ids.
    What measures the model ends with a comparison with the clusters of the run `compare`, where there is one. With a
    `quorum`, a number of clients or a fraction, a strategy that may go on without a client does while so many are left.
    Phases that `deadlines` names have these in place of the `deadline`. Arrays of the method's messages travel as
    `wire`, with float32 in half of the bytes: at the other end each entry is off by 6e-8 of itself.
    """

    run: str = "run"
    seed: int = 0
    clients: int | None = None
    deadline: float = 3600.0
    missing: Missing = "drop"
    threads: int = 1
    hashes: bool = False
    joint_seed: bool = False
    prepare: Prepare | None = None
    project: bool = False
    compare: str | None = None
    quorum: float | None = None
    deadlines: Mapping[str, float] = field(default_factory=dict)
    wire: Precision = "float64"

    def __post_init__(self) -> None:
        """Refuse a seed that would only fail at the clients, and a deadline that none can meet."""
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed = {self.seed}, but must be from 0 to 2^63 - 1")
        if not 0 < self.deadline < math.inf:
            raise InputError(f"deadline = {self.deadline:g}, but must be greater than 0, and finite")
        for phase, seconds in self.deadlines.items():
            if not 0 < seconds < math.inf:
                raise InputError(f"deadlines: {phase} = {seconds:g}, but must be greater than 0, and finite")
        check_quorum(self.quorum)
        if self.missing not in get_args(Missing):
            raise InputError(f"missing = {self.missing!r}, but must be one of {', '.join(get_args(Missing))}")
        if self.wire not in get_args(Precision):
            raise InputError(f"wire = {self.wire!r}, but must be one of {', '.join(get_args(Precision))}")
        if self.threads < 1:
            raise InputError(f"threads = {self.threads}, but must be at least 1")

    def deadline_of(self, phase: str) -> float:
        """Return how many seconds a round of a phase may take."""
        return self.deadlines.get(phase, self.deadline)

    def header(self, pair: str) -> dict[str, ConfigValue]:
        """Return what stands beside every request to clients of a class."""
        header: dict[str, ConfigValue] = {"pair": pair, "run": self.run, "seed": self.seed}
        return header if self.wire == "float64" else header | {"wire": self.wire}

    def hash_of(self, content: RecordDict) -> str:
        """Return a reply's hash, where the ledger is to have it."""
        return _hash(content) if self.hashes else ""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunSettings":
        """Return what a Flower configuration says of a run, which may say other things, too."""
        named = {setting.name: config[setting.name] for setting in fields(cls) if setting.name in config}
        if isinstance(named.get("prepare"), str):  # as JSON, since Flower's has no tables
            named["prepare"] = Prepare(**json.loads(named["prepare"]))
        if isinstance(named.get("deadlines"), str):
            named["deadlines"] = json.loads(named["deadlines"])
        return cls(**named)


def _hash(content: RecordDict) -> str:
    arrays, scalars = records_of(content)
    return digest(identity_of(scalars), flower.read_arrays(arrays, copy=False))
