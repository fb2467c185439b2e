"""Honest runs: the method's own coordinator asks the target and simulated sites, and its replies are read."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attacks.target import Refused, Target
from fedkernel import KernelClient, KernelStrategy, Member, Run


def rounds_of(
    target: Target, strategy: KernelStrategy[Any], others: Sequence[Any] = ()
) -> Iterator[tuple[Any, list[Any]]]:
    """Carry a strategy out over the target, its client 0, and sites with other tables.

    Yields each round's request to the target, and all replies, the target's first. Ends with the protocol, or where the
    target refuses; Refused where that is the first request.
    """
    tables = [target.X, *others]
    run = Run(tuple(Member(number, number, *table.shape) for number, table in enumerate(tables)), target.seed)
    sites = [strategy.client(X, client=number, seed=run.seed) for number, X in enumerate(tables)]
    protocol = strategy.protocol(run)
    rounds = [next(protocol)]
    for first in answers_to(target, (round_.of_client(0) for round_ in rounds)):
        round_ = rounds[-1]
        replies = [first, *(_answer(site, round_.of_client(site.client)) for site in sites[1:])]
        yield round_.of_client(0), replies
        try:
            rounds.append(protocol.send(round_.reply_type.sum_of(replies) if round_.summed else replies))
        except StopIteration:
            return


def _answer(site: KernelClient, request: Any) -> Any:
    return getattr(site, site.handlers[type(request).__name__][1])(request)


def answers_to(target: Target, requests: Iterable[Any]) -> Iterator[Any]:
    """Yield the replies to requests, up to the first that is refused; Refused where that is the first of all."""
    for number, request in enumerate(requests):
        try:
            reply = target.ask(request)
        except Refused:
            if number == 0:
                raise
            return
        yield reply
