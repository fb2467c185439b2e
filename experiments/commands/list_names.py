"""The command `fedkernel list`: names that a configuration can use."""

import ast
import os
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import Annotated, Any, get_args

from typer import Argument

import fedkernel
from fedkernel import data, models, numerics
from fedkernel.engines import ENGINES
from fedkernel.experiments.commands.console import output, print_text
from fedkernel.experiments.config import shipped
from fedkernel.ground import load_class, load_function, parse_toml, short_names


class Kind(StrEnum):
    """Kinds of names that `fedkernel list` can list."""

    strategies = "strategies"
    baselines = "baselines"
    kernels = "kernels"
    datasets = "datasets"
    metrics = "metrics"
    engines = "engines"
    experiments = "experiments"


HEADINGS = {Kind.datasets: ("name", "kind", "shape", "note"), Kind.metrics: ("name", "better", "unit", "what it is")}


def list_(kind: Annotated[Kind, Argument(metavar="KIND", help=f"What to list: {', '.join(Kind)}.")]) -> None:
    """List the names that a configuration can use."""
    lines = [HEADINGS.get(kind, ("name", "what it is")), *_lines(kind)]
    *widths, _ = [2 + max(map(len, cells)) for cells in zip(*lines, strict=True)]
    wide = output.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    fill = TextWrapper(
        width=get_terminal_size().columns if wide else sys.maxsize,  # in a pipe: one line per entry
        subsequent_indent=" " * sum(widths),
        break_long_words=False,
        break_on_hyphens=False,
    )
    for *cells, text in lines:
        fill.initial_indent = "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print_text(f"{fill.fill(text) or fill.initial_indent.rstrip()}\n")


def _lines(kind: Kind) -> list[tuple[str, ...]]:  # noqa: PLR0911 - one for each kind
    if kind is Kind.datasets:
        sets = data.available()
        return [(it.name, it.kind, " x ".join(map(str, it.shape or ())), it.note) for it in sets]
    if kind is Kind.metrics:
        hidden = models.namesakes(models.METRICS)  # to be named by their addresses
        names = [hidden.get(name, name) for name in short_names("metrics")]
        functions = {name: load_function(name, "metrics", "metric") for name in names}
        metrics = [*models.METRICS.values(), *map(models.metric_of, functions)]
        meanings = [metric.meaning or _first_line(functions[metric.name]) for metric in metrics]
        return [(its.name, its.better or "", its.unit, what) for its, what in zip(metrics, meanings, strict=True)]
    if kind is Kind.baselines:
        from fedkernel.experiments.baselines import baselines  # noqa: PLC0415 - imports Flower

        return list(baselines().items())
    if kind is Kind.experiments:
        return [(name, parse_toml(path.read_text("utf-8"), path)["title"]) for name, path in shipped().items()]
    if kind is Kind.engines:
        paths = {name: str(getattr(find_spec(f"fedkernel.engines.{name}"), "origin", None)) for name in ENGINES}
        trees = {name: ast.parse(Path(path).read_text(encoding="utf-8")) for name, path in paths.items()}
        return [(name, (ast.get_docstring(tree) or "").splitlines()[0]) for name, tree in trees.items()]
    if kind is Kind.kernels:
        widths = f'; width = "{"|".join(get_args(numerics.WidthRule))}", perhaps times factor'
        kinds = {name: load_class(name, numerics.Kernel, "kernels", "kernel") for name in short_names("kernels")}
        wide = {name for name, kind in kinds.items() if numerics.KERNELS.get(name) and hasattr(kind, "width")}
        return [(name, _first_line(kind) + (widths if name in wide else "")) for name, kind in kinds.items()]
    pairs = {name: load_class(name, fedkernel.KernelStrategy, "pairs", "strategy") for name in short_names("pairs")}
    return [(name, f"{_first_line(kind)} ({kind.partition} data)") for name, kind in pairs.items()]


def _first_line(cls: Any) -> str:
    return str(cls.__doc__ or cls.__name__).strip().splitlines()[0].removesuffix(".").replace("``", "")
