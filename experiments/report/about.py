"""Description, in a report, of the data, their division and preparation, and the metrics."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkernel.data import DataSpec, Prepare
from fedkernel.data.checks.findings import listing
from fedkernel.experiments.config import Experiment, Shards, Sites
from fedkernel.experiments.report.cells import count
from fedkernel.experiments.results import Columns
from fedkernel.ground import load_class
from fedkernel.models import ERROR_ROUNDING, metric_of
from fedkernel.protocol import whole_table_text
from fedkernel.site import RECEIPTS, described, faults_of, read_receipts
from fedkernel.strategy import KernelStrategy
from fedkernel.wire import HASH_DIGITS

Shapes = Sequence[tuple[int, int]]  # rows and columns of each client's table
Line = tuple[str, str]  # a term and its description
MOST_NAMES = 30

MISSING = {
    "refuse": "no empty cell is allowed",
    "drop": "rows with an empty cell are left out",
    "center": "empty cells get the column's stated centre",
    "mean": "empty cells get the column's mean",
    "median": "empty cells get the column's median",
}
SCALE = {
    "standard": "scaled to mean 0 and standard deviation 1",
    "minmax": "scaled to the range from 0 to 1",
    "robust": "scaled by the median and the distance of the quartiles",
    "none": "not scaled",
}


def data_lines(
    experiment: Experiment, shapes: Shapes, columns: Columns | None = None, dropped: Sequence[int] = ()
) -> list[Line]:
    """Describe the data of an experiment, their division and their preparation, each as a term and a text.

    `shapes` of the tables are those of the first setting and seed, empty where only the sites know theirs. `dropped`:
    the rows that each client leaves out.
    """
    lines = [("data", _data(experiment.data))]
    if isinstance(experiment.data, DataSpec):
        lines.append(("divided", _division(experiment)))
    if shapes:
        lines.append(("sizes", _sizes(shapes, experiment)))
    if columns is not None:
        others = "" if columns.prepared == len(columns.names) else f"; {count(columns.prepared)} once prepared"
        lines.append(("columns", f"{count(len(columns.names))}: {listing(columns.names, MOST_NAMES)}{others}"))
    if (prepare := experiment.prepare) is not None:
        lines.append(("prepared", "; ".join(_steps(prepare, experiment, dropped))))
    lines += [(f"swept: {name}", ", ".join(map(str, values))) for name, values in experiment.swept.items()]
    return lines


def receipt_lines(out: Path, data: DataSpec | Shards | Sites) -> list[Line]:
    """Describe the receipts, if any, that sites have handed over into an experiment's folder."""
    receipts = read_receipts(sorted((out / RECEIPTS).glob("**/*.json")))
    if not receipts or not isinstance(data, Sites):
        return []
    own = {name: [it for it in receipts if it.site == name] for name in data.sites}
    studies = ", ".join(sorted({it.study[:HASH_DIGITS] or "none" for it in receipts}))
    signed = f"of study {studies}, {'signatures valid' if data.identities else 'signers unknown'}"
    texts = [f"{name}: {described(its)}" for name, its in own.items() if its]
    return [("receipts", "; ".join(faults_of(receipts, data.identities) or [signed, *texts]))]


def _data(data: DataSpec | Shards | Sites) -> str:
    if isinstance(data, Sites):
        return f"held by the sites {', '.join(data.sites)}, each its own; none of it is here"
    if isinstance(data, Shards):
        return f"one file for each of {len(data.shards)} clients"
    default = {field.name: field.default for field in dataclasses.fields(data)}
    options = {name: value for name, value in vars(data).items() if value not in (default.get(name), {}, None)}
    return _named(options.pop("name"), options)


def _division(experiment: Experiment) -> str:
    partition = experiment.partition
    what = "columns" if partition.kind == "vertical" else "rows"
    shown = {"exponent": partition.exponent, "alpha": partition.alpha, "minimum": partition.minimum}
    how = _named(partition.method, {name: value for name, value in shown.items() if value is not None})
    shuffled = ", shuffled anew with every seed" if partition.shuffle and partition.seed is None else ""
    return f"by {what} ({partition.kind}), {how}{shuffled}, among {experiment.clients} clients"


def _steps(prepare: Prepare, experiment: Experiment, dropped: Sequence[int]) -> Iterator[str]:
    """Yield the steps of the preparation in order, and at last whether clients prepare jointly."""
    if prepare.clip:
        yield "clipped: " + ", ".join(f"{name} to {low:g} to {high:g}" for name, (low, high) in prepare.clip.items())
    if prepare.log:
        yield f"logarithms of {listing(prepare.log, MOST_NAMES)}"
    yield MISSING[prepare.missing] + (", each with a column that says where" if prepare.indicator else "")
    if sum(dropped):
        named = zip(experiment.file_names, dropped, strict=False)
        each = ", ".join(f"{count(rows)} at {file}" for file, rows in named if rows)
        yield f"so left out: {each}"
    if isinstance(prepare.scale, dict):
        units = (f"{name} ({center:g}, {unit:g})" for name, (center, unit) in prepare.scale.items())
        yield f"centred and divided by stated numbers: {listing([*units], MOST_NAMES)}"
    else:
        yield SCALE[prepare.scale]
    if prepare.categories:
        levels = (f"{name} ({listing(levels, MOST_NAMES)})" for name, levels in prepare.categories.items())
        yield f"levels as columns of 0 and 1: {', '.join(levels)}"
    jointly = "over the rows of all clients together" if prepare.measured else "without numbers from the rows"
    yield "by each client for its own columns" if _is_vertical(experiment) else jointly


def _named(name: Any, options: Mapping[str, Any]) -> str:
    return ", ".join([str(name), *(f"{key} = {value}" for key, value in options.items())])


def _sizes(shapes: Shapes, experiment: Experiment) -> str:
    rows, columns = [n for n, _ in shapes], [d for _, d in shapes]
    if _is_vertical(experiment):
        n, d, each = rows[0], sum(columns), f"{_listed(columns)} columns"
    else:
        n, d, each = sum(rows), columns[0], f"{_listed(rows)} rows"
    first = " (at the first setting)" if experiment.swept else ""
    whole = f"{count(n)} rows and {count(d)} columns; {each}"
    return f"{whole} at the clients; of floats, {whole_table_text(n * d)}{first}"


def _is_vertical(experiment: Experiment) -> bool:
    if isinstance(experiment.data, DataSpec) or not experiment.strategy:
        return experiment.partition.kind == "vertical"
    pair: type[KernelStrategy[Any]] = load_class(experiment.strategy[0].method, KernelStrategy, "pairs", "method")
    return pair.partition == "vertical"


def _listed(sizes: Sequence[int]) -> str:
    """List the clients' sizes in order, or just their range if there are many clients."""
    if len(set(sizes)) == 1:
        return count(sizes[0])
    return f"{count(min(sizes))} to {count(max(sizes))}" if len(sizes) > 12 else ", ".join(map(count, sizes))


def metric_lines(metrics: Mapping[str, str]) -> list[Line]:
    """Describe each metric by meaning, unit, scale and better direction; `metrics` has headings by name."""
    lines = []
    for name, heading in metrics.items():
        metric = metric_of(name)
        better = f"{metric.better or 'neither way'} is better"
        scale = f"0 at best, below {ERROR_ROUNDING:.0e} only rounding" if metric.axis == "orders" else ""
        unit = f"in {metric.unit}" if metric.unit else ""
        what = metric.meaning or "a metric of the experiment's own"
        lines.append((heading, f"{what}; {', '.join(part for part in (unit, better, scale) if part)}."))
    return lines
