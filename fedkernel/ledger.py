"""What crossed the wire: floats and bytes, up and down, for every round and client."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One request and its reply.

    ``floats`` are the entries of the message's arrays, which is what the papers count; ``bytes`` are the serialised
    content of Flower's message (arrays, names, parameters), without the envelope that each transport adds.
    """

    round: int
    phase: str
    client: int
    floats_down: int
    bytes_down: int
    floats_up: int
    bytes_up: int


@dataclass
class Ledger:
    """The account of one run.

    Attributes
    ----------
    entries : list of Entry
        Round 0 is the joining of the clients: its bytes count, but it is not a round of the protocol.
    """

    entries: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Write one exchange down."""
        self.entries.append(entry)

    @property
    def rounds(self) -> int:
        """Rounds of the protocol: the messages that had to follow one another."""
        return len({entry.round for entry in self.entries if entry.round > 0})

    @property
    def floats_up(self) -> int:
        """Floats from the clients to the coordinator."""
        return sum(entry.floats_up for entry in self.entries)

    @property
    def floats_down(self) -> int:
        """Floats from the coordinator to the clients."""
        return sum(entry.floats_down for entry in self.entries)

    @property
    def bytes_up(self) -> int:
        """Bytes from the clients to the coordinator."""
        return sum(entry.bytes_up for entry in self.entries)

    @property
    def bytes_down(self) -> int:
        """Bytes from the coordinator to the clients."""
        return sum(entry.bytes_down for entry in self.entries)

    def totals(self) -> dict[str, int]:
        """Return rounds, floats and bytes by name."""
        return {
            "rounds": self.rounds,
            "floats_up": self.floats_up,
            "floats_down": self.floats_down,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }

    def of_client(self, client: int) -> "Ledger":
        """Return the part of the account that concerns one client."""
        return Ledger([entry for entry in self.entries if entry.client == client])

    def of_round(self, number: int) -> "Ledger":
        """Return the part of the account that concerns one round."""
        return Ledger([entry for entry in self.entries if entry.round == number])

    def to_table(self) -> list[dict[str, Any]]:
        """Return one plain dictionary per entry, for JSON."""
        return [vars(entry) for entry in self.entries]

    @classmethod
    def from_table(cls, table: Iterable[dict[str, Any]]) -> "Ledger":
        """Rebuild a ledger from `to_table`."""
        return cls([Entry(**row) for row in table])


@dataclass
class Account:
    """What a run cost: the ledger, and a row per round with its wall-clock seconds."""

    ledger: Ledger = field(default_factory=Ledger)
    history: list[dict[str, Any]] = field(default_factory=list)

    def close_round(self, number: int, phase: str, seconds: float, values: Mapping[str, float]) -> None:
        """Add the row of a finished round, whose entries are the ledger's last."""
        costs = Ledger(list(itertools.takewhile(lambda entry: entry.round == number, reversed(self.ledger.entries))))
        row = {"round": number, "phase": phase, "seconds": seconds, "clients": len(costs.entries)}
        totals = {name: total for name, total in costs.totals().items() if name != "rounds"}
        self.history.append(row | totals | ({"values": dict(values)} if values else {}))
