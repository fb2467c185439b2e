"""Base class of clients that exchange encrypted letters with neighbouring clients through the coordinator.

A pair whose clients are peers derives its client from `PeerClient` and runs `agree_keys` first. While answering, the
client uses ``self.mail``::

    for peer, estimate in self.mail.read(ask, Estimate):  # one from each neighbour, or a ProtocolError
        ...
    for peer in self.mail.neighbours:
        self.mail.write(peer, Estimate(values=...))  # leaves with the reply

`fedkernel.peers.client_mailbox` lists the letters that are refused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from fedkernel.data import TableLike
from fedkernel.ground import ProtocolError
from fedkernel.peers.agreed_keys import PublicKeys, PublishKeys, TakeKeys, check_pinned, make_keys, make_shared_keys
from fedkernel.peers.client_mailbox import Mailbox
from fedkernel.peers.run_key_file import RunKeyFile
from fedkernel.peers.sealing import KeyPair, check_pins
from fedkernel.protocol import Answers, Done, KernelClient, Reply, Request, Scalar


class PeerClient(KernelClient):
    """Base class of clients that write letters to each other; also answers the requests of the key agreement.

    - `identity`: the site's long-term key pair; None: one is made for the run.
    - `pins`: fingerprints of peers by client; if there are any, no letters are exchanged with others.
    - `names`: the sites', in the order of the clients' numbers, for errors; empty: they have none.
    - `key_file`: file of the run's keys for a restarted process; None: no file.
    - `mail`: letters of the pending round; a reply with letters inherits `CarriesLetters`.
    """

    answers: ClassVar[Answers] = (PublishKeys, TakeKeys)

    mail: Mailbox

    def __init__(
        self,
        X: TableLike,
        *,
        identity: KeyPair | None = None,
        pins: Mapping[int, str] | None = None,
        names: Sequence[str] = (),
        key_file: RunKeyFile | None = None,
        **others: Any,
    ) -> None:
        super().__init__(X, **others)
        self.identity = identity
        self.pins = check_pins(pins or {})
        self.names, self.key_file = names, key_file

    def publish_keys(self, ask: PublishKeys) -> PublicKeys:
        """Return the site's public identity and a public key for this run."""
        return make_keys(self.memory, self.identity, self.key_file)

    def take_keys(self, ask: TakeKeys) -> Done:
        """Compute the keys shared with the neighbours, after a check of their pins."""
        try:
            identities = map(bytes, ask.identities)
            check_pinned(dict(zip(ask.peers.tolist(), identities, strict=True)), self.pins, self.names)
            make_shared_keys(ask, self.memory, run=self.mail.run, client=self.client, identity=self.identity)
        except ProtocolError as error:
            raise self.mail.error(str(error)) from None
        return Done()

    def _respond(
        self, answer: Callable[[Request[Any]], Reply], request: Request[Any], config: Mapping[str, Scalar]
    ) -> Reply:
        where = self._where(config)
        if not isinstance(number := config.get("round"), int):
            raise ProtocolError(f"{where}: round is required, since letters are bound to it")
        run = str(config.get("run", ""))
        self.mail = Mailbox(where, self.client, run, number, self.memory, self._check_consent)
        return self.mail.send(request, super()._respond(answer, request, config))
