"""Sealed letters between clients, with the agreement on keys and the graph of neighbours."""

from typing import TYPE_CHECKING

from fedkernel.ground.lazy_imports import lazily

if TYPE_CHECKING:
    from .agreed_keys import PublishKeys, TakeKeys, agree_keys, check_pinned, key_agreement_forecast, keys_plan
    from .client_mailbox import Mailbox
    from .graph import Graph, Neighbours, Topology, central_node, distances, neighbours, spanning_tree
    from .letters import CarriesLetters, Letter, Letters, Mail, sealed_in, sort_mail
    from .peer_client import PeerClient
    from .run_key_file import RunKeyFile, remove_key_files
    from .sealing import KEY_BYTES, KeyPair, exchange, fingerprint, read_pins
else:
    __getattr__, __all__ = lazily(__name__)
