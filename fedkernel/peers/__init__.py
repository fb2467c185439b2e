"""Clients that write to each other: sealed letters, their keys, and who talks to whom."""

from fedkernel.peers.graph import Graph, Topology, neighbours, spanning_tree
from fedkernel.peers.letters import CarriesLetters, Letter, Letters, Mail, sort_mail
from fedkernel.peers.mailbox import PeerClient, PublishKeys, TakeKeys, agree_keys, key_agreement

__all__ = [
    "CarriesLetters",
    "Graph",
    "Letter",
    "Letters",
    "Mail",
    "PeerClient",
    "PublishKeys",
    "TakeKeys",
    "Topology",
    "agree_keys",
    "key_agreement",
    "neighbours",
    "sort_mail",
    "spanning_tree",
]
