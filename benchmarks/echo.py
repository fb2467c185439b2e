"""A toy pair in which nothing is computed: what its rounds take is what the engine does."""

from typing import Annotated

import numpy as np

from fedkernel.ground import FloatArray
from fedkernel.protocol import KernelClient, Protocol, Reply, Request, Run, Shape, to_all
from fedkernel.strategy import KernelStrategy

FLOATS = 128
"""1 KB."""


class Echoed(Reply):
    """The request's array: n floats. Reveals nothing of the site."""

    values: Annotated[FloatArray, Shape("n")]


class Echo(Request[Echoed]):
    """Asks for the array back."""

    values: Annotated[FloatArray, Shape("n")]


class EchoClient(KernelClient):
    """Sends back what it gets."""

    answers = (Echo,)

    def echo(self, ask: Echo) -> Echoed:
        """Return the array."""
        return Echoed(values=ask.values)


class EchoStrategy(KernelStrategy[int]):
    """As many rounds as asked, each with an array of so many floats down to every client and up again."""

    client = EchoClient
    partition = "vertical"

    def __init__(self, rounds: int, floats: int = FLOATS) -> None:
        self.rounds, self.values = rounds, np.zeros(floats)

    def protocol(self, run: Run) -> Protocol[int]:
        """Echo."""
        for _ in range(self.rounds):
            yield from to_all(Echo(values=self.values))
        return self.rounds
