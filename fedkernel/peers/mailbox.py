"""Clients that write to each other: the agreement on keys, and a mailbox that seals, opens and checks letters.

A pair whose clients are peers derives its client from `PeerClient` and runs `agree_keys` first. While answering, the
client uses ``self.mail``::

    for peer, estimate in self.mail.read(ask, Estimate):  # one from each neighbour, or a ProtocolError
        ...
    for peer in self.mail.neighbours:
        self.mail.write(peer, Estimate(values=...))  # leaves with the reply

A letter that is written in one round is delivered in the next, or not at all; in one round a client writes at most one
to each peer. A client reads wherever letters are due and does not look whether there are any: that is the coordinator's
to say, while `Mailbox.read` knows from whom they must come.

What is refused, the error saying who refused whose letter, in which round and why: a letter that was altered, sealed in
another run or by other keys; one that is for another client or not from a peer; one that was read before; one that
comes out of its order or its round; two from one peer; none from a peer that one is expected from; one from a peer that
none is expected from; letters that nobody reads.

The coordinator forwards, and decides the graph, the rounds and what is asked in them. What it can see and what it
cannot, `fedkernel.peers.sealing` says.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedkernel.data import TableLike
from fedkernel.errors import ProtocolError
from fedkernel.peers.graph import Neighbours
from fedkernel.peers.letters import (
    Bytes,
    CarriesLetters,
    Letter,
    LetterT,
    Sealed,
    letter_from_bytes,
    letter_to_bytes,
    pack,
    sealed_in,
)
from fedkernel.peers.sealing import KEY, Header, KeyPair, Published, check_pins, fingerprint, letter_keys, seal, unseal
from fedkernel.protocol.client import Answers, KernelClient
from fedkernel.protocol.forecast import Forecast
from fedkernel.protocol.messages import Done, Reply, Request, Scalar, Shape
from fedkernel.protocol.rounds import Protocol, to_each

Numbers = npt.NDArray[np.int64]


class PublicKeys(Reply):
    """The site's public keys, which reveal nothing but who it is, if it keeps its identity from run to run.

    Attributes
    ----------
    identity, ephemeral : ndarray of shape (32,)
        X25519: the site's own, and one made for this run.
    """

    identity: Annotated[Bytes, Shape("key", dtype="uint8")]
    ephemeral: Annotated[Bytes, Shape("key", dtype="uint8")]


class PublishKeys(Request[PublicKeys]):
    """Asks for the site's public keys, and to forget what was agreed on before."""

    def known_dimensions(self) -> dict[str, int]:
        """Settle the length of a key."""
        return super().known_dimensions() | {"key": KEY}


class TakeKeys(Request[Done]):
    """Hands the keys of the site's neighbours over, from which it makes those that the two share.

    Attributes
    ----------
    peers : ndarray of shape (p,)
        The neighbours' numbers.
    identities, ephemerals : ndarray of shape (p, 32)
    """

    peers: Annotated[Numbers, Shape("p_m", dtype="int64", empty=True)]
    identities: Annotated[Bytes, Shape("p_m", "key", dtype="uint8", empty=True)]
    ephemerals: Annotated[Bytes, Shape("p_m", "key", dtype="uint8", empty=True)]


def agree_keys(neighbours: Neighbours) -> Protocol[list[str]]:
    """Let every two neighbours agree on keys for their letters: two rounds, none where nobody has a neighbour.

    Returns
    -------
    list of str
        The fingerprints of the clients' identities, in their order, as the coordinator was told them.
    """
    if not any(neighbours):
        return []
    published = yield from to_each({client: PublishKeys() for client in range(len(neighbours))})
    identities = np.array([keys.identity for keys in published])
    ephemerals = np.array([keys.ephemeral for keys in published])
    handed = {}
    for client, others in enumerate(neighbours):
        peers = np.array(others, dtype=np.int64)
        handed[client] = TakeKeys(peers=peers, identities=identities[peers], ephemerals=ephemerals[peers])
    yield from to_each(handed)
    return [fingerprint(identity.tobytes()) for identity in identities]


def key_agreement(neighbours: Neighbours) -> Forecast:
    """Return what `agree_keys` takes; keys are no floats."""
    return Forecast(2 if any(neighbours) else 0)


class Mailbox:
    """A client's letters in one round: those that came, and those that are to leave with the reply.

    Parameters
    ----------
    where : str
        Pair, round and client, for errors.
    client, round_number : int
    run : str
    memory : mutable mapping of str to ndarray
        Holds keys and counts from round to round, under names that begin with ``mail.``: the keys of this run, those
        shared with each peer, and how many letters were written to it and read from it. A request that fails leaves
        it as it was.
    check_consent : callable
        Told what a letter is and how many rows it shows as they are; raises where these may not leave.
    """

    def __init__(
        self,
        where: str,
        *,
        client: int,
        run: str,
        round_number: int,
        memory: MutableMapping[str, npt.NDArray[Any]],
        check_consent: Callable[[str, int], object] = lambda what, rows: None,
    ) -> None:
        self._where = where
        self._client = client
        self._run = run
        self._round = round_number
        self._memory = memory
        self._check_consent = check_consent
        self._written: dict[int, bytes] = {}
        self._read = False
        self._recall()

    def _recall(self) -> None:
        """Take from the memory what was agreed on, if anything."""
        self._places: dict[int, int] = {}
        if "mail.peers" in self._memory:
            self._places = {peer: place for place, peer in enumerate(self._memory["mail.peers"].tolist())}
            self._keys, self._counts = self._memory["mail.keys"], self._memory["mail.counts"].copy()

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The peers that keys were agreed on with, in order."""
        return tuple(self._places)

    def publish(self, identity: KeyPair | None) -> PublicKeys:
        """Make a key pair for this run, and one more if the site has no identity; forget what was agreed on."""
        for name in [name for name in self._memory if name.startswith("mail.")]:
            del self._memory[name]
        self._recall()
        ephemeral = KeyPair.new()
        self._memory["mail.ephemeral"] = _numbers(ephemeral.private)
        if identity is None:
            identity = KeyPair.new()
            self._memory["mail.identity"] = _numbers(identity.private)
        return PublicKeys(identity=_numbers(identity.public), ephemeral=_numbers(ephemeral.public))

    def agree(self, ask: TakeKeys, identity: KeyPair | None, pins: Mapping[int, str]) -> None:
        """Make the keys shared with each peer, unless one is not who the site knows it to be."""
        if "mail.ephemeral" not in self._memory:
            # Keys are made once: with the same ones again, letters would be numbered and sealed alike again.
            raise self._error("keys of peers came, but its own were not asked for before")
        order = np.argsort(ask.peers)
        peers: list[int] = ask.peers[order].tolist()
        if len(set(peers)) < len(peers) or not all(0 <= peer < 2**32 and peer != self._client for peer in peers):
            raise self._error(f"the peers {peers} are not numbers of other clients, each of them once")
        ephemeral = KeyPair(self._memory["mail.ephemeral"].tobytes())
        own = identity or KeyPair(self._memory["mail.identity"].tobytes())
        keys = np.zeros((len(peers), 2, KEY), np.uint8)
        for place, (peer, row) in enumerate(zip(peers, order, strict=True)):
            shown = Published(peer, ask.identities[row].tobytes(), ask.ephemerals[row].tobytes())
            self._check_pin(shown, pins)
            try:
                keys[place] = [_numbers(key) for key in letter_keys(self._run, self._client, own, ephemeral, shown)]
            except ProtocolError as error:
                raise self._error(str(error)) from None
        del self._memory["mail.ephemeral"]  # without it, nobody opens the letters of this run later on
        self._memory["mail.peers"] = np.array(peers, dtype=np.int64)
        self._memory["mail.keys"] = keys
        self._memory["mail.counts"] = np.zeros((len(peers), 2), np.int64)
        self._recall()

    def _check_pin(self, shown: Published, pins: Mapping[int, str]) -> None:
        if not pins:
            return
        if shown.client not in pins:
            raise self._error(f"client {shown.client} is not among the peers that this site has pinned")
        if (came := fingerprint(shown.identity)) != pins[shown.client]:
            pinned = pins[shown.client]
            raise self._error(f"the key of client {shown.client} has fingerprint {came}, but {pinned} is pinned")

    def write(self, peer: int, letter: Letter) -> None:
        """Seal a letter to a peer; it leaves with the reply.

        Raises
        ------
        ProtocolError
            If no keys were agreed on with the peer, or if a letter to it was written already in this round.
        InputError
            If the letter shows rows that may not leave.
        """
        place = self._place(peer)
        if peer in self._written:
            raise self._error(f"a second letter to client {peer} in one round; put all into one")
        self._check_consent(f"{self._where}: a letter to client {peer}", letter.disclosed)
        header = Header(self._client, peer, self._round, int(self._counts[place, WRITTEN]))
        self._counts[place, WRITTEN] += 1
        key = self._keys[place, WRITTEN].tobytes()
        self._written[peer] = seal(key, self._run, header, letter_to_bytes(letter))

    def write_to_all(self, letter: Letter) -> None:
        """Write the same letter to every neighbour."""
        for peer in self.neighbours:
            self.write(peer, letter)

    def send(self, ask: Request[Any], reply: Reply) -> Reply:
        """Return the reply with what was written in this round.

        Raises
        ------
        ProtocolError
            If it cannot carry letters, or if some came and were not read: the next ones would be taken for others.
        """
        if sealed_in(ask) and not self._read:
            raise self._error(f"letters came with {type(ask).__name__}, but were not read")
        if self._written and not isinstance(reply, CarriesLetters):
            raise self._error(f"letters were written, but a {type(reply).__name__} carries none")
        if self._written or (self._read and self._places):
            # Before anything leaves: no two letters that do are sealed with the same number.
            self._memory["mail.counts"] = self._counts
        if not self._written:
            return reply
        return reply.model_copy(update={"letters": pack([self._written[peer] for peer in sorted(self._written)])})

    def read(
        self,
        ask: CarriesLetters,
        kind: type[LetterT],
        senders: Sequence[int] | None = None,
        **sizes: int,
    ) -> list[tuple[int, LetterT]]:
        """Open the letters that a request delivers.

        Parameters
        ----------
        ask : CarriesLetters
        kind : type
            The letter that each must be.
        senders : sequence of int, optional
            The peers that a letter must have come from; None: all neighbours. No letter may come from others.
        **sizes : int
            What the dimensions of these names must be. Those of the request that do not end in ``_m`` are settled
            besides, and no two letters may differ in one.

        Returns
        -------
        list of (int, Letter)
            Sender and letter, in the order of the senders.

        Raises
        ------
        ProtocolError
            On the first letter that is missing or is not what was sent; see this module's docstring.
        """
        self._read = True
        expected = self.neighbours if senders is None else tuple(sorted(senders))
        came: dict[int, Sealed] = {}
        for sealed in ask.sealed:
            sender = sealed.header.sender
            if sender not in expected:
                raise self._refuse(sender, "none is expected from it")
            if sender in came:
                raise self._refuse(sender, "another came with it")
            came[sender] = sealed
        if missing := [peer for peer in expected if peer not in came]:
            raise self._error(f"no letter came from client {missing[0]}, from which one is expected")
        if isinstance(ask, Request):
            sizes = ask.known_dimensions() | sizes
        letters = []
        for sender in expected:
            try:
                letter = self._open(came[sender], kind)
                known = letter.dimensions(sizes)
            except (ProtocolError, ValueError) as error:
                raise self._refuse(sender, str(error)) from None
            sizes |= {name: size for name, size in known.items() if not name.endswith("_m")}
            letters.append((sender, letter))
            self._counts[self._place(sender), READ] += 1
        return letters

    def _open(self, sealed: Sealed, kind: type[LetterT]) -> LetterT:
        header, place = sealed.header, self._place(sealed.header.sender)
        due = int(self._counts[place, READ])
        if header.receiver != self._client:
            raise ProtocolError(f"it is for client {header.receiver}")
        if header.sequence < due:
            raise ProtocolError(f"its letter {header.sequence}, of round {header.round}, was read before")
        if header.sequence > due:
            raise ProtocolError(f"it is letter {header.sequence}, but letter {due} is due and was dropped or held back")
        if header.round != self._round - 1:
            raise ProtocolError(
                f"it was written in round {header.round}, but letters of round {self._round - 1} are due"
            )
        key = self._keys[place, READ].tobytes()
        return letter_from_bytes(kind, unseal(key, self._run, sealed.letter))

    def _place(self, peer: int) -> int:
        if peer not in self._places:
            raise self._error(f"no keys were agreed on with client {peer}")
        return self._places[peer]

    def _refuse(self, sender: int, why: str) -> ProtocolError:
        return self._error(f"the letter of client {sender} is refused: {why}")

    def _error(self, what: str) -> ProtocolError:
        return ProtocolError(f"{self._where}: {what}")


WRITTEN, READ = 0, 1
"""Columns of the keys and the counts in a mailbox's memory."""


def _numbers(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


class PeerClient(KernelClient):
    """Base of clients that write to each other; answers also the two requests by which they agree on keys.

    Parameters
    ----------
    X, **others
        As for `KernelClient`.
    identity : KeyPair, optional
        What the site is known by to its peers; None: one is made for the run.
    pins : mapping of int to str, optional
        Fingerprints of peers by client; if there are any, no letters are exchanged with other peers or other keys.

    Attributes
    ----------
    mail : Mailbox
        The letters of the round under way; a reply that is to post some inherits `CarriesLetters`.
    """

    answers: ClassVar[Answers] = (PublishKeys, TakeKeys)

    mail: Mailbox

    def __init__(
        self, X: TableLike, *, identity: KeyPair | None = None, pins: Mapping[int, str] | None = None, **others: Any
    ) -> None:
        super().__init__(X, **others)
        self.identity = identity
        self.pins = check_pins(pins or {})

    def publish_keys(self, ask: PublishKeys) -> PublicKeys:
        """Show the site's identity and a key for this run."""
        return self.mail.publish(self.identity)

    def take_keys(self, ask: TakeKeys) -> Done:
        """Agree on keys with the neighbours, if they are those that the site has pinned."""
        self.mail.agree(ask, self.identity, self.pins)
        return Done()

    def _respond(
        self, answer: Callable[[Request[Any]], Reply], request: Request[Any], config: Mapping[str, Scalar]
    ) -> Reply:
        where = f"{type(self).__name__}, round {config.get('round', '?')!s}, client {self.client}"
        if not isinstance(number := config.get("round"), int):
            raise ProtocolError(f"{where}: the round must be told, since letters are bound to it")
        run = str(config.get("run", ""))
        consent = self._check_consent
        self.mail = Mailbox(
            where, client=self.client, run=run, round_number=number, memory=self.memory, check_consent=consent
        )
        return self.mail.send(request, super()._respond(answer, request, config))
