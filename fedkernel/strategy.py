"""The coordinator's side of a pair: a Flower Strategy whose rounds a protocol decides."""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as FlowerResult
from flwr.serverapp.strategy import Strategy

from fedkernel.addresses import named
from fedkernel.arrays import FloatArray
from fedkernel.data import Prepare, TableLike
from fedkernel.data.columns import column_names
from fedkernel.data.frames import labels_in_order, without_names
from fedkernel.engines import ENGINES
from fedkernel.errors import InputError
from fedkernel.judging import Measures
from fedkernel.method import Method
from fedkernel.preparing import PrepareClient, TableToPrepare, prepare_tables, prepared_here, tables_to_prepare
from fedkernel.preparing import forecast as preparing_forecast
from fedkernel.preparing import plan as preparing_plan
from fedkernel.protocol.forecast import Forecast
from fedkernel.protocol.plan import Plan
from fedkernel.protocol.rounds import Member, Protocol, Run
from fedkernel.run.cohort import RunSettings, join
from fedkernel.run.conversation import Conversation, Execution
from fedkernel.run.job import shares_rows
from fedkernel.run.ledger import Account
from fedkernel.run.result import Result
from fedkernel.settling import WidthClient, ruled_kernels, settle_widths, width_forecast, width_plan, with_kernels
from fedkernel.simulate import Outputs, check_tables, simulated_sites, through_files
from fedkernel.threads import blas_threads

log = logging.getLogger(__name__)

M = TypeVar("M")
T = TypeVar("T")

SETTLED = "gamma"
"""What the history calls the width that was settled by rule; a second kernel's gamma_2."""


def _figure(place: int) -> str:
    return SETTLED if place == 0 else f"{SETTLED}_{place + 1}"


class KernelStrategy(Method[M], Strategy, Generic[M]):
    """Base of all strategies; a subclass declares its client and partition and writes `protocol`.

    Where it can, it says also what a run takes (`forecast`), which tables fit (`check_cohort`) and how the clients
    measure a model (`evaluation`), and what its exact answer is (see `Judged`).

    It is a value: its fields are the method's hyper-parameters, and what belongs to a run is an argument. As a Flower
    Strategy it is run by `start`, or by Flower's own loop, whose `configure_train` is sent the protocol's pending round
    and whose `aggregate_train` feeds the replies in, for as many rounds as the protocol takes. Flower's train
    configuration carries what belongs to a run rather than to the method: ``run``, ``seed``, ``clients``, ``deadline``,
    ``missing`` and ``threads``, under whose limit every step of the protocol runs.
    """

    # The user's ways in: `fit` simulates sites, over which it runs; `run` is given any grid.

    def fit(
        self,
        shards: Sequence[TableLike],
        *,
        y: Sequence[Any] | None = None,
        id: str | None = None,
        engine: str = "local",
        seed: int = 0,
        deadline: float = 3600.0,
        evaluate: bool = False,
        reference: M | None = None,
        prepare: Prepare | None = None,
    ) -> Result[M]:
        """Run the pair on simulated sites.

        Parameters
        ----------
        shards : sequence of array-like
            One table per client: (N, d_m) with a vertical partition, (n_m, d) with a horizontal one. Of pairs whose
            client reads its rows block by block also sparse matrices, files' paths and `Table`s. Frames, as pandas
            has them, are put in the first one's order where they stand in another: their columns by name with a
            horizontal partition, their rows by index with a vertical one. That is the order of the model's rows or
            columns, here and in every method that takes shards; the result knows the columns' names.
        y : sequence of array-like of shape (n_m,), optional
            Labels of each client's rows, in their order, for pairs whose client needs them; None for a client without.
        id : str, optional
            A column that all shards, which are frames then, have and that says which row is which; it is none of the
            table. `tables` gives the same arrays for the other methods that take shards.
        engine : {"local", "grpc", "ray"}
            This process, a process for each client, or Flower's simulation.
        seed : int
            Everything random derives from it.
        deadline : float
            Seconds that a round may take.
        evaluate : bool
            Measure the model on the clients by a round or two more, where the method has such a measure.
        reference : optional
            The exact answer (for instance ``self.central(shards)``); the result's metrics then tell how far off it is.
        prepare : Prepare, optional
            What is done to the tables first, which may then lack cells (NaN, None) and, as frames, have columns of
            text; the result has the `Preparation`, or where columns are divided each site's outputs have its own.

        Raises
        ------
        InputError
            If the shards or the hyper-parameters do not fit each other.
        ProtocolError
            If a client fails or does not answer in time.
        """
        tables: list[Any] = (
            check_tables(self.tables(shards, id=id), "shards", self.client.table)
            if prepare is None
            else tables_to_prepare(shards, prepare, self.partition)
        )
        labels = None if y is None else labels_in_order(y, shards, self.partition, id)
        settings = RunSettings(seed=seed, clients=len(tables), deadline=deadline, prepare=prepare)
        if engine not in ENGINES:
            raise InputError(f"engine = {engine!r}, but must be one of {', '.join(ENGINES)}")
        result: Result[M]
        if engine == "local":
            sites = simulated_sites(self.client, tables, y=labels, share_rows=self._shares_rows)
            with sites as (grid, outputs):
                result = self.run(grid, settings, evaluate=evaluate)
            result.outputs = outputs
        else:
            result = through_files(
                type(self), self.hyperparameters, tables, engine, settings, y=labels, evaluate=evaluate
            )
        if self.partition == "horizontal" and prepare is None:
            result.columns = tuple(name for name in column_names(shards) if name != id)
        if reference is not None:
            with blas_threads(settings.threads):
                seen = tables if prepare is None else prepared_here(tables, prepare, self.partition)
                result.metrics.update(self.as_run(result).judge(result, seen, reference))
        return result

    def tables(self, shards: Sequence[Any], *, id: str | None = None) -> list[Any]:
        """Return the clients' tables as `fit` takes them: an array for each frame, in the first one's order."""
        return without_names(shards, self.partition, id_=id)

    def as_run(self, result: Result[M]) -> Self:
        """Return the strategy as a run of it was, which gave this result: widths by rule settled as they were there."""
        if not (kernels := ruled_kernels(self)):
            return self
        figures = next(row["values"] for row in result.history if SETTLED in row.get("values", {}))
        return with_kernels(
            self, {kernel: kernel.with_gamma(figures[_figure(place)]) for place, kernel in enumerate(kernels)}
        )

    def plan_of_run(self, clients: int, seed: int, prepare: Prepare | None = None) -> Plan | None:
        """Return `plan` with what comes before it: what prepares raw tables, and what settles kernel widths by rule."""
        if (own := self.plan(clients, seed)) is None:
            return None
        preparing = () if prepare is None else preparing_plan(prepare, self.partition, clients)
        return (*preparing, *width_plan(ruled_kernels(self), self.partition), *own)

    def forecast_of_run(self, cohort: Sequence[Member], prepare: Prepare | None = None) -> Forecast | None:
        """Return `forecast` with what comes before it: what prepares raw tables, and what settles widths by rule."""
        before = Forecast(0, 0, 0, 0)
        if prepare is not None:
            before, cohort = preparing_forecast(prepare, self.partition, cohort)
        if (own := self.forecast(cohort)) is None:
            return None
        return before + width_forecast(ruled_kernels(self), self.partition, cohort) + own

    def simulate(
        self,
        protocol: Callable[[Run], Protocol[T]],
        shards: Sequence[TableLike],
        new_shards: Sequence[TableLike] | None,
        settings: RunSettings,
    ) -> tuple[T, Outputs]:
        """Run one more protocol of this strategy on simulated sites, which may hold new rows.

        Where the settings say so, all rows are prepared first, the new ones as those before.

        Returns
        -------
        value
            The protocol's result.
        outputs : dict of int to dict of str to ndarray
            What each site kept.
        """
        if settings.prepare is not None:
            raw = tables_to_prepare(shards, settings.prepare, self.partition, new_shards)
            return self._simulated(protocol, raw, None, settings)
        new = None
        if new_shards is not None:
            named = without_names(new_shards, self.partition, "new_shards", trained=shards)
            new = check_tables(named, "new_shards", self.client.table)
        tables = check_tables(without_names(shards, self.partition), "shards", self.client.table)
        if new is not None and [table.shape[1] for table in new] != [table.shape[1] for table in tables]:
            raise InputError(
                f"new_shards have {[table.shape[1] for table in new]} columns, but must have those of the shards, "
                f"{[table.shape[1] for table in tables]}"
            )
        return self._simulated(protocol, tables, new, settings)

    def _simulated(
        self,
        protocol: Callable[[Run], Protocol[T]],
        tables: Sequence[TableLike | TableToPrepare],
        new: Sequence[TableLike] | None,
        settings: RunSettings,
    ) -> tuple[T, Outputs]:
        with simulated_sites(self.client, tables, new, share_rows=self._shares_rows) as (grid, outputs):
            execution = self._begin(grid, settings)
            return execution.finish(protocol(execution.run)), outputs

    def run(self, grid: Grid, settings: RunSettings | None = None, *, evaluate: bool = False) -> Result[M]:
        """Run the protocol over a grid and return the model together with what it cost.

        Parameters
        ----------
        grid : flwr.serverapp.Grid
        settings : RunSettings, optional
        evaluate : bool
            Measure the model on the clients by a round or two more, where the method has such a measure.
        """
        began = time.perf_counter()
        execution = self._begin(grid, settings or RunSettings())
        settled = self._settled(execution)
        model = execution.finish(settled.protocol(execution.run))
        measures = settled._measured(execution, model) if evaluate else Measures({})
        account, seconds = execution.account, time.perf_counter() - began
        result = Result(
            *(model, account.ledger, account.history),
            metrics=dict(measures),
            seconds=seconds,
            columns=self._columns_of(execution.run.members),
            strategy=named(type(self)),
        )
        if self.partition == "horizontal":
            result.preparation = execution.preparation
        if (choice := getattr(model, "choice_", None)) is not None:
            result.metrics[choice.name] = float(choice.value)
            result.findings.append(choice.why)
        result.findings += measures.warnings
        return result

    def project(self, grid: Grid, settings: RunSettings, model: M, *, to_sites: bool) -> Result[FloatArray]:
        """Run `projection` over a grid, whose clients have new rows, and return coordinates and what they cost."""
        began = time.perf_counter()
        execution = self._begin(grid, dataclasses.replace(settings, project=True))
        coordinates = execution.finish(self.projection(execution.run, model, to_sites=to_sites))
        account, seconds = execution.account, time.perf_counter() - began
        return Result(coordinates, account.ledger, account.history, seconds=seconds)

    def _columns_of(self, members: Sequence[Member]) -> tuple[str, ...]:
        """Return the names of the columns of all, where clients have the same ones and these have names."""
        return next((member.names for member in members if member.names and self.partition == "horizontal"), ())

    def _begin(self, grid: Grid, settings: RunSettings) -> Execution:
        """Join the clients of a run, and check that they can be used together."""
        name, pair, go_on = type(self).__name__, self.client.__name__, self.on_missing == "continue"
        account = Account()
        members, settings = join(grid, settings, pair, account, self.partition)
        run, preparation = Run(tuple(members), settings.seed), None
        if settings.prepare is not None:
            preparing = Execution(name, PrepareClient.__name__, self.partition, False, grid, settings, run, account)
            outcome = preparing.finish(prepare_tables(run, settings.prepare, self.partition))
            for finding in outcome.findings:
                log.warning("%s: %s", settings.run, finding.text)
            run, preparation = Run(outcome.members, settings.seed), outcome.preparation
        self.check_cohort(run.members)
        return Execution(name, pair, self.partition, go_on, grid, settings, run, account, preparation)

    def _settled(self, execution: Execution) -> Self:
        """Do what comes before the protocol, and return the strategy whose protocol it is.

        That has numbers in place of widths by rule, from the sites' rows as they are then; the history has the gammas.
        """
        if not (kernels := ruled_kernels(self)):
            return self
        settling = replace(execution, pair=WidthClient.__name__, go_on=False)
        kernel_of = settling.finish(settle_widths(execution.run, self.partition, kernels))
        figures = {_figure(place): kernel_of[kernel].gamma for place, kernel in enumerate(kernels)}
        row = execution.account.history[-1]
        row["values"] = {**row.get("values", {}), **figures}
        for kernel in kernels:
            log.info("%s: %r is %r", execution.settings.run, kernel, kernel_of[kernel])
        return with_kernels(self, kernel_of)

    def _measured(self, execution: Execution, model: M) -> Measures:
        measuring = self.evaluation(execution.run, model)
        return Measures({}) if measuring is None else _noted(execution, execution.finish(measuring))

    @property
    def _shares_rows(self) -> bool:
        return shares_rows(self.hyperparameters)

    # Flower's Strategy.

    def summary(self) -> None:
        """Log the strategy and its hyper-parameters."""
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
        """Run the protocol to its end over a grid, as `run` does, with what Flower's strategies take and return.

        Parameters
        ----------
        grid : flwr.serverapp.Grid
        initial_arrays, num_rounds
            Not used: the protocol decides what it starts from and how many rounds it takes.
        timeout : float
            Seconds that each round may take.
        train_config : ConfigRecord, optional
            ``run``, ``seed``, ``clients``, ``missing``, ``threads`` and, as JSON, ``prepare``.
        evaluate_config : ConfigRecord, optional
            If given, the finished model is measured on the clients by one more round (see `evaluation`).
        evaluate_fn : callable, optional
            Called once, with the number of rounds and the finished model's arrays.
        """
        self.summary()
        outcome = FlowerResult()
        settings = RunSettings.from_config({**(train_config or {}), "deadline": float(timeout)})
        execution = self._begin(grid, settings)
        settled = self._settled(execution)
        model = execution.finish(settled.protocol(execution.run))
        number, outcome.arrays = execution.account.ledger.rounds, _arrays_of(model)
        outcome.train_metrics_clientapp = {
            row["round"]: _costs_of(row) for row in execution.account.history if row["round"]
        }
        if evaluate_config is not None and (measured := settled._measured(execution, model)):
            outcome.evaluate_metrics_clientapp[number] = MetricRecord(dict(measured))
        if evaluate_fn is not None and (judged := evaluate_fn(number, outcome.arrays)) is not None:
            outcome.evaluate_metrics_serverapp[number] = judged
        return outcome

    # What Flower's own loop calls, round by round. Between its calls the run under way has to stand somewhere: in
    # `_rounds`, the one thing a strategy keeps, and only for that loop.

    _rounds: "_Rounds[M]"

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the protocol's pending round; round 1 joins the clients first; none when it is done.

        Parameters
        ----------
        server_round : int
            1 begins a new run.
        arrays : ArrayRecord
            Not used: these methods start from the clients' data, not from a model.
        config : ConfigRecord
            May hold ``run``, ``seed``, ``clients``, ``deadline``, ``missing`` and ``threads``.
        grid : Grid
        """
        if server_round == 1:
            execution = self._begin(grid, RunSettings.from_config(config))
            settled = self._settled(execution)
            training = execution.converse(settled.protocol(execution.run))
            object.__setattr__(self, "_rounds", _Rounds(execution, training, settled))  # strategies are frozen
        training = self._rounds.training
        return [] if training.done else training.messages()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the replies to the protocol.

        Returns
        -------
        arrays : ArrayRecord or None
            The model's arrays by name, once the protocol is done.
        metrics : MetricRecord or None
            What the round cost; None, like the arrays, for rounds of Flower's loop after the protocol's last.

        Raises
        ------
        ProtocolError
            If a client failed, kept silent or answered something else than what was asked.
        """
        training = self._rounds.training
        if training.done:
            return None, None
        finished = training.receive(replies)
        costs = _costs_of(self._rounds.execution.account.history[-1])
        return _arrays_of(training.value) if finished else None, costs

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages that measure the finished model on the clients, where the method has such a measure."""
        rounds = self._rounds
        if not rounds.training.done:
            return []
        if rounds.evaluating is not None:
            return [] if rounds.evaluating.done else rounds.evaluating.messages()
        measuring = rounds.settled.evaluation(rounds.execution.run, rounds.training.value)
        if measuring is None:
            return []
        rounds.evaluating = rounds.execution.converse(measuring)
        return [] if rounds.evaluating.done else rounds.evaluating.messages()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the measures once the clients have answered; None where nothing was asked."""
        evaluating = self._rounds.evaluating
        if evaluating is None or evaluating.done:
            return None
        finished = evaluating.receive(replies)
        return MetricRecord(dict(_noted(self._rounds.execution, evaluating.value))) if finished else None


@dataclass
class _Rounds(Generic[M]):
    """A run under way in Flower's own loop."""

    execution: Execution
    training: Conversation[M]
    settled: KernelStrategy[M]
    evaluating: Conversation[dict[str, float]] | None = None


def _noted(execution: Execution, figures: dict[str, float]) -> Measures:
    """Return the figures of a measurement, its details being in the history and its warnings in the log."""
    measures = figures if isinstance(figures, Measures) else Measures(figures)
    if measures.details:
        row = execution.account.history[-1]
        row["values"] = {**row.get("values", {}), **measures.details}
    for warning in measures.warnings:
        log.warning("%s: %s", execution.settings.run, warning)
    return measures


def _arrays_of(model: Any) -> ArrayRecord:
    fields = vars(model) if hasattr(model, "__dict__") else {"value": np.asarray(model)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    return ArrayRecord({name: Array(value) for name, value in arrays.items() if not value.dtype.hasobject})


def _costs_of(row: Mapping[str, Any]) -> MetricRecord:
    """Return what a round cost, of its row in the history."""
    return MetricRecord({name: row[name] for name in ("floats_up", "floats_down", "bytes_up", "bytes_down")})
