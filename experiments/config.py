"""What a configuration file may say, and the runs that follow from it."""

import copy
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pydantic

from experiments.baselines import BASELINES
from fedkernel.data import DataSpec, PartitionSpec
from fedkernel.engines import ENGINES
from fedkernel.errors import InputError, explain
from strategies import REGISTRY

STRICT = pydantic.ConfigDict(extra="forbid", frozen=True)


class Method(pydantic.BaseModel):
    """A ``[[strategy]]`` or ``[[baseline]]`` table: a name, a method, and the method's own parameters.

    Attributes
    ----------
    name : str
        How tables and plots call it; unique in the file.
    method : str
        For a strategy a class such as ``DKPCA``, for a baseline for instance ``central KPCA``.
    group : str, optional
        Methods of one group are drawn together.
    """

    model_config = pydantic.ConfigDict(extra="allow", frozen=True)

    name: str = pydantic.Field(min_length=1)
    method: str
    group: str | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The method's own parameters."""
        return dict(self.model_extra or {})


class Shards(pydantic.BaseModel):
    """A ``[data]`` table that names one file per client instead of a set to divide."""

    model_config = STRICT

    shards: list[str] = pydantic.Field(min_length=1)


class ReportOptions(pydantic.BaseModel):
    """The ``[report]`` table."""

    model_config = STRICT

    plots: bool = True


def _which_data(value: Any) -> str:
    return "shards" if isinstance(value, Mapping) and "shards" in value or isinstance(value, Shards) else "set"


Data = Annotated[
    Annotated[DataSpec, pydantic.Tag("set")] | Annotated[Shards, pydantic.Tag("shards")],
    pydantic.Discriminator(_which_data),
]


class Experiment(pydantic.BaseModel):
    """A whole configuration.

    Attributes
    ----------
    name : str
        Also the name of the default output folder.
    title : str
        Heading of the report.
    seeds : list of int
        Every method runs once per seed; it decides the partition and all that is random.
    engine : str
    deadline : float
        Seconds that a round may take.
    threads : int
        BLAS threads per client.
    data : DataSpec or Shards
    partition : PartitionSpec
    strategy, baseline : list of Method
    sweep : dict of str to list
        By dotted path (``partition.clients``, ``strategy.NAME.n_components``, ``strategy.*.rounds``), the values to
        run through; several sweeps are combined.
    report : ReportOptions
    """

    model_config = STRICT

    name: str = pydantic.Field(pattern=r"^[\w.-]+$")
    title: str = ""
    seeds: list[Annotated[int, pydantic.Field(ge=0)]] = pydantic.Field(default=[0], min_length=1)
    engine: str = "local"
    deadline: float = pydantic.Field(default=3600.0, gt=0)
    threads: int = pydantic.Field(default=1, ge=1)
    data: Data
    partition: PartitionSpec = PartitionSpec()
    strategy: list[Method] = []
    baseline: list[Method] = []
    sweep: dict[str, Annotated[list[Any], pydantic.Field(min_length=1)]] = {}
    report: ReportOptions = ReportOptions()

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        if self.engine not in ENGINES:
            raise ValueError(f"engine = {self.engine!r}, but must be one of {', '.join(ENGINES)}")
        methods = [*self.strategy, *self.baseline]
        if not methods:
            raise ValueError("at least one [[strategy]] or [[baseline]] is needed")
        names = [method.name for method in methods]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"name = {sorted(repeated)[0]!r} stands twice, but names must be unique")
        for kind, tables, known in (
            ("strategy", self.strategy, list(REGISTRY)),
            ("baseline", self.baseline, list(BASELINES)),
        ):
            for table in tables:
                if table.method not in known:
                    raise ValueError(
                        f"{kind} {table.name!r}: method = {table.method!r}, but must be one of {', '.join(known)}"
                    )
        if isinstance(self.data, Shards):
            if self.partition != PartitionSpec():
                raise ValueError("partition has no meaning with data.shards, whose files are the clients' parts")
        elif self.clients is None:
            raise ValueError("partition.clients is required (or sizes, or columns)")
        return self

    @property
    def clients(self) -> int | None:
        """How many clients there are."""
        if isinstance(self.data, Shards):
            return len(self.data.shards)
        lists = (self.partition.sizes, self.partition.columns)
        return self.partition.clients or next((len(given) for given in lists if given is not None), None)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], source: str) -> "Experiment":
        """Validate a table, with errors as one sentence that names the source, the key and what is allowed."""
        try:
            return cls.model_validate(table)
        except pydantic.ValidationError as error:
            raise InputError(f"{source}: {explain(error, list(cls.model_fields))}") from None


@dataclass(frozen=True)
class Point:
    """One combination of the swept values, and the experiment it makes."""

    values: dict[str, Any]
    experiment: Experiment

    @property
    def suffix(self) -> str:
        """Part of a run's id."""
        return "".join(f"__{_slug(key)}={_slug(str(value))}" for key, value in self.values.items())


def read_config(path: Path, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """Read a configuration file and apply ``--set key=value`` overrides.

    Returns
    -------
    table : dict
    text : str
        The file as it stands.
    """
    try:
        text = path.read_text()
        table = tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {override!r} must have the form key=value, for instance partition.clients=10")
        table = with_value(table, key.strip(), _toml_value(value.strip()), "--set")
    return table, text


def points(table: Mapping[str, Any], source: str) -> Iterator[Point]:
    """Yield the experiment at every combination of swept values; one without any if nothing is swept."""
    base = Experiment.from_table(table, source)
    for values in itertools.product(*base.sweep.values()):
        point = dict(zip(base.sweep, values, strict=True))
        swept = copy.deepcopy(dict(table))
        for key, value in point.items():
            swept = with_value(swept, key, value, f"{source}: sweep")
        yield Point(point, Experiment.from_table(swept, f"{source}: sweep" if point else source))


def with_value(table: dict[str, Any], key: str, value: Any, source: str) -> dict[str, Any]:
    """Return a copy of the table with the value at a dotted path; a method is addressed by its name or by ``*``."""
    made = copy.deepcopy(table)
    targets: list[Any] = [made]
    *path, last = _split_key(key, made)
    for step in path:
        found: list[Any] = []
        for target in targets:
            if isinstance(target, list):
                chosen = [entry for entry in target if step == "*" or entry.get("name") == step]
                if not chosen:
                    names = ", ".join(repr(entry.get("name")) for entry in target)
                    raise InputError(f"{source} {key}: there is no entry named {step!r}, but {names}")
                found += chosen
            elif isinstance(target, dict):
                found.append(target.setdefault(step, {}))
            else:
                raise InputError(f"{source} {key}: {step!r} is not inside a table")
        targets = found
    for target in targets:
        if not isinstance(target, dict):
            raise InputError(f"{source} {key}: {last!r} is not inside a table; name an entry or use *")
        target[last] = value
    return made


def _split_key(key: str, table: Mapping[str, Any]) -> list[str]:
    """Split a dotted path, where the name of a method may itself contain dots."""
    head, dot, rest = key.partition(".")
    if head not in ("strategy", "baseline") or not dot:
        return key.split(".")
    for name in sorted((str(entry.get("name", "")) for entry in table.get(head, [])), key=len, reverse=True):
        if name and rest.startswith(name + "."):
            return [head, name, *rest[len(name) + 1 :].split(".")]
    return key.split(".")


def _toml_value(text: str) -> Any:
    """Read an override's value as TOML; what is not TOML is a plain string, as one would type it in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+=,]+", "-", text).strip("-")


def run_id(method: Method, point: Point, seed: int) -> str:
    """Return the id of one run: readable, and fit for a folder's name."""
    return f"{_slug(method.name)}{point.suffix}__seed={seed}"


def as_json(table: Mapping[str, Any]) -> str:
    """Return the canonical text of a configuration, by which a stopped experiment recognises its own folder."""
    return json.dumps(table, indent=1, sort_keys=True, default=str) + "\n"
