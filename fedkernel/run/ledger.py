"""What crossed the wire: floats and bytes, up and down, for every round and client."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedkernel.ground import DiskList

SUMS = ("floats_up", "floats_down", "bytes_up", "bytes_down", "rows_up")
"""What is added up over entries."""


@dataclass(frozen=True)
class Entry:
    """One request and its reply.

    ``floats`` are the entries of the message's arrays, which is what the papers count; ``bytes`` are the serialised
    content of Flower's message (arrays, names, parameters), without the envelope that each transport adds. ``rows_up``
    are the rows of the client's own table that its reply holds as they are. ``sha256`` is that of the reply, which a
    site's record of what left it has too (`fedkernel.site.outbox`); empty where sites are simulated.
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


class Ledger:
    """The account of one run: its sums in memory, its entries but for the last on disk (`fedkernel.ground.disk_list`).

    - `entries`: round 0 is the joining of the clients, and the agreement on their rows: its bytes count, but it is not
      a round of the protocol.
    - `letters`: what the clients wrote to each other.
    - `floats_up`, `floats_down`: from the clients to the coordinator, and back.
    - `bytes_up`, `bytes_down`: as well.
    - `rows_up`: rows of their tables that the clients disclosed.
    """

    def __init__(self, entries: Iterable[Entry] = (), letters: Iterable[Posted] = ()) -> None:
        self.entries: DiskList[Entry] = DiskList((), _values_of, lambda values: Entry(*values))
        self.letters: DiskList[Posted] = DiskList((), _values_of, lambda values: Posted(*values))
        self.floats_up = self.floats_down = self.bytes_up = self.bytes_down = self.rows_up = 0
        self._through, self._beyond = 0, set[int]()  # rounds 1 to this one, and others that there are
        self._edges: dict[tuple[int, int], list[int]] = {}  # what a `Load` has, to be added to
        self._sent: dict[int, int] = {}  # floats up of each client
        for entry in entries:
            self.add(entry)
        for letter in letters:
            self.post(letter)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.entries)} entries, {len(self.letters)} letters)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return self.entries == other.entries and self.letters == other.letters

    __hash__ = None  # type: ignore[assignment] # as of whatever is added to

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self.entries), list(self.letters))

    def add(self, entry: Entry) -> None:
        """Write one exchange down."""
        self.entries.append(entry)
        self.floats_up += entry.floats_up  # one by one: a loop over `SUMS` takes five times as long
        self.floats_down += entry.floats_down
        self.bytes_up += entry.bytes_up
        self.bytes_down += entry.bytes_down
        self.rows_up += entry.rows_up
        self._sent[entry.client] = self._sent.get(entry.client, 0) + entry.floats_up
        if entry.round > self._through:
            self._beyond.add(entry.round)
            while self._through + 1 in self._beyond:
                self._through += 1
                self._beyond.remove(self._through)

    def post(self, letter: Posted) -> None:
        """Write a letter down."""
        self.letters.append(letter)
        load = self._edges.setdefault((letter.sender, letter.receiver), [0, 0, 0])
        load[0] += 1
        load[1] += letter.floats
        load[2] += letter.bytes

    def take(self, part: "Ledger") -> None:
        """Write down what another ledger has."""
        for entry in part.entries:
            self.add(entry)
        for letter in part.letters:
            self.post(letter)

    @property
    def rounds(self) -> int:
        """Rounds of the protocol: the messages that had to follow one another."""
        return self._through + len(self._beyond)

    @property
    def edges(self) -> dict[tuple[int, int], Load]:
        """What each client wrote to each other one, by (sender, receiver); an edge of the graph has two directions."""
        return {edge: Load(*load) for edge, load in sorted(self._edges.items())}

    def floats_by_reader(self) -> dict[int, dict[int | None, int]]:
        """Return the floats that each client sent, by who reads them: the coordinator, None, or the peers it wrote to.

        The coordinator forwards letters and does not read them.
        """
        sent: dict[int, dict[int | None, int]] = {client: {None: floats} for client, floats in self._sent.items()}
        for (sender, receiver), load in self._edges.items():
            floats = sent.setdefault(sender, {None: 0})
            floats[receiver] = load[1]
            floats[None] -= load[1]
        return sent

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
        return {"rounds": self.rounds, **{name: getattr(self, name) for name in SUMS}}

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
        ledger = cls()
        for row in table:
            if "sender" in row:
                ledger.post(Posted(**row))
            else:
                ledger.add(Entry(**row))
        return ledger


def _values_of(row: Entry | Posted) -> list[Any]:
    return list(vars(row).values())


@dataclass
class Account:
    """What a run cost: the ledger, a row per round with its wall-clock seconds, and which clients were lost."""

    ledger: Ledger = field(default_factory=Ledger)
    history: DiskList[dict[str, Any]] = field(default_factory=DiskList)
    losses: list[str] = field(default_factory=list)

    def close_round(
        self,
        number: int,
        phase: str,
        seconds: float,
        values: Mapping[str, float],
        costs: Ledger,
        *,
        slowest_seconds: float = 0.0,
    ) -> None:
        """Write down a finished round, of which `costs` is the account.

        `seconds` are the round's on the clock, `slowest_seconds` those that the slowest client computed.
        """
        self.ledger.take(costs)
        row: dict[str, Any] = {"round": number, "phase": phase, "seconds": seconds, "slowest_seconds": slowest_seconds}
        row["clients"] = len({entry.client for entry in costs.entries})
        totals = {name: total for name, total in costs.totals().items() if name != "rounds"}
        self.history.append(row | totals | ({"values": dict(values)} if values else {}))

    def note(self, values: Mapping[str, float]) -> None:
        """Write figures that a protocol came to beside those of its last round."""
        if values:
            row = self.history[-1]
            row["values"] = {**row.get("values", {}), **values}
