"""Rules on lost clients: rounds that tolerate a loss, and the number of clients that must remain."""

import math
from dataclasses import dataclass
from typing import Annotated

import pydantic

from fedkernel.ground import InputError


def check_quorum(quorum: float | None) -> float | None:
    """Return a valid quorum: None, a number of clients, or a fraction of them. Raises InputError for others."""
    if quorum is None:
        return None
    if isinstance(quorum, bool) or not (0 < quorum <= 1 or (1 < quorum < math.inf and quorum == int(quorum))):
        allowed = "a fraction of the clients, above 0 and at most 1.0, or their number, from 1"
        raise InputError(f"quorum = {quorum}, but must be {allowed}")
    return quorum


Quorum = Annotated[pydantic.StrictInt | pydantic.StrictFloat, pydantic.AfterValidator(check_quorum)]
Seconds = Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)]
Deadlines = dict[str, Seconds]

OF_REMAINING_CLIENTS = "that of a run of the clients that remain"
OF_ALL_TABLES = "of the tables of all; the lost client keeps nothing of it"
OF_PRESENT_REPLIES = "what the method makes of the replies that are left"


def needed(quorum: float, clients: int) -> int:
    """Return the number of clients that a quorum requires: 1.0 means all, the integer 1 means one."""
    if isinstance(quorum, int) or quorum > 1:
        return int(quorum)
    return math.ceil(round(quorum * clients, 9))  # 0.28 * 25 is 7.000000000000001


@dataclass(frozen=True)
class Losses:
    """Rules of a protocol on lost clients.

    - `any_round`: a loss is tolerated in all rounds without summed replies, even without a quorum.
    - `first_round`: with a quorum, in the first round, before any client's data were used: the result is the others'.
    - `distribution_phases`: with a quorum, in these phases, which only distribute the finished result.
    - `quorum`: number or fraction of the `clients` at the start that must remain, see `needed`.
    """

    any_round: bool = False
    first_round: bool = False
    distribution_phases: tuple[str, ...] = ()
    quorum: float | None = None
    clients: int = 0

    def meaning(self, number: int, phase: str, *, summed: bool) -> str:
        """Return the meaning of a result after a client is lost, or an empty text if the run fails."""
        if self.quorum is not None and phase in self.distribution_phases:
            return OF_ALL_TABLES
        if self.quorum is not None and self.first_round and number == 1 and not summed:
            return OF_REMAINING_CLIENTS
        return OF_PRESENT_REPLIES if self.any_round and not summed else ""

    def fault(self, number: int, phase: str, left: int, *, summed: bool) -> str | None:
        """Return the reason why a run with `left` clients must fail, for its error text, or None if it continues."""
        goes_on = self.meaning(number, phase, summed=summed)
        least = 1 if self.quorum is None else max(1, needed(self.quorum, self.clients))
        if goes_on and left >= least:
            return None
        if self.quorum is None:
            return "1 is needed" if goes_on else "all are needed"
        if not goes_on:
            return f"all are needed in this round, whatever quorum = {self.quorum:g} asks for"
        return f"quorum = {self.quorum:g} asks for {least}"
