"""Adapter of a strategy to Flower's Strategy interface: `start`, and Flower's own training loop."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy

from fedkernel.run import Execution, RunningProtocol, RunSettings
from fedkernel.strategy.method import Method
from fedkernel.strategy.phases import begin, measure, record_measures

log = logging.getLogger(__name__)

M = TypeVar("M")


class FlowerStrategy(Method[M], Strategy, Generic[M]):
    """Base class of strategies with Flower's Strategy interface.

    `start` and Flower's own loop run as many rounds as the protocol takes; in the loop, `configure_train` sends the
    protocol's pending round, and `aggregate_train` passes on the replies. Flower's train configuration has the settings
    of a run: ``run``, ``seed``, ``clients``, ``deadline``, ``missing`` and ``threads``, for each step of the protocol.
    """

    def summary(self) -> None:
        """Log the strategy with its hyper-parameters, client class and partition."""
        log.info("%r with %s on a %s partition", self, self.client.__name__, self.partition)

    def start(  # noqa: PLR0917 - Flower's signature
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> FlowerResult:
        """Run the strategy's protocol to its end, with the arguments and result of Flower's strategies.

        - `initial_arrays`, `num_rounds`: ignored, since the protocol has its own start and number of rounds.
        - `timeout`: longest time of a round, in seconds.
        - `train_config`: ``run``, ``seed``, ``clients``, ``missing``, ``threads`` and, as JSON, ``prepare``.
        - `evaluate_config`: if given, the clients measure the finished model in one more round (see `evaluation`).
        - `evaluate_fn`: called once, with the number of rounds and the finished model's arrays.
        """
        self.summary()
        outcome = FlowerResult()
        settings = RunSettings.from_config({**(train_config or {}), "deadline": float(timeout)})
        execution, settled = begin(self, grid, settings, evaluate=evaluate_config is not None)
        model = execution.finish(settled.protocol(execution.run))
        number, outcome.arrays = execution.account.ledger.rounds, _arrays_of(model)
        rounds = [row for row in execution.account.history if row["round"]]
        outcome.train_metrics_clientapp = {row["round"]: _costs_of(row) for row in rounds}
        if evaluate_config is not None and (measured := measure(settled, execution, model)):
            outcome.evaluate_metrics_clientapp[number] = MetricRecord(dict(measured))
        if evaluate_fn is not None and (judged := evaluate_fn(number, outcome.arrays)) is not None:
            outcome.evaluate_metrics_serverapp[number] = judged
        return outcome

    # Called by Flower's own loop, round by round. Between its calls `_rounds` holds the run in progress: a strategy's
    # only state, and only for that loop.

    _rounds: "_Rounds[M]"

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the protocol's pending round, or none after the last. Round 1 begins a new run."""
        if server_round == 1:
            execution, settled = begin(self, grid, RunSettings.from_config(config))
            training = execution.start_protocol(settled.protocol(execution.run))
            object.__setattr__(self, "_rounds", _Rounds(execution, training, settled))  # strategies are frozen
        training = self._rounds.training
        return [] if training.done else training.messages()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pass replies to the protocol. Return the finished model's arrays and round's costs, or None after the end."""
        training = self._rounds.training
        if training.done:
            return None, None
        finished = training.receive(replies)
        costs = _costs_of(self._rounds.execution.account.history[-1])
        return _arrays_of(training.value) if finished else None, costs

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the evaluation's pending round; none if the method has no evaluation."""
        rounds = self._rounds
        if rounds.training.done and rounds.evaluating is None:
            measuring = rounds.settled.evaluation(rounds.execution.run, rounds.training.value)
            rounds.evaluating = None if measuring is None else rounds.execution.start_protocol(measuring)
        return [] if rounds.evaluating is None or rounds.evaluating.done else rounds.evaluating.messages()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the metrics measured by the clients; None unless an evaluation has just ended."""
        evaluating = self._rounds.evaluating
        if evaluating is None or evaluating.done:
            return None
        finished = evaluating.receive(replies)
        return MetricRecord(dict(record_measures(self._rounds.execution, evaluating.value))) if finished else None


@dataclass
class _Rounds(Generic[M]):
    """State of a run in Flower's own loop: the protocols of training and evaluation."""

    execution: Execution
    training: RunningProtocol[M]
    settled: Method[M]
    evaluating: RunningProtocol[dict[str, float]] | None = None


def _arrays_of(model: Any) -> ArrayRecord:
    fields = vars(model) if hasattr(model, "__dict__") else {"value": np.asarray(model)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    return ArrayRecord({name: Array(value) for name, value in arrays.items() if not value.dtype.hasobject})


def _costs_of(row: Mapping[str, Any]) -> MetricRecord:
    """Return a round's floats and bytes from its row in the history."""
    return MetricRecord({name: row[name] for name in ("floats_up", "floats_down", "bytes_up", "bytes_down")})
