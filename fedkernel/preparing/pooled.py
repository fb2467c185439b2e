"""Tables that are all in one place, prepared as the sites of a run prepare theirs: bit for bit."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedkernel.data import Prepare
from fedkernel.ground import Divided, FloatArray
from fedkernel.preparing.client import PrepareClient
from fedkernel.preparing.protocol import prepare_tables
from fedkernel.preparing.table import TableToPrepare
from fedkernel.protocol import Member, Protocol, Run


def prepared_here(tables: Sequence[TableToPrepare], prepare: Prepare, partition: Divided) -> list[FloatArray]:
    """Return what the clients of a run would work with, each of shape (n_m, columns).

    Of differences between sites nothing is said: the run itself says it.

    Raises InputError: as of `prepare_tables`.
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
    """Let clients answer a protocol's rounds, all of which ask everybody the same."""
    try:
        round_ = next(protocol)
        while True:
            request: Any = round_.requests
            method = PrepareClient.handlers[round_.phase][1]
            replies = [getattr(client, method)(request) for client in clients]
            round_ = protocol.send(round_.reply_type.sum_of(replies) if round_.summed else replies)  # type: ignore[attr-defined]
    except StopIteration:
        return
