"""Sites without a grid: protocols driven over client objects, whose memory a test can look into."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from fedkernel.protocol import KernelClient, Protocol, Request, Round, decode, encode
from fedkernel.site import Site
from fedkernel.site.client_app import client_app


def app_over(client, tables, keep=lambda number: lambda outputs: None, **own):
    """Return the app of a client, of which each site has one of the tables, and keeps outputs as is said for it."""

    def find_site(context, config):
        number = int(context.node_config["partition-id"])
        return Site(number, tables[number], None, keep(number), **own)

    return client_app({client.__name__: client}, find_site)


def as_csr(shards):
    return [sparse.csr_array(shard) for shard in shards]


def ask(site: KernelClient, request: Request[Any], **config: Any) -> Any:
    """Send a request over the wire's form, and return the reply."""
    arrays, scalars = encode(request)
    replied, _, answered = site.fit(arrays, {**scalars, **config})
    return decode(request.reply_type, replied, answered)


def pooled(result: Any, name: str = "embedding") -> Any:
    """Return an output of all sites, one below the other."""
    return np.concatenate([result.outputs[client][name] for client in sorted(result.outputs)])


def drive(protocol: Protocol[Any], sites: Sequence[KernelClient]) -> Any:
    def answers(pending: Round) -> Any:
        requests = {site: request for site in sites if (request := pending.of_client(site.client)) is not None}
        replies = [ask(site, request) for site, request in requests.items()]
        return type(replies[0]).sum_of(replies) if pending.summed else replies

    try:
        pending = next(protocol)
        while True:
            pending = protocol.send(answers(pending))
    except StopIteration as stop:
        return stop.value
