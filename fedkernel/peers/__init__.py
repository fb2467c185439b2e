"""Clients that write to each other: sealed letters, their keys, and who talks to whom."""

from fedkernel.peers.client import PeerClient
from fedkernel.peers.graph import Graph, Neighbours, Topology, distances, gossip_rate, neighbours, spanning_tree
from fedkernel.peers.keys import PublishKeys, TakeKeys, agree_keys, key_agreement, keys_plan
from fedkernel.peers.letters import CarriesLetters, Letter, Letters, Mail, sort_mail

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
    "distances",
    "gossip_rate",
    "key_agreement",
    "keys_plan",
    "neighbours",
    "sort_mail",
    "spanning_tree",
]
