"""Settings of one run, and the header of its requests."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from flwr.app import RecordDict

from fedkernel.data import Prepare
from fedkernel.ground import InputError, Precision, Sums
from fedkernel.protocol import ConfigValue, Privacy, check_covered
from fedkernel.wire import Missing, check_quorum, digest, flower_internals, identity_of, records_of


@dataclass(frozen=True)
class RunSettings:
    """Settings of one run: id, seed, number of clients, deadlines, and options of its protocols.

    `fedkernel.wire.RunSpec` and `Job` describe them, except `threads`: of the protocol's own steps; `hashes`: add every
    reply's hash to the ledger; `project`: align the clients' new rows by ids, instead of the rows fitted on;
    `shard_names`: of the clients' files, if they are simulated sites with files.
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
    sums: Sums = "plain"
    privacy: Privacy | None = None
    shard_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InputError for values out of range, since a bad seed would only fail at the clients."""
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed = {self.seed}, but must be from 0 to 2^63 - 1")
        deadlines = {f"deadlines: {phase}": seconds for phase, seconds in self.deadlines.items()}
        for name, seconds in {"deadline": self.deadline, **deadlines}.items():
            if not 0 < seconds < math.inf:
                raise InputError(f"{name} = {seconds:g}, but must be greater than 0, and finite")
        check_quorum(self.quorum)
        for name, kind in {"missing": Missing, "wire": Precision, "sums": Sums}.items():
            if (value := getattr(self, name)) not in get_args(kind):
                raise InputError(f"{name} = {value!r}, but must be one of {', '.join(get_args(kind))}")
        if self.sums == "masked" and self.quorum is not None:
            raise InputError(f'quorum = {self.quorum}, but sums = "masked" needs all clients; allowed: no quorum')
        if self.privacy is not None:
            check_covered(self.prepare, masked=self.sums == "masked")
        if self.threads < 1:
            raise InputError(f"threads = {self.threads}, but must be at least 1")

    def deadline_of(self, phase: str) -> float:
        """Return the most seconds that a round of a phase may take."""
        return self.deadlines.get(phase, self.deadline)

    def file_of(self, client: int) -> str | None:
        """Return the name of a client's file, or None if it is not known."""
        return self.shard_names[client] if 0 <= client < len(self.shard_names) else None

    def header(self, pair: str) -> dict[str, ConfigValue]:
        """Return the header of a run's requests: client class `pair`, run, seed, precision, sums and privacy."""
        header: dict[str, ConfigValue] = {"pair": pair, "run": self.run, "seed": self.seed}
        header |= {} if self.wire == "float64" else {"wire": self.wire}
        header |= {} if self.sums == "plain" else {"sums": self.sums}
        return header if self.privacy is None else header | {"privacy": self.privacy.text}

    def hash_of(self, content: RecordDict) -> str:
        """Return a reply's hash for the ledger, or an empty text without `hashes`."""
        if not self.hashes:
            return ""
        arrays, scalars = records_of(content)
        return digest(identity_of(scalars), flower_internals.read_arrays(arrays, copy=False))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunSettings":
        """Read settings from a Flower configuration; its other keys are ignored."""
        named = {setting.name: config[setting.name] for setting in fields(cls) if setting.name in config}
        if isinstance(named.get("prepare"), str):  # as JSON, since Flower's configuration has no tables
            named["prepare"] = Prepare(**json.loads(named["prepare"]))
        if isinstance(named.get("deadlines"), str):
            named["deadlines"] = json.loads(named["deadlines"])
        return cls(**named)
