"""Clients that write to each other: sealed letters, their keys, and who talks to whom."""

from typing import TYPE_CHECKING

from fedkernel.lazily import lazily

if TYPE_CHECKING:
    from fedkernel.peers.client import PeerClient
    from fedkernel.peers.graph import Graph, Neighbours, Topology, centre, distances, neighbours, spanning_tree
    from fedkernel.peers.keys import PublishKeys, TakeKeys, agree_keys, key_agreement, keys_plan
    from fedkernel.peers.letters import CarriesLetters, Letter, Letters, Mail, sort_mail
else:
    __getattr__ = lazily(__name__)

__all__ = [
    "CarriesLetters",
    "Graph",
    "Letter",
    "Letters",
    "Mail",
    "Neighbours",
    "PeerClient",
    "PublishKeys",
    "TakeKeys",
    "Topology",
    "agree_keys",
    "centre",
    "distances",
    "key_agreement",
    "keys_plan",
    "neighbours",
    "sort_mail",
    "spanning_tree",
]
