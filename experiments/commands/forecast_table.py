"""Forecast of an experiment's costs: a line for each strategy and setting, and one for all runs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.filesize import decimal
from rich.text import Text

from fedkernel import protocol
from fedkernel.experiments.baselines import cohort
from fedkernel.experiments.commands.console import print_line, print_table
from fedkernel.experiments.config import Experiment, Sites
from fedkernel.experiments.report import NARROWEST, WideTable
from fedkernel.experiments.running import Planned, plan
from fedkernel.ground import InputError
from fedkernel.strategy import settled_privacy

NOTE = (
    "Figures: exact; at most, where a run may end early or send less; about, where convergence decides. Memory: of "
    "one client beside its rows, estimated. Per entry: numbers that leave a site for each entry of its table, of which "
    f"real sites allow {protocol.TABLE_SHARE:g} by default (join --table-share). A line is one run, of the seed that "
    "takes most."
)


@dataclass
class Line:
    """Forecasts of a strategy at one setting, for each seed.

    - `forecasts`: one for each seed; None: the strategy has none, or the shape of the sites' tables is not known here.
    - `whole`: the floats of all sites' tables, for each seed with known shapes.
    - `shares`: numbers that leave a site for each entry of its table, for each forecast.
    - `noise`: what is to be expected of a run with noise.
    """

    name: str
    setting: str
    clients: int
    forecasts: list[protocol.Forecast | None] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    noise: str = ""

    @property
    def known(self) -> list[protocol.Forecast]:
        """Forecasts that are known."""
        return [forecast for forecast in self.forecasts if forecast is not None]


def read_shape(text: str) -> tuple[int, int]:
    """Parse rows and columns from a text such as 1000x20."""
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)):
        raise InputError(f"shape = {text!r}, but must be ROWSxCOLUMNS, such as 1000x20")
    return int(match[1]), int(match[2])


def show_forecast(experiment: Experiment, shape: tuple[int, int] | None) -> None:
    """Print the costs of the experiment's runs; `shape` as for `lines_of`."""
    lines = lines_of(plan(experiment), shape)
    print_table(forecast_table(lines))
    for line in lines:
        if line.noise:
            print_line(f"{' '.join(filter(None, (line.name, line.setting)))}: {line.noise}")
    if floats := [own for line in lines for own in line.whole]:
        print_line(f"Of floats, {protocol.whole_table_text(*floats)}.")
    if shape is None and isinstance(experiment.data, Sites):
        print_line("Sites hold their own tables: --shape ROWSxCOLUMNS gives the size of each.")
    print_line(NOTE)


def lines_of(planned: Sequence[Planned], shape: tuple[int, int] | None = None) -> list[Line]:
    """Forecast the strategies' runs. `shape`: of each site's table, where sites hold their own."""
    lines: dict[tuple[str, str], Line] = {}
    for run in planned:
        if run.baseline is None:
            clients = run.point.experiment.clients or 1
            members = cohort(run.tables)
            if not members and shape is not None:
                members = [protocol.Member(number, number, *shape, 0) for number in range(clients)]
            setting = ", ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in run.point.values.items())
            line = lines.setdefault((run.method.name, setting), Line(run.method.name, setting, clients))
            forecast = run.strategy.forecast_of_run(members, run.point.experiment.prepare) if members else None
            line.forecasts.append(forecast)
            line.shares += [] if forecast is None else [protocol.forecast_share(forecast, members)]
            privacy = settled_privacy(run.strategy, run.point.experiment.privacy)
            if members and privacy is not None:
                line.noise = run.strategy.noise_of_run(members, privacy, run.point.experiment.prepare)
            line.whole += [protocol.pooled_floats(members, run.strategy.partition)] if members else []
    return list(lines.values())


def forecast_table(lines: Sequence[Line]) -> WideTable:
    """Lay out the costs of one run of each line, and of all runs in sequence."""
    swept = any(line.setting for line in lines)
    table = WideTable(2 if swept else 1)
    for heading in ("Method", *(["setting"] if swept else [])):
        table.add_column(heading, overflow="fold", min_width=NARROWEST)
    for heading in ("clients", "rounds", "floats up", "floats down", "per entry", "memory"):
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    table.add_column("figures", no_wrap=True)
    for line in lines:
        most = protocol.largest_forecast(line.known) if len(line.known) == len(line.forecasts) else None
        named = [line.name, *([line.setting] if swept else []), str(line.clients)]
        table.add_row(*map(Text, [*named, *cells_of(most, protocol.share_text(max(line.shares, default=0.0)))]))
    forecasts = [forecast for line in lines for forecast in line.known]
    if len(forecasts) == (runs := sum(len(line.forecasts) for line in lines)):
        table.add_section()
        named = [f"all {runs} runs", *([""] if swept else []), ""]
        table.add_row(*map(Text, [*named, *cells_of(sum(forecasts, protocol.Forecast(0)), "")]))
    return table


def cells_of(forecast: protocol.Forecast | None, share: str) -> list[str]:
    """Return the cells of rounds, floats, share of the table, memory, and exactness of the figures."""
    if forecast is None:
        return ["unknown"]
    floats = [f"{count:,}" for count in (forecast.rounds, forecast.floats_up, forecast.floats_down)]
    return [*floats, share, decimal(forecast.memory), forecast.meaning]
