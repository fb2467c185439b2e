"""Mailbox of a client: sealing, opening and checking of its letters.

A letter written in one round is delivered in the next, or not at all; in one round a client writes at most one to each
peer. A client reads wherever letters are due, without a test for them: the coordinator could hide them, so
`Mailbox.read` has the list of expected senders.

Refused, with an error that names reader, sender, round and reason: a letter that was altered, or sealed in another run
or by other keys; one that is for another client or not from a peer; one that was read before; one that is out of order
or of another round; two from one peer; none from an expected peer; one from an unexpected peer; letters not read.

The coordinator forwards letters, and decides the graph, the rounds and the requests. See `fedkernel.peers.sealing`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedkernel.ground import LetterError, ProtocolError
from fedkernel.peers.agreed_keys import READ, WRITTEN, ClientMemory, SharedKeys
from fedkernel.peers.letters import CarriesLetters, Letter, LetterT, Sealed, letter_from_bytes, letter_to_bytes, pack
from fedkernel.peers.sealing import Header, seal, unseal
from fedkernel.protocol import Reply, Request


@dataclass
class Mailbox:
    """Mailbox of a client for one round: letters that the request delivers, and letters that leave with the reply.

    `where`: pair, round and client, for errors. `memory`: holds the `SharedKeys`; a request that fails leaves it
    unchanged. `check_consent`: called with a letter's description and its unchanged rows; raises if they may not leave.
    """

    where: str
    client: int
    run: str
    round_number: int
    memory: ClientMemory
    check_consent: Callable[[str, int], object]

    def __post_init__(self) -> None:
        self._written: dict[int, bytes] = {}
        self._last: tuple[Letter | None, bytes] = None, b""
        self._read = False
        self._contents: list[bytes] = []

    @property
    def letters_digest(self) -> bytes:
        """Hash of the contents of all letters read so far, empty if none was read. The site's gate uses it."""
        digest = b""
        for content in self._contents:
            sha256 = hashlib.sha256(digest)
            sha256.update(content)
            digest = sha256.digest()
        return digest

    @cached_property
    def _shared(self) -> SharedKeys:
        """Keys shared with the peers, as a copy. Its counts of letters are this round's, until `send` saves them."""
        shared = SharedKeys.load(self.memory)
        return replace(shared, counts=shared.counts.copy())

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """Peers with agreed keys before this round, in order."""
        return tuple(self._shared.peers.tolist()) if SharedKeys.known(self.memory) else ()

    def write(self, peer: int, letter: Letter) -> None:
        """Seal a letter to a peer; it leaves with the reply.

        Raises ProtocolError without keys for the peer, or on a second letter to it in this round; InputError if the
        letter shows rows that may not leave.
        """
        place = self._place(peer)
        if peer in self._written:
            raise self.error(f"a second letter to client {peer} in one round; allowed: one letter per round")
        self.check_consent(f"{self.where}: a letter to client {peer}", letter.disclosed)
        header = Header(self.client, peer, self.round_number, int(self._shared.counts[place, WRITTEN]))
        self._shared.counts[place, WRITTEN] += 1
        if letter is not self._last[0]:  # a letter to all neighbours is serialised once
            self._last = letter, letter_to_bytes(letter)
        key = self._shared.keys[place, WRITTEN].tobytes()
        self._written[peer] = seal(key, self.run, header, self._last[1])

    def write_to_all(self, letter: Letter) -> None:
        """Write the same letter to every neighbour."""
        for peer in self.neighbours:
            self.write(peer, letter)

    def send(self, ask: Request[Any], reply: Reply) -> Reply:
        """Return the reply with this round's letters added.

        Raises ProtocolError if it cannot carry letters, or if received ones were not read: the next ones would be taken
        for these.
        """
        if isinstance(ask, CarriesLetters) and ask.sealed and not self._read:
            raise self.error(f"letters came with {type(ask).__name__}, but were not read")
        if self._written and not isinstance(reply, CarriesLetters):
            raise self.error(f"letters were written, but a {type(reply).__name__} cannot carry any")
        if self._written or (self._read and self.neighbours):
            # Before anything leaves, so that no two sent letters have the same number.
            self._shared.save(self.memory)
        if not self._written:
            return reply
        return reply.model_copy(update={"letters": pack([self._written[peer] for peer in sorted(self._written)])})

    def read(
        self, ask: CarriesLetters, kind: type[LetterT], senders: Sequence[int] | None = None, **sizes: int
    ) -> list[tuple[int, LetterT]]:
        """Open the letters that a request delivers.

        `kind`: expected class of each. `senders`: peers that must have sent one, and no others; None: all neighbours.
        `**sizes`: expected sizes by dimension name, in addition to the request's (except those ending in ``_m``); no
        two letters may differ in one. Returns sender and letter, in the order of the senders. Raises ProtocolError on
        the first letter that is missing or refused; see this module's docstring.
        """
        self._read = True
        expected = self.neighbours if senders is None else tuple(sorted(senders))
        letter_of: dict[int, Sealed] = {}
        for sealed in ask.sealed:
            sender = sealed.header.sender
            if sender not in expected:
                raise self.refusal(sender, "no letter is expected from it")
            if sender in letter_of:
                raise self.refusal(sender, "a second one came with it")
            letter_of[sender] = sealed
        if missing := [peer for peer in expected if peer not in letter_of]:
            raise LetterError(f"{self.where}: the expected letter from client {missing[0]} is missing")
        if isinstance(ask, Request):
            sizes = ask.known_dimensions() | sizes
        letters = []
        for sender in expected:
            try:
                letter = self._open(letter_of[sender], kind)
                known = letter.dimensions(sizes)
            except (ProtocolError, ValueError) as error:
                raise self.refusal(sender, str(error)) from None
            sizes |= {name: size for name, size in known.items() if not name.endswith("_m")}
            letters.append((sender, letter))
            self._shared.counts[self._place(sender), READ] += 1
        return letters

    def error(self, text: str) -> ProtocolError:
        """Return an error whose text begins with pair, round and client."""
        return ProtocolError(f"{self.where}: {text}")

    def refusal(self, sender: int, reason: str) -> LetterError:
        """Return the error for a refused letter of a peer, with the reason."""
        return LetterError(f"{self.where}: the letter of client {sender} is refused: {reason}")

    def _open(self, sealed: Sealed, kind: type[LetterT]) -> LetterT:
        header, place = sealed.header, self._place(sealed.header.sender)
        due = int(self._shared.counts[place, READ])
        if header.receiver != self.client:
            raise ProtocolError(f"it is for client {header.receiver}")
        if header.sequence < due:
            raise ProtocolError(f"its letter {header.sequence}, of round {header.round}, was read before")
        if header.sequence > due:
            missing = "was dropped or held back" + ("" if due else ", or this site was restarted without its keys")
            raise ProtocolError(f"it is letter {header.sequence}, but letter {due} is due: that one {missing}")
        if header.round != self.round_number - 1:
            raise ProtocolError(f"it is of round {header.round}, but letters of round {self.round_number - 1} are due")
        content = unseal(self._shared.keys[place, READ].tobytes(), self.run, sealed.letter)
        self._contents.append(content)
        return letter_from_bytes(kind, content)

    def _place(self, peer: int) -> int:
        if peer not in self.neighbours:
            raise self.error(f"no keys were agreed on with client {peer}")
        return self.neighbours.index(peer)
