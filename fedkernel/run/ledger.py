"""Ledger of a run's traffic: floats and bytes, up and down, for each round and client."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedkernel.ground import DiskList

SUMS = ("floats_up", "floats_down", "bytes_up", "bytes_down", "rows_up")


@dataclass(frozen=True)
class Entry:
    """Traffic of one request to a client and the client's reply.

    ``floats`` are the entries of the message's arrays, as the papers count; ``bytes`` are the serialised content of
    Flower's message, without the envelope that each transport adds. ``rows_up`` are unchanged rows of the client's
    table in its reply. ``sha256`` is the reply's hash, also in the site's outbox (`fedkernel.site.audit_log`); empty
    where sites are simulated.
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
class LetterEntry:
    """Traffic of one sealed letter. It is also part of the sender's entry (up) and the receiver's next entry (down)."""

    round: int
    sender: int
    receiver: int
    floats: int
    bytes: int


@dataclass(frozen=True)
class Load:
    """Traffic of a network: numbers of messages, floats and bytes."""

    messages: int = 0
    floats: int = 0
    bytes: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.messages + other.messages, self.floats + other.floats, self.bytes + other.bytes)


class Ledger:
    """Traffic of one run, with sums in memory and older entries on disk (`fedkernel.ground.disk_list`).

    Round 0 is the clients' joining and the alignment of their rows: its bytes count, but `rounds` leaves it out. "Up"
    is from the clients to the coordinator. `letters`: from client to client. `rows_up`: rows of the clients' tables
    that their replies disclosed.
    """

    def __init__(self, entries: Iterable[Entry] = (), letters: Iterable[LetterEntry] = ()) -> None:
        self.entries: DiskList[Entry] = DiskList((), _values_of, lambda values: Entry(*values))
        self.letters: DiskList[LetterEntry] = DiskList((), _values_of, lambda values: LetterEntry(*values))
        self.floats_up = self.floats_down = self.bytes_up = self.bytes_down = self.rows_up = 0
        self._through, self._beyond = 0, set[int]()  # rounds 1 to `_through`, and later ones out of sequence
        self._edges: dict[tuple[int, int], Load] = {}
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

    __hash__ = None  # type: ignore[assignment] # mutable

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self.entries), list(self.letters))

    def add(self, entry: Entry) -> None:
        """Add the traffic of one request and reply."""
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

    def post(self, letter: LetterEntry) -> None:
        """Add the traffic of one letter between clients."""
        self.letters.append(letter)
        edge = letter.sender, letter.receiver
        self._edges[edge] = self._edges.get(edge, Load()) + Load(1, letter.floats, letter.bytes)

    def take(self, part: "Ledger") -> None:
        """Add all entries and letters of another ledger."""
        for entry in part.entries:
            self.add(entry)
        for letter in part.letters:
            self.post(letter)

    @property
    def rounds(self) -> int:
        """Number of the protocol's rounds, without joining (round 0)."""
        return self._through + len(self._beyond)

    @property
    def edges(self) -> dict[tuple[int, int], Load]:
        """Traffic of letters by (sender, receiver), so for both directions of each edge of the graph."""
        return dict(sorted(self._edges.items()))

    def floats_by_reader(self) -> dict[int, dict[int | None, int]]:
        """Return the floats that each client sent, by reader: a peer's number, or None for the coordinator."""
        sent: dict[int, dict[int | None, int]] = {client: {None: floats} for client, floats in self._sent.items()}
        for (sender, receiver), load in self._edges.items():
            floats = sent.setdefault(sender, {None: 0})
            floats[receiver] = load.floats
            floats[None] -= load.floats
        return sent

    @property
    def peer_to_peer(self) -> Load:
        """Traffic in a network without coordinator: each letter once, from its sender to its receiver."""
        return sum(self.edges.values(), Load())

    @property
    def star(self) -> Load:
        """Traffic through the coordinator: all requests and replies, letters included."""
        floats, size = self.floats_up + self.floats_down, self.bytes_up + self.bytes_down
        return Load(2 * len(self.entries), floats, size)

    def totals(self) -> dict[str, int]:
        """Return the total rounds, floats, bytes and disclosed rows by name."""
        return {"rounds": self.rounds, **{name: getattr(self, name) for name in SUMS}}

    def of_client(self, client: int) -> "Ledger":
        """Return the ledger of one client: its entries, and the letters that it wrote."""
        letters = (letter for letter in self.letters if letter.sender == client)
        return Ledger((entry for entry in self.entries if entry.client == client), letters)

    def of_round(self, number: int) -> "Ledger":
        """Return the ledger of one round: its entries and letters."""
        letters = (letter for letter in self.letters if letter.round == number)
        return Ledger((entry for entry in self.entries if entry.round == number), letters)

    def to_table(self) -> list[dict[str, Any]]:
        """Return one plain dictionary per entry and per letter, for JSON."""
        entries = [{name: value for name, value in vars(entry).items() if value != ""} for entry in self.entries]
        return [*entries, *map(vars, self.letters)]

    @classmethod
    def from_table(cls, table: Iterable[dict[str, Any]]) -> "Ledger":
        """Rebuild a ledger from `to_table`."""
        rows = list(table)
        letters = (LetterEntry(**row) for row in rows if "sender" in row)
        return cls((Entry(**row) for row in rows if "sender" not in row), letters)


def _values_of(row: Entry | LetterEntry) -> list[Any]:
    return list(vars(row).values())


@dataclass
class Account:
    """Account of a run: its ledger, a history with a row per round, and notes on lost clients.

    `alike`: all clients were sent the same requests so far; known in runs with masked sums.
    """

    ledger: Ledger = field(default_factory=Ledger)
    history: DiskList[dict[str, Any]] = field(default_factory=DiskList)
    losses: list[str] = field(default_factory=list)
    alike: bool = True

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
        """Add a finished round's costs and row. `seconds`: wall-clock time. `slowest_seconds`: the slowest client's."""
        self.ledger.take(costs)
        row: dict[str, Any] = {"round": number, "phase": phase, "seconds": seconds, "slowest_seconds": slowest_seconds}
        row["clients"] = len({entry.client for entry in costs.entries})
        totals = {name: total for name, total in costs.totals().items() if name != "rounds"}
        self.history.append(row | totals | ({"values": dict(values)} if values else {}))

    def note(self, values: Mapping[str, float]) -> None:
        """Add named figures of a protocol to the history's last row."""
        if values:
            row = self.history[-1]
            row["values"] = {**row.get("values", {}), **values}
