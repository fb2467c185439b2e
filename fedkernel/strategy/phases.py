"""Phases of a run, from the clients' joining to the evaluation, with their plan and forecast.

1. The clients join and, with a vertical partition, align their rows by ids: `fedkernel.run.join`. 2. Raw tables are
prepared: `fedkernel.preparing`. 3. The tables must fit each other: `Method.check_cohort`. 4. Kernel widths by rule are
settled on the present rows: `fedkernel.kernel_width`. 5. The method's own protocol: `Method.protocol`. 6. Optionally,
the clients measure the model: `Method.evaluation`.

Flower's own loop executes steps 5 and 6 itself, round by round (`fedkernel.strategy.flower_strategy`).
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from flwr.serverapp import Grid

from fedkernel.data import Prepare
from fedkernel.ground import FedkernelError, InputError, ProtocolError
from fedkernel.kernel_width import WidthClient, ruled_kernels, settle_widths, width_forecast, width_plan, with_kernels
from fedkernel.preparing import PrepareClient, prepare_tables
from fedkernel.preparing import forecast as preparing_forecast
from fedkernel.preparing import plan as preparing_plan
from fedkernel.protocol import Forecast, KernelClient, Member, Plan, Privacy, Run, count_releases
from fedkernel.run import JOINING_PHASES, Account, Execution, Journal, RunSettings, join, log_event, minority_nodes
from fedkernel.strategy.evaluation import Measures
from fedkernel.strategy.method import Method
from fedkernel.wire import Losses

log = logging.getLogger(__name__)

MethodT = TypeVar("MethodT", bound=Method[Any])
M = TypeVar("M")

WIDTH_FIGURE = "gamma"  # name in the history of a rule's computed kernel width; a second kernel's is gamma_2


def begin(
    method: MethodT, grid: Grid, settings: RunSettings, journal: Journal | None = None, *, evaluate: bool = False
) -> tuple[Execution, MethodT]:
    """Begin a run by this module's steps 1 to 4; return its execution, and the method with numeric widths.

    `evaluate`: whether step 6 follows, whose rounds are then part of the forecast that progress shows. Raises
    ProtocolError if clients are missing, fail or contradict each other. Raises InputError if their tables do not fit
    each other, or cannot be prepared by the settings.
    """
    execution = join_sites(method, grid, settings, journal, evaluate=evaluate)
    settled = _settle(method, execution)
    sent = execution.account.ledger.floats_by_reader()
    members = (
        replace(member, left=max(sent.get(member.client, {None: 0}).values())) for member in execution.run.members
    )
    return replace(execution, run=replace(execution.run, members=tuple(members))), settled


def join_sites(
    method: Method[Any], grid: Grid, settings: RunSettings, journal: Journal | None = None, *, evaluate: bool = False
) -> Execution:
    """Join a run's clients, prepare their tables, and check that these fit each other: steps 1 to 3."""
    try:
        name, pair = type(method).__name__, method.client.__name__
        account, settings = Account(), replace(settings, privacy=settled_privacy(method, settings.privacy))
        members, settings = join(grid, settings, pair, account, method.partition, journal=journal)
        if settings.privacy is not None:
            settings.privacy.check_sites(len(members))
        run = Run(tuple(members), settings.seed, settings.wire, settings.privacy)
        _log_begin(method, members, settings, evaluate)
        losses = Losses(
            *(method.on_missing == "continue", method.may_lose_client_in_first_round, method.distribution_phases),
            *(settings.quorum, len(members)),
        )
        losses = Losses() if settings.sums == "masked" else losses
        execution = Execution(*(name, pair, method.partition, losses, grid, settings, run, account), journal=journal)
        if settings.prepare is not None:
            exactly = replace(settings, wire="float64")  # raw columns may have any unit
            preparing = replace(execution, pair=PrepareClient.__name__, losses=Losses(), settings=exactly)
            outcome = preparing.finish(prepare_tables(run, settings.prepare, method.partition))
            warnings = tuple(finding.text for finding in outcome.findings)
            for warning in warnings:
                log.warning("%s: %s", settings.run, warning)
            own = {member.client: member.columns for member in members}
            prepared = tuple(replace(member, raw_columns=own[member.client]) for member in outcome.members)
            run, preparation = replace(run, members=prepared), outcome.preparation
            execution = replace(execution, run=run, preparation=preparation, warnings=warnings)
        _check_cohort(method, run.members)
        return execution
    except FedkernelError as error:
        error.joining = True
        raise


def settled_privacy(method: Method[Any], privacy: Privacy | None) -> Privacy | None:
    """Return a run's privacy with the number of noisy sums filled in. InputError: a reply can have no noise."""
    if privacy is None or privacy.releases:
        return privacy
    if kernels := ruled_kernels(method):
        text = f"privacy: the width of {kernels[0]!r} would be computed from the rows, in sums without noise"
        raise InputError(f'{text}; allowed: a number, such as RBF(sigma=3.0), or width="columns"')
    return replace(privacy, releases=count_releases(method.plan(2, 0), method.client.answers))


def noise_of_run(
    method: Method[Any], cohort: Sequence[Member], privacy: Privacy, prepare: Prepare | None = None
) -> str:
    """Return a sentence on the loss to expect from noise on prepared tables, or an empty text if unknown."""
    if prepare is not None:
        cohort = preparing_forecast(prepare, method.partition, cohort)[1]
    return method.noise_finding(cohort, privacy)


def _log_begin(method: Method[Any], members: Sequence[Member], settings: RunSettings, evaluate: bool) -> None:
    """Log that a run begins, with its forecast number of rounds if there is one."""
    forecast: Forecast | None = None
    with suppress(Exception):  # tables that do not fit each other raise a better error later
        forecast = None if settings.project else forecast_of_run(method, members, settings.prepare)
        if forecast is not None and evaluate and settings.privacy is None:
            forecast += Forecast(len(method.evaluation_plan()))
    rounds, meaning = (None, "") if forecast is None else (forecast.rounds, forecast.meaning)
    log_event("run begun", "%s: begins", settings.run, run=settings.run, rounds=rounds, meaning=meaning)


def _check_cohort(method: Method[Any], members: Sequence[Member]) -> None:
    """Raise InputError if tables do not fit each other. The error blames the minority of sites that differ."""
    try:
        method.check_cohort(members)
    except InputError as error:
        axis = "rows" if method.partition == "vertical" else "columns"
        shared = {member.node_id: getattr(member, axis) for member in members}
        raise error.at(minority_nodes(shared), mendable=True) from None


def _settle(method: MethodT, execution: Execution) -> MethodT:
    """Compute rule-based kernel widths, add them to the history, and return the method with them: step 4."""
    if not (kernels := ruled_kernels(method)):
        return method
    settling = replace(execution, pair=WidthClient.__name__, losses=Losses())
    kernel_of = settling.finish(settle_widths(execution.run, method.partition, kernels))
    figures: dict[str, Any] = {_width_name(place): kernel_of[kernel].gamma for place, kernel in enumerate(kernels)}
    execution.account.note(figures)
    for kernel in kernels:
        log.info("%s: %r is %r", execution.settings.run, kernel, kernel_of[kernel])
    return with_kernels(method, kernel_of)


def with_settled_widths(method: MethodT, history: Sequence[Mapping[str, Any]]) -> MethodT:
    """Return the method with its rule-based kernel widths replaced by those in a run's history."""
    if not (kernels := ruled_kernels(method)):
        return method
    figures = next(row["values"] for row in history if WIDTH_FIGURE in row.get("values", {}))
    return with_kernels(
        method, {kernel: kernel.with_gamma(figures[_width_name(place)]) for place, kernel in enumerate(kernels)}
    )


def _width_name(place: int) -> str:
    return WIDTH_FIGURE if place == 0 else f"{WIDTH_FIGURE}_{place + 1}"


def measure(method: Method[M], execution: Execution, model: M) -> Measures:
    """Measure a model on the clients, and compare clusters with an earlier run's, if configured: step 6."""
    lost = execution.account.losses  # the measures would be the others', but count as those of all
    if why := "no noise is defined for that" if execution.settings.privacy is not None else next(iter(lost), ""):
        return record_measures(execution, Measures({}, warnings=(f"the model was not measured: {why}",)))
    measuring = method.evaluation(execution.run, model)
    measures = Measures({}) if measuring is None else record_measures(execution, execution.finish(measuring))
    if (earlier := execution.settings.compare) is not None:
        try:
            figures = execution.finish(method.comparison(execution.run, earlier))
        except ProtocolError as error:  # as of that run
            figures = Measures({}, warnings=[f"stability is not measured, against run {earlier}: {error}"])
        comparison = record_measures(execution, figures)
        measures.update(comparison)
        measures.warnings += comparison.warnings
    return measures


def check_phases(deadlines: Mapping[str, float], methods: Sequence[Method[Any]]) -> None:
    """Raise InputError if a deadline names a phase that no run of these methods has."""
    clients: list[type[KernelClient]] = [*(method.client for method in methods), WidthClient, PrepareClient]
    requests = [request.__name__ for client in clients for request in client.answers]
    phases = dict.fromkeys([*JOINING_PHASES.values(), *requests])
    for phase in deadlines:
        if phase not in phases:
            raise InputError(f"deadlines: unknown phase {phase!r}; allowed: {', '.join(phases)}")


def record_measures(execution: Execution, figures: dict[str, float]) -> Measures:
    """Return an evaluation's metrics, after adding its details to the history and its warnings to the log."""
    measures = figures if isinstance(figures, Measures) else Measures(figures)
    execution.account.note(measures.details)
    for warning in measures.warnings:
        log.warning("%s: %s", execution.settings.run, warning)
    return measures


def plan_of_run(
    method: Method[Any],
    clients: int,
    seed: int,
    prepare: Prepare | None = None,
    *,
    evaluate: bool = False,
    compare: str | None = None,
) -> Plan | None:
    """Return the plan of a run, from preparation to evaluation and comparison; None if the method has no plan."""
    if (own := method.plan(clients, seed)) is None:
        return None
    preparing = () if prepare is None else preparing_plan(prepare, method.partition, clients)
    settling = width_plan(ruled_kernels(method), method.partition)
    measuring = method.evaluation_plan() if evaluate else ()
    comparing = () if compare is None else method.comparison_plan(compare)
    return *preparing, *settling, *own, *measuring, *comparing


def forecast_of_run(method: Method[Any], cohort: Sequence[Member], prepare: Prepare | None = None) -> Forecast | None:
    """Return the forecast costs of preparation, kernel widths and method; None if the method has no forecast."""
    before = Forecast(0, 0, 0, 0)
    if prepare is not None:
        before, cohort = preparing_forecast(prepare, method.partition, cohort)
    if (own := method.forecast(cohort)) is None:
        return None
    return before + width_forecast(ruled_kernels(method), method.partition, cohort) + own
