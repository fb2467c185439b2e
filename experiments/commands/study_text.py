"""Reader of a study, and its text for the console."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from fedkernel.experiments.commands.console import print_line, print_table
from fedkernel.experiments.config import read_config
from fedkernel.experiments.running import plan, study_of
from fedkernel.ground import InputError, load_class, one_line, own_short_names
from fedkernel.kernel_width import WidthClient
from fedkernel.preparing import PrepareClient
from fedkernel.protocol import AT_MOST, KernelClient, Request, reveals
from fedkernel.wire import RunSpec, Study


def read_study(path: Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study, or make one from an experiment, with overrides."""
    if path.suffix == ".json":
        if overrides:
            raise InputError(
                f"--set {overrides[0]} works with an experiment only; {path} is a study, which cannot be changed"
            )
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"there is no file {path}; allowed: a study, as JSON") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read ({type(error).__name__}); allowed: a study, as JSON") from None
        return Study.from_json(text, str(path))
    experiment = read_config(path, [*overrides, "engine=grpc"])
    if (study := study_of(experiment, plan(experiment))) is None:
        raise InputError(f'{path}: a study needs a table [data] with sites = ["name", ...], who are to approve it')
    return study


def show_study(study: Study) -> None:
    """Print a study. Runs that differ only in id and seed are shown once, and so is each reply's disclosure."""
    versions = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    _line(f"study {study.name!r}, {versions}")
    alike: dict[str, list[RunSpec]] = {}
    for run in study.runs:
        alike.setdefault(repr(_without_seed({**run.model_dump(mode="json"), "id": ""}, run.seed)), []).append(run)
    above: dict[str, str] = {}
    for runs in alike.values():
        run, seeds = runs[0], ", ".join(str(run.seed) for run in runs)
        _line()
        _line(f"{', '.join(run.id for run in runs[:3])}{'' if len(runs) < 4 else ', ...'}")
        aligned = f"aligned by ids, those missing somewhere: {run.missing}" if run.align else "each site's own"
        drawn = "drawn by all sites, runs " if run.joint_seed else ""
        _line(f"sites: {', '.join(run.sites or ())}; seeds: {drawn}{seeds}; rows: {aligned}")
        _line(f"method: {run.strategy}, answered by {run.pair}")
        _line(f"with: {_fields(run.parameters)}")
        if run.project is not None:
            get = "the coordinator and every site" if run.project.coordinates == "sites" else "the coordinator"
            _line(f"projects new rows onto what run {run.project.of} found; their coordinates get: {get}")
        if run.prepare is not None:
            when = "prepared first" if run.project is None else f"tables are prepared as in run {run.project.of}"
            _line(f"{when}: {_fields(run.prepare.table)}")
        if run.wire != "float64":
            exact = "rows, counts, preparation and letters are exact"
            rounded = f"half of the bytes, each number rounded by 6e-8 of itself; {exact}"
            _line(f"arrays travel as {run.wire}, up and down: {rounded}")
        if run.identities is not None:
            _line(
                "sums leave under masks that cancel over all sites alone, whose keys (fedkernel identity --public) are:"
            )
            for name, key in zip(run.sites or (), run.identities, strict=True):
                _line(f"  {name} {key}")
        if run.privacy is not None:
            colluders = f"against the coordinator and {run.privacy.colluders} of the sites together"
            _line(f"differential privacy {colluders}: {run.privacy.meaning}")
        if run.plan is None:
            _line("It has no request plan: all requests that its client answers are open, in any order and number.")
        else:
            print_table(_steps(run))
            tells = _disclosures(run)
            known = [reply for reply, text in tells.items() if above.get(reply) == text]
            for reply in [reply for reply in tells if reply not in known]:
                _line(f"{reply}: {tells[reply]}")
            if known:
                _line(f"{', '.join(known)}: as above")
            above |= tells
    _line()
    _line(f"SHA-256: {study.sha256}")


def _without_seed(value: Any, seed: int) -> Any:
    """Return a JSON value without entries ``seed`` that equal the run's seed. Other seeds stay."""
    if isinstance(value, dict):
        others = {name: inner for name, inner in value.items() if (name, inner) != ("seed", seed)}
        return {name: _without_seed(inner, seed) for name, inner in others.items()}
    return [_without_seed(inner, seed) for inner in value] if isinstance(value, list) else value


def _steps(run: RunSpec) -> Table:
    """Lay out a plan. Consecutive steps that differ only in numbers become one line, with the numbers' range."""
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for heading in ("step", "times at most", "asks", "with", "leaves the site"):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("step", "times at most") else "left")
    kinds = {kind.__name__: kind for kind in answers_of(run)}
    steps = enumerate(run.plan or (), start=1)
    for _, alike in itertools.groupby(steps, key=lambda step: _without_numbers(step[1].model_dump(mode="json"))):
        numbers, folded = zip(*alike, strict=True)
        for place, planned in enumerate(folded[0].requests):
            leaves = ", ".join(f"{name} {shape}" for name, shape in planned.arrays.items())
            fields = [_leaves_by_path("", step.requests[place].fields) for step in folded]
            sizes = [_leaves_by_path("", step.requests[place].sizes) for step in folded]
            with_ = [f"{_equals(name)} {_range_text([part[name] for part in fields])}" for name in fields[0]]
            with_ += [f"{name} at most {_range_text([part[name] for part in sizes])}" for name in sizes[0]]
            if (kind := kinds.get(planned.request)) is not None:  # fields that the plan leaves open
                open_ = sorted(kind.model_fields.keys() - kind.shapes().keys() - planned.fields.keys())
                with_ += [f"{name} open" for name in open_]
            times = _range_text([step.times for step in folded])
            leaving = f"{planned.reply} {leaves}{' (summed)' * planned.summed}"
            cells = (_range_text(numbers), times, planned.request, ", ".join(with_), leaving)
            table.add_row(*map(Text, map(one_line, cells)))
    return table


def _without_numbers(value: Any) -> str:
    """Return a JSON value as text, without its numbers."""
    if isinstance(value, dict):
        return repr({name: _without_numbers(inner) for name, inner in value.items()})
    if isinstance(value, list):
        return repr(list(map(_without_numbers, value)))
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)


def _leaves_by_path(path: str, value: Any) -> dict[str, Any]:
    """Return the leaves of nested tables and lists, by dotted names."""
    if isinstance(value, tuple | list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    inner = (_leaves_by_path(f"{path}.{key}" if path else str(key), value[key]) for key in value)
    return {name: leaf for part in inner for name, leaf in part.items()}


def _equals(name: str) -> str:
    """Return a parameter's name and the sign before its value. A bound is a table with the key `AT_MOST`."""
    return f"{name.removesuffix(f'.{AT_MOST}')} {AT_MOST}" if name.endswith(f".{AT_MOST}") else f"{name} ="


def _range_text(values: Sequence[Any]) -> str:
    if all(value == values[0] for value in values):
        return repr(values[0])
    return f"{min(values)} to {max(values)}"


def _disclosures(run: RunSpec) -> dict[str, str]:
    """Return the information that each reply discloses, by fedkernel's own class or as the plan's author claims."""
    here = {
        message.__name__: reveals(message) for kind in answers_of(run) for message in (kind.reply_type, *kind.posts)
    }
    requests = [planned for step in run.plan or () for planned in step.requests]
    replies = {planned.reply: planned.reveals for planned in requests}
    letters = {name: text for planned in requests for name, text in planned.posts.items()}
    texts = {name: here.get(name, f"(so its author says) {text}") for name, text in (replies | letters).items()}
    return {f"{name}, sealed to peers" if name in letters else name: text for name, text in texts.items()}


def answers_of(run: RunSpec) -> Sequence[type[Request[Any]]]:
    """Return the requests that a run's client and preceding steps answer. A foreign client is not imported: empty."""
    ours = own_short_names("clients")
    pair = ours.get(run.pair or "", run.pair or "")
    if pair not in ours.values():
        return ()
    preparing = () if run.prepares is None else PrepareClient.answers
    return *preparing, *WidthClient.answers, *load_class(pair, KernelClient, "clients", "pair").answers


def _fields(fields: Any) -> str:
    return ", ".join(f"{name} = {_value(value)}" for name, value in fields.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{_fields(value)}}}"
    return repr(value) if isinstance(value, str) else str(value)


def _line(text: str = "") -> None:
    """Print a text as one line, whatever breaks a foreign author put into it."""
    print_line(one_line(text))
