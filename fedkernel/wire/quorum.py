"""Quorum rules: rounds with tolerated losses of clients, and clients that must remain."""

import math
from dataclasses import dataclass
from typing import Annotated

import pydantic

from fedkernel.ground import InputError


def check_quorum(quorum: float | None) -> float | None:
    """Return a quorum: None, a number of clients, or a fraction of them; InputError otherwise."""
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
    """Return the number of clients that a quorum requires; 1.0 means all, and 1 means one."""
    if isinstance(quorum, int) or quorum > 1:
        return int(quorum)
    return math.ceil(round(quorum * clients, 9))  # 0.28 * 25 is 7.000000000000001


@dataclass(frozen=True)
class Losses:
    """Rounds of a protocol with tolerated losses of clients, among `clients` at the start.

    - `everywhere`: all rounds without summed replies, also without a quorum; the meaning of the answer may change.
    - `first`: the first round, with a quorum, before any client's data were used: the answer is that of the others.
    - `handing_out`: these phases, with a quorum: the answer is complete, and nothing is asked any more.
    - `quorum`: how many clients must remain, see `needed`.
    """

    everywhere: bool = False
    first: bool = False
    handing_out: tuple[str, ...] = ()
    quorum: float | None = None
    clients: int = 0

    def meaning(self, number: int, phase: str, *, summed: bool) -> str:
        """Return the meaning of the answer after a loss in a round; empty: the run fails."""
        if self.quorum is not None and phase in self.handing_out:
            return HANDED_OUT
        if self.quorum is not None and self.first and number == 1 and not summed:
            return REMAINING
        return EVERYWHERE if self.everywhere and not summed else ""

    def fault(self, number: int, phase: str, left: int, *, summed: bool) -> str | None:
        """Return the end of the error text of a run with too few clients left; None: it continues."""
        goes_on = self.meaning(number, phase, summed=summed)
        least = 1 if self.quorum is None else max(1, needed(self.quorum, self.clients))
        if goes_on and left >= least:
            return None
        if self.quorum is None:
            return "1 is needed" if goes_on else "all are needed"
        if not goes_on:
            return f"all are needed in this round, whatever quorum = {self.quorum:g} asks for"
        return f"quorum = {self.quorum:g} asks for {least}"
