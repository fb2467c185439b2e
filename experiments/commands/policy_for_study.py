"""Policy table that allows one study's replies, and forecasts of the study's runs."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fedkernel.experiments.commands.console import print_line, print_status
from fedkernel.experiments.commands.study_text import answers_of
from fedkernel.ground import FedkernelError, InputError, RefusedError, load_class, one_line, own_short_names
from fedkernel.protocol import Forecast, Guards, Member
from fedkernel.site import EXEMPT, Policy, ReplyBounds, needed_share, reply_bounds, table_shares, within_seconds
from fedkernel.strategy import KernelStrategy
from fedkernel.wire import RunSpec, Study


def messages_of(study: Study, shape: tuple[int, int] | None) -> str:
    """Return the policy table that allows exactly a study's replies, by number and bounded size."""
    sizes: dict[str, ReplyBounds] = {}
    for run in study.runs:
        if run.plan is None:
            raise InputError(f"run {run.id!r} has no request plan; allowed for --study: a plan in each run")
        for reply, size in reply_bounds(run, answers_of(run), shape).items():
            sizes[reply] = size.at_least(sizes[reply]) if reply in sizes else size
    lines = [f"# Replies of study {study.sha256} ({one_line(study.name)}); others are refused."]
    for reply, size in sizes.items():
        if reply in EXEMPT:
            continue
        if not reply.isidentifier():
            raise InputError(f"the study has a reply {reply!r}, but must have names of classes")
        lines += [f"[messages.{reply}]", *(["only_summed = true"] if size.summed else []), f"times = {size.times}"]
        bounds = {"floats": size.floats, "columns": size.columns}
        lines += [f"{name} = {most}" for name, most in bounds.items() if most is not None]
    return "".join(f"{line}\n" for line in lines)


def show_shares(
    study: Study, shape: tuple[int, int] | None, table_share: float | None = None, left: float = 0.0
) -> float | None:
    """Print how many numbers runs send per entry of a site's table, and loss by noise. Return the share needed.

    None if `table_share`, by default that of sites without a policy, is enough, as far as forecasts can show. `left`:
    numbers per entry that left before.
    """
    if shape is None:
        print_status("--shape ROWSxCOLUMNS, a table's size, also gives the numbers that leave for each of its entries")
        return None
    policy = Policy(guards=Guards() if table_share is None else Guards(table_share=table_share))
    for verdict in table_shares(policy, study, shape, answers_of, forecast_of, left=left):
        print_line(one_line(verdict.text))
    for run in study.runs:
        if run.privacy is not None and (strategy := _strategy_of(run)) is not None:
            cohort = [Member(place, place, *shape) for place in range(len(run.sites or ()))]
            with suppress(FedkernelError):  # as without the packages that noise needs
                if noise := strategy.noise_of_run(cohort, run.privacy, run.prepare):
                    print_line(one_line(f"{noise}, with as many rows at each site"))
    return needed_share(policy, study, shape, answers_of, forecast_of)


def forecasts_within(seconds: float) -> Callable[[RunSpec, Sequence[Member]], Forecast | None]:
    """Return a cached `forecast_of` that gives None once `seconds` have passed, since any server may send a study."""
    forecasts: dict[str, Forecast | None] = {}
    ends = time.monotonic() + seconds

    def forecast(run: RunSpec, cohort: Sequence[Member]) -> Forecast | None:
        if run.id not in forecasts:
            forecasts[run.id] = None
            if (seconds_left := ends - time.monotonic()) > 0:
                with suppress(RefusedError, MemoryError):
                    forecasts[run.id] = within_seconds(seconds_left, lambda: forecast_of(run, cohort))
        return forecasts[run.id]

    return forecast


def forecast_of(run: RunSpec, cohort: Sequence[Member]) -> Forecast | None:
    """Return the forecast of a run's strategy. None for one from outside fedkernel, which is not imported."""
    with suppress(FedkernelError, TypeError, ValueError):  # a cohort that the strategy refuses
        return None if (strategy := _strategy_of(run)) is None else strategy.forecast_of_run(cohort, run.prepare)
    return None


def _strategy_of(run: RunSpec) -> KernelStrategy[Any] | None:
    ours = own_short_names("pairs")
    if (address := ours.get(run.strategy, run.strategy)) not in ours.values():
        return None
    with suppress(FedkernelError, TypeError, ValueError):  # parameters that the strategy refuses
        strategy: KernelStrategy[Any] = load_class(address, KernelStrategy, "pairs", "strategy")(**run.parameters)
        return strategy
    return None
