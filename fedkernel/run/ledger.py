"""What crossed the wire: floats and bytes, up and down, for every round and client."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedkernel.arrays import short


@dataclass(frozen=True)
class Entry:
    """One request and its reply.

    ``floats`` are the entries of the message's arrays, which is what the papers count; ``bytes`` are the serialised
    content of Flower's message (arrays, names, parameters), without the envelope that each transport adds. ``rows_up``
    are the rows of the client's own table that its reply holds as they are. ``sha256`` is that of the reply, which a
    site's record of what left it has too (`fedkernel.run.outbox`); empty where sites are simulated.
    """

    round: int
    phase: str
    client: int
    floats_down: int
    bytes_down: int
    floats_up: int
    bytes_up: int
    rows_up: int = 0
    sha256: str = field(default="", compare=False)


@dataclass(frozen=True)
class Posted:
    """One letter from a client to another, when it left its sender.

    Its floats and bytes are also among those of the sender's entry, up, and of the receiver's in the next round, down:
    the coordinator forwards it. ``bytes`` are the sealed letter's own.
    """

    round: int
    sender: int
    receiver: int
    floats: int
    bytes: int


@dataclass(frozen=True)
class Load:
    """What a wire carries: how many messages, floats and bytes."""

    messages: int = 0
    floats: int = 0
    bytes: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.messages + other.messages, self.floats + other.floats, self.bytes + other.bytes)


@dataclass
class Ledger:
    """The account of one run.

    Attributes
    ----------
    entries : list of Entry
        Round 0 is the joining of the clients, and the agreement on their rows: its bytes count, but it is not a round
        of the protocol.
    letters : list of Posted
        What the clients wrote to each other.
    """

    entries: list[Entry] = field(default_factory=list)
    letters: list[Posted] = field(default_factory=list)

    __repr__ = short

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

    @property
    def rows_up(self) -> int:
        """Rows of their tables that the clients disclosed."""
        return sum(entry.rows_up for entry in self.entries)

    @property
    def edges(self) -> dict[tuple[int, int], Load]:
        """What each client wrote to each other one, by (sender, receiver); an edge of the graph has two directions."""
        loads: dict[tuple[int, int], Load] = {}
        for letter in sorted(self.letters, key=lambda letter: (letter.sender, letter.receiver)):
            edge = letter.sender, letter.receiver
            loads[edge] = loads.get(edge, Load()) + Load(1, letter.floats, letter.bytes)
        return loads

    @property
    def peer_to_peer(self) -> Load:
        """What a network without a coordinator would carry: each letter once, from its sender to its receiver."""
        return sum(self.edges.values(), Load())

    @property
    def star(self) -> Load:
        """What the coordinator's network carried, up and down: requests and replies, with the letters in them."""
        floats, size = self.floats_up + self.floats_down, self.bytes_up + self.bytes_down
        return Load(2 * len(self.entries), floats, size)

    def totals(self) -> dict[str, int]:
        """Return rounds, floats, bytes and disclosed rows by name."""
        return {
            "rounds": self.rounds,
            "floats_up": self.floats_up,
            "floats_down": self.floats_down,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "rows_up": self.rows_up,
        }

    def of_client(self, client: int) -> "Ledger":
        """Return the part of the account that concerns one client; of the letters those that it wrote."""
        return Ledger(
            [entry for entry in self.entries if entry.client == client],
            [letter for letter in self.letters if letter.sender == client],
        )

    def of_round(self, number: int) -> "Ledger":
        """Return the part of the account that concerns one round."""
        return Ledger(
            [entry for entry in self.entries if entry.round == number],
            [letter for letter in self.letters if letter.round == number],
        )

    def to_table(self) -> list[dict[str, Any]]:
        """Return one plain dictionary per entry and per letter, for JSON."""
        entries = [{name: value for name, value in vars(entry).items() if value != ""} for entry in self.entries]
        return [*entries, *map(vars, self.letters)]

    @classmethod
    def from_table(cls, table: Iterable[dict[str, Any]]) -> "Ledger":
        """Rebuild a ledger from `to_table`."""
        entries, letters = [], []
        for row in table:
            if "sender" in row:
                letters.append(Posted(**row))
            else:
                entries.append(Entry(**row))
        return cls(entries, letters)


@dataclass
class Account:
    """What a run cost: the ledger, a row per round with its wall-clock seconds, and which clients were lost."""

    ledger: Ledger = field(default_factory=Ledger)
    history: list[dict[str, Any]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def close_round(
        self, number: int, phase: str, seconds: float, values: Mapping[str, float], slowest_seconds: float = 0.0
    ) -> None:
        """Add the row of a finished round, whose entries are the ledger's last.

        `seconds` are the round's on the clock, `slowest_seconds` those that the slowest client computed.
        """
        of_round = itertools.takewhile(
            lambda entry: (entry.round, entry.phase) == (number, phase), reversed(self.ledger.entries)
        )
        costs = Ledger(list(of_round))
        row: dict[str, Any] = {"round": number, "phase": phase, "seconds": seconds, "slowest_seconds": slowest_seconds}
        row["clients"] = len({entry.client for entry in costs.entries})
        totals = {name: total for name, total in costs.totals().items() if name != "rounds"}
        self.history.append(row | totals | ({"values": dict(values)} if values else {}))

    def note(self, values: Mapping[str, float]) -> None:
        """Write figures that a protocol came to beside those of its last round."""
        if values:
            row = self.history[-1]
            row["values"] = {**row.get("values", {}), **values}
