"""Base class of all strategies for their users: `fit` on simulated sites, `run` over any Flower Grid."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, Self, TypeVar

from flwr.serverapp import Grid

from fedkernel.data import Prepare, Table, TableLike, aligned_arrays, column_names, labels_in_order
from fedkernel.engines import ENGINES
from fedkernel.ground import FloatArray, InputError, Precision, Sums, blas_threads, class_address, load_class
from fedkernel.models import Model, drop_misleading_figures, same_kernel
from fedkernel.numerics import import_kernels
from fedkernel.preparing import prepare_centrally, tables_to_prepare
from fedkernel.protocol import (
    TABLE_SHARE,
    KernelClient,
    Member,
    Privacy,
    Protocol,
    Run,
    Summed,
    pooled_floats,
    share_text,
    whole_table_text,
)
from fedkernel.protocol.forecast import table_share
from fedkernel.run import Journal, Ledger, Result, RunSettings
from fedkernel.strategy import phases
from fedkernel.strategy.evaluation import Measures
from fedkernel.strategy.flower_strategy import FlowerStrategy
from fedkernel.strategy.phases import begin, check_phases, join_sites, measure, with_settled_widths
from fedkernel.strategy.simulation import Outputs, check_tables, run_through_files, simulated_sites
from fedkernel.wire import UNASKED_BY, shares_rows

M = TypeVar("M")
T = TypeVar("T")


class KernelStrategy(FlowerStrategy[M], Generic[M]):
    """Base class of all strategies; a subclass declares its client class and partition, and writes `protocol`.

    A subclass implements `Method` and, for its exact answer, `Evaluable`; `FlowerStrategy` has Flower's interface, and
    `fedkernel.strategy.phases` the order of a run.
    """

    def fit(
        self,
        shards: Sequence[TableLike],
        *,
        y: Sequence[Any] | None = None,
        id: str | None = None,
        engine: str = "local",
        seed: int = 0,
        deadline: float = 3600.0,
        quorum: float | None = None,
        deadlines: Mapping[str, float] | None = None,
        evaluate: bool = False,
        reference: M | Literal["central"] | None = None,
        prepare: Prepare | None = None,
        wire: Precision = "float64",
        sums: Sums = "plain",
        privacy: Privacy | None = None,
    ) -> Result[M]:
        """Run the strategy with its client class on simulated sites, and return the result.

        - `shards`: sequence of array-like, one table per client: (N, d_m) with a vertical partition, (n_m, d) with a
          horizontal one. Clients that read their rows block by block also take sparse matrices, files' paths and
          objects of `Table`. Frames, as pandas has them, are put in the first one's order: their columns by name with a
          horizontal partition, their rows by index with a vertical one. That is the order of the model's rows or
          columns, here and in every method that takes shards; the result has the columns' names.
        - `y`: labels (n_m,) of each client's rows, in their order, for clients that need them, or None.
        - `id`: a column of all shards, then frames, that identifies the rows and is not part of the table. `tables`
          gives the same arrays for the other methods that take shards.
        - `engine`: this process ("local"), a process for each client ("grpc"), or Flower's simulation ("ray").
        - `seed`: everything random derives from it.
        - `deadline`: longest time of a round, in seconds; `deadlines` replaces it by phase.
        - `quorum`: number or fraction of clients that must remain for the run to go on without one that fails or does
          not answer, where the method can (docs/explanation/reliability.md). None: a lost client ends the run.
        - `evaluate`: measure the model on the clients in one or two more rounds, if the method has such a measure.
        - `reference`: the exact answer, ``self.central(shards)``, for metrics of the result's error. If the run settled
          another kernel width by rule, the exact answer is computed anew at the run's width, as always with
          ``"central"``.
        - `prepare`: preparation of the tables, which may then have missing cells (NaN, None) and, as frames, columns of
          text. The result has the `Preparation`; with a vertical partition each site's outputs have its own.
        - `wire`: precision of the messages' arrays; float32 halves the bytes, at a relative error of 6e-8.
          docs/how-to/experiments.md says which arrays stay exact.
        - `sums`: "masked" hides each client's reply in a sum over all of them, at three times its bytes
          (`fedkernel.wire.masked_sums`).
        - `privacy`: noise on these sums, for differential privacy (`fedkernel.protocol.privacy`).

        Raises InputError if the shards or the hyper-parameters do not fit each other. Raises ProtocolError if a client
        fails or does not answer in time.
        """
        if prepare is None:
            tables: list[Any] = check_tables(self.tables(shards, id=id), "shards", self.client.table)
        else:
            tables = tables_to_prepare(shards, prepare, self.partition, id_=id)
        labels = None if y is None else labels_in_order(y, shards, self.partition, id)
        check_phases(limits := dict(deadlines or {}), [self])
        settings = RunSettings(
            seed=seed,
            clients=len(tables),
            deadline=deadline,
            prepare=prepare,
            quorum=quorum,
            deadlines=limits,
            wire=wire,
            sums=sums,
            privacy=privacy,
        )
        if isinstance(reference, str) and reference != "central":
            raise InputError(f'reference = {reference!r}, but must be a model, as of `central`, or "central"')
        if engine not in ENGINES:
            raise InputError(f"engine = {engine!r}, but must be one of {', '.join(ENGINES)}")
        result: Result[M]
        if engine == "local":
            sites = simulated_sites(self.client, tables, y=labels, share_rows=shares_rows(self.hyperparameters))
            with sites as (grid, outputs):
                result = self.run(grid, settings, evaluate=evaluate)
            result.outputs = outputs
        else:
            result = run_through_files(
                type(self), self.hyperparameters, tables, engine, settings, y=labels, evaluate=evaluate
            )
        if self.partition == "horizontal" and prepare is None:
            result.columns = tuple(name for name in column_names(shards) if name != id)
        if reference is not None:
            with blas_threads(settings.threads):
                prepared = tables if prepare is None else prepare_centrally(tables, prepare, self.partition)
                settled = self.as_run(result)
                if isinstance(reference, str) or (settled is not self and not same_kernel(result.model, reference)):
                    whole = [own.block(0, len(own), "float64") if isinstance(own, Table) else own for own in prepared]
                    reference = settled.central(whole)
                result.metrics.update(settled.judge(result, prepared, reference))
        return result

    def tables(self, shards: Sequence[Any], *, id: str | None = None) -> list[Any]:
        """Convert the clients' frames to arrays in the first frame's order, as `fit` does; arrays are unchanged."""
        return aligned_arrays(shards, self.partition, id_=id)

    def as_run(self, result: Result[M]) -> Self:
        """Return the strategy with its rule-based kernel widths replaced by those that the result's run computed."""
        return with_settled_widths(self, result.history)

    plan_of_run, forecast_of_run, noise_of_run = phases.plan_of_run, phases.forecast_of_run, phases.noise_of_run

    def simulate(
        self,
        protocol: Callable[[Run], Protocol[T]],
        shards: Sequence[TableLike],
        new_shards: Sequence[TableLike] | None,
        settings: RunSettings,
    ) -> tuple[T, Outputs]:
        """Run a different protocol of this strategy on simulated sites, with their new rows, if any.

        With `settings.prepare`, all rows are prepared first, the new ones as the others. Returns the protocol's result,
        and the arrays that each site kept.
        """
        tables: list[Any]
        new = None
        if settings.prepare is not None:
            tables = tables_to_prepare(shards, settings.prepare, self.partition, new_shards)
        else:
            if new_shards is not None:
                named = aligned_arrays(new_shards, self.partition, "new_shards", trained=shards)
                new = check_tables(named, "new_shards", self.client.table)
            tables = check_tables(aligned_arrays(shards, self.partition), "shards", self.client.table)
            columns = [table.shape[1] for table in tables]
            if new is not None and (others := [table.shape[1] for table in new]) != columns:
                raise InputError(f"new_shards have {others} columns, but must have those of the shards, {columns}")
        with simulated_sites(self.client, tables, new, share_rows=shares_rows(self.hyperparameters)) as (grid, outputs):
            execution = join_sites(self, grid, settings)
            return execution.finish(protocol(execution.run)), outputs

    def run(
        self, grid: Grid, settings: RunSettings | None = None, *, evaluate: bool = False, journal: Journal | None = None
    ) -> Result[M]:
        """Run the strategy over a Flower Grid, and return the model with its costs and metrics.

        `evaluate`: measure the model on the clients in one or two more rounds, if the method has such a measure.
        `journal`: recorded replies of a stopped run, which is resumed; new replies are added.
        """
        began = time.perf_counter()
        execution, settled = begin(self, grid, settings or RunSettings(), journal, evaluate=evaluate)
        model = execution.finish(settled.protocol(execution.run))
        measures = measure(settled, execution, model) if evaluate else Measures({})
        drop_misleading_figures(measures, model, centred=self.centres)
        account, seconds = execution.account, time.perf_counter() - began
        result = Result(model, account.ledger, account.history, metrics=dict(measures), seconds=seconds)
        result.strategy = class_address(type(self))
        if self.partition == "horizontal":
            result.preparation = execution.preparation
            result.columns = next((member.names for member in execution.run.members if member.names), ())
        if (choice := getattr(model, "choice_", None)) is not None:
            result.metrics[choice.name] = float(choice.value)
            result.findings.append(choice.why)
        result.findings += getattr(model, "findings_", ())
        if isinstance(model, Model) and (warning := model.width_warning()) is not None:
            result.findings.append(warning)
        if (wire := execution.settings.wire) != "float64":
            result.wire = wire
            result.findings.append(f"arrays were sent as {wire} (wire), in half of the bytes")
        if (privacy := execution.settings.privacy) is not None:
            expected = self.noise_finding(execution.run.members, privacy)
            result.findings += [*([expected] if expected else []), privacy.meaning]
            if any(member.site is None for member in execution.run.members):
                result.findings.append(SIMULATED_NOISE)
        result.findings += [*measures.warnings, *execution.warnings, *account.losses]
        result.findings += _pooling_findings(account.ledger, execution.run.members, self.partition)
        result.findings += _table_share_findings(account.ledger, execution.run.members)
        if execution.settings.sums == "masked":
            result.findings += _unmasked_findings(self.client, account.ledger)
        result.findings += _resume_findings(journal)
        return result

    def project(
        self, grid: Grid, settings: RunSettings, model: M, *, to_sites: bool, journal: Journal | None = None
    ) -> Result[FloatArray]:
        """Project the new rows of a grid's clients onto a model; return coordinates and costs."""
        began = time.perf_counter()
        execution = join_sites(self, grid, replace(settings, project=True), journal)
        coordinates = execution.finish(self.projection(execution.run, model, to_sites=to_sites))
        account, seconds = execution.account, time.perf_counter() - began
        findings = _resume_findings(journal)
        return Result(coordinates, account.ledger, account.history, seconds=seconds, findings=findings)


SIMULATED_NOISE = "noise of simulated sites follows from the run's seed: who knows that can take it off"


def _pooling_findings(ledger: Ledger, members: Sequence[Member], divided: str) -> list[str]:
    """Return findings on a run that sent more floats than the pooled table has, or many raw rows."""
    sentences, whole = [], pooled_floats(members, divided)
    if ledger.floats_up > whole:
        cheaper = "pooling the data, if permitted, is cheaper"
        sentences.append(f"{ledger.floats_up:,} floats were sent, but {whole_table_text(whole)}: {cheaper}")
    if ledger.rows_up:
        sent = Counter[int]()
        for entry in ledger.entries:  # once: most of them lie on disk
            sent[entry.client] += entry.rows_up
        if many := {member: sent[member.client] for member in members if 10 * sent[member.client] > member.rows}:
            most = max(many, key=lambda member: many[member] / member.rows)
            rows = f"{most.label} sent {many[most]} of {most.rows}"
            sentences.append(f"{len(many)} of {len(members)} sites sent more than a tenth of their raw rows; {rows}")
    return sentences


def _table_share_findings(ledger: Ledger, members: Sequence[Member]) -> list[str]:
    """Return a finding if a site sent more numbers per entry of its table than sites allow by default."""
    floats = ledger.floats_by_reader()
    shares = {member: table_share(floats, [member]) for member in members}
    if (share := shares[most := max(shares, key=shares.__getitem__)]) <= TABLE_SHARE:
        return []
    sent = f"{most.label} sent {share_text(share)} numbers per table entry (default limit {TABLE_SHARE:g})"
    return [f"{sent}; its rows may be reconstructible"]


def _unmasked_findings(client: type[KernelClient], ledger: Ledger) -> list[str]:
    """Return a finding if numbers other than masked sums left the sites in a run with masked sums."""
    replies = {request.__name__: request.reply_type for request in client.answers}
    alone = {name: reply.__name__ for name, reply in replies.items() if not issubclass(reply, Summed)}
    entries = [entry for entry in ledger.entries if entry.floats_up and entry.phase in alone]
    if not entries:
        return []
    kinds = dict.fromkeys(alone[entry.phase] for entry in entries)
    sent = f"{sum(entry.floats_up for entry in entries):,} of {ledger.floats_up:,} floats are no sums"
    if settings := dict.fromkeys(UNASKED_BY[kind] for kind in kinds if kind in UNASKED_BY):
        advice = f"a run without: {', '.join(settings)}"
    else:
        advice = "docs/explanation/privacy.md lists the pairs that send sums only"
    return [f"{sent}, and left the sites without masks, as {', '.join(kinds)}; {advice}"]


def _resume_findings(journal: Journal | None) -> list[str]:
    if journal is None:
        return []
    journal.log_resumption("its end")
    return [f"the run was stopped, and resumed at {journal.resumed}"] if journal.resumed else []


def strategy_of(name: str, parameters: Mapping[str, Any], what: str = "strategy") -> KernelStrategy[Any]:
    """Build a strategy from its name or address and its parameters, kernels included. `what`: its name in errors."""
    kind: type[KernelStrategy[Any]] = load_class(name, KernelStrategy, "pairs", what)
    import_kernels(parameters)
    return kind(**parameters)
