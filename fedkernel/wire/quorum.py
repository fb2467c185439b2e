"""Whether a run goes on without a client that fails or keeps silent: what a strategy declares, and what a run asks."""

import math
from dataclasses import dataclass
from typing import Annotated

import pydantic

from fedkernel.ground import InputError


def check_quorum(quorum: float | None) -> float | None:
    """Return it, or raise InputError unless it is None, a number of clients, or a fraction of them."""
    if quorum is None:
        return None
    if isinstance(quorum, bool) or not (0 < quorum <= 1 or (1 < quorum < math.inf and quorum == int(quorum))):
        allowed = "a fraction of the clients, above 0 and at most 1.0, or their number, from 1"
        raise InputError(f"quorum = {quorum}, but must be {allowed}")
    return quorum


Quorum = Annotated[pydantic.StrictInt | pydantic.StrictFloat, pydantic.AfterValidator(check_quorum)]
Seconds = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Deadlines = dict[str, Seconds]

REMAINING = "that of a run of the clients that remain"
HANDED_OUT = "of the tables of all; the lost client keeps nothing of it"
EVERYWHERE = "what the method makes of the replies that are left"


def needed(quorum: float, clients: int) -> int:
    """Return how many of so many clients a quorum asks for; 1.0 are all of them, and 1 is one."""
    if isinstance(quorum, int) or quorum > 1:
        return int(quorum)
    return math.ceil(round(quorum * clients, 9))  # 0.28 * 25 is 7.000000000000001


@dataclass(frozen=True)
class Losses:
    """In which rounds of a protocol a client may be lost.

    - `everywhere`: in every one, whose replies are not summed, whatever the answer then means; also without a quorum.
    - `first`: with a quorum in the first, before anything of any client was used: the answer is that of the others.
    - `handing_out`: with a quorum in these phases, which ask for nothing any more: the answer is there, and of all
      clients.
    - `quorum`: how many clients must remain, see `needed`.
    - `clients`: that began the run.
    """

    everywhere: bool = False
    first: bool = False
    handing_out: tuple[str, ...] = ()
    quorum: float | None = None
    clients: int = 0

    def meaning(self, number: int, phase: str, *, summed: bool) -> str:
        """Return what the answer means where a client is lost in a round; empty: the run cannot go on."""
        if self.quorum is not None and phase in self.handing_out:
            return HANDED_OUT
        if self.quorum is not None and self.first and number == 1 and not summed:
            return REMAINING
        return EVERYWHERE if self.everywhere and not summed else ""

    def fault(self, number: int, phase: str, left: int, *, summed: bool) -> str | None:
        """Return what a run needs that fails with so many clients left, for its error to end with; None: it goes on."""
        goes_on = self.meaning(number, phase, summed=summed)
        least = 1 if self.quorum is None else max(1, needed(self.quorum, self.clients))
        if goes_on and left >= least:
            return None
        if self.quorum is None:
            return "1 is needed" if goes_on else "all are needed"
        if not goes_on:
            return f"all are needed in this round, whatever quorum = {self.quorum:g} asks for"
        return f"quorum = {self.quorum:g} asks for {least}"
