"""Preparation of all clients' raw tables in one process, bit-identical to that of a federated run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedkernel.data import Prepare
from fedkernel.ground import Division, FloatArray
from fedkernel.preparing.client import PrepareClient
from fedkernel.preparing.preparation_rounds import prepare_tables
from fedkernel.preparing.raw_table import TableToPrepare
from fedkernel.protocol import Member, Protocol, Run


def prepare_centrally(tables: Sequence[TableToPrepare], prepare: Prepare, partition: Division) -> list[FloatArray]:
    """Prepare all clients' raw tables; return arrays of shape (n_m, columns).

    Differences between sites are not reported: the run itself reports them. Raises InputError like `prepare_tables`.
    """
    silent = replace(prepare, drift="ignore")
    clients = [PrepareClient(table.raw, client=number, prepare=silent) for number, table in enumerate(tables)]
    members = [
        Member(number, number, *table.shape, names=table.raw.names, ids=table.raw.ids is not None)
        for number, table in enumerate(tables)
    ]
    _carry_out(prepare_tables(Run(tuple(members)), silent, partition), clients)
    return [client.preparation.apply(client.X)[0] for client in clients if client.preparation is not None]


def _carry_out(protocol: Protocol[Any], clients: Sequence[PrepareClient]) -> None:
    """Run a protocol to its end with clients in this process; each round has one request for all."""
    try:
        round_ = next(protocol)
        while True:
            request: Any = round_.requests
            method = PrepareClient.handlers[round_.phase][1]
            replies = [getattr(client, method)(request) for client in clients]
            round_ = protocol.send(round_.reply_type.sum_of(replies) if round_.summed else replies)  # type: ignore[attr-defined]
    except StopIteration:
        return
