"""One run of a strategy over a grid: its clients, its settings, its account, and the protocols that it consists of."""

from dataclasses import dataclass
from typing import Literal, TypeVar

from flwr.serverapp import Grid

from fedkernel.protocol.rounds import Protocol, Run
from fedkernel.run.cohort import RunSettings
from fedkernel.run.conversation import Conversation
from fedkernel.run.exchange import send_and_receive
from fedkernel.run.ledger import Account
from fedkernel.threads import steps_within

T = TypeVar("T")


@dataclass(frozen=True)
class Execution:
    """A run under way, whose clients have joined.

    Attributes
    ----------
    name, pair : str
        Of the strategy, for errors, and of the client class that answers.
    partition : {"vertical", "horizontal"}
    go_on : bool
        Go on without clients that fail or keep silent.
    grid : flwr.serverapp.Grid
    settings : RunSettings
    run : Run
        What its protocols are given.
    account : Account
    """

    name: str
    pair: str
    partition: Literal["vertical", "horizontal"]
    go_on: bool
    grid: Grid
    settings: RunSettings
    run: Run
    account: Account

    def converse(self, protocol: Protocol[T]) -> Conversation[T]:
        """Return a protocol under way, whose every step has the threads of the settings."""
        return Conversation(
            steps_within(self.settings.threads, protocol),
            name=self.name,
            pair=self.pair,
            cohort=self.run.members,
            settings=self.settings,
            account=self.account,
            partition=self.partition,
            go_on=self.go_on,
        )

    def finish(self, protocol: Protocol[T]) -> T:
        """Carry a protocol out, round by round, and return its result."""
        conversation = self.converse(protocol)
        while not conversation.done:
            messages = conversation.messages()
            conversation.receive(send_and_receive(self.grid, messages, self.settings.deadline))
        return conversation.value
