"""What a configuration file may say, and the runs that follow from it."""

import copy
import dataclasses
import hashlib
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
from experiments.overrides import with_override, with_value
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
    """The ``[report]`` table.

    Attributes
    ----------
    plots : bool
        Whether figures are drawn, into ``plots/`` and the page.
    """

    model_config = STRICT

    plots: bool = True


def _which_data(value: Any) -> str:
    return "(files)" if (isinstance(value, Mapping) and "shards" in value) or isinstance(value, Shards) else "(set)"


Data = Annotated[
    Annotated[DataSpec, pydantic.Tag("(set)")] | Annotated[Shards, pydantic.Tag("(files)")],
    pydantic.Discriminator(_which_data),
]

SWEPT = ("data", "partition", "strategy", "baseline")
"""What a sweep may change; anything else is the same for all runs of an experiment."""

LONGEST_ID = 150
"""Bytes of a run's id, which names a folder."""


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

    name: str = pydantic.Field(pattern=r"^\w[\w.-]*$")
    title: str = ""
    seeds: list[Annotated[int, pydantic.Field(ge=0, lt=2**63)]] = pydantic.Field(default=[0], min_length=1)
    engine: str = "local"
    deadline: float = pydantic.Field(default=3600.0, gt=0)
    threads: int = pydantic.Field(default=1, ge=1)
    data: Data
    partition: PartitionSpec = PartitionSpec()
    strategy: list[Method] = []
    baseline: list[Method] = []
    sweep: dict[str, Annotated[list[Any], pydantic.Field(min_length=1)]] = {}
    report: ReportOptions = ReportOptions()

    @pydantic.field_validator("strategy", "baseline", mode="before")
    @classmethod
    def _is_list(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if isinstance(value, Mapping):
            raise ValueError(f"its table must be written with double brackets, [[{info.field_name}]]")
        return value

    @pydantic.field_validator("sweep", mode="before")
    @classmethod
    def _is_flat(cls, value: Any) -> Any:
        for key, values in value.items() if isinstance(value, Mapping) else ():
            if key.partition(".")[0] not in SWEPT:
                raise ValueError(f"{key!r} cannot be swept, only what is inside {', '.join(SWEPT)}")
            if isinstance(values, Mapping):
                raise ValueError(f'a dotted path must stand in quotes, such as "partition.clients" (found {key} = ...)')
        return value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        if self.engine not in ENGINES:
            raise ValueError(f"engine = {self.engine!r}, but must be one of {', '.join(ENGINES)}")
        for what, values in (("seeds", self.seeds), *((f"sweep.{key}", values) for key, values in self.sweep.items())):
            if again := [value for place, value in enumerate(values) if value in values[:place]]:
                raise ValueError(f"{what}: {again[0]!r} stands twice, but the values must differ")
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
            inner = {
                "data": [field.name for field in dataclasses.fields(DataSpec)],
                "partition": [field.name for field in dataclasses.fields(PartitionSpec)],
                "report": list(ReportOptions.model_fields),
            }
            told = explain(error, list(cls.model_fields), given=table, inner=inner)
            raise InputError(f"{source}: {told}") from None


@dataclass(frozen=True)
class Point:
    """One combination of the swept values, and the experiment it makes."""

    values: dict[str, Any]
    experiment: Experiment

    @property
    def where(self) -> str:
        """Say for errors which point it is."""
        return "".join(f": sweep {key} = {value!r}" for key, value in self.values.items())

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
        The file as it stands, and the overrides as comments.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"there is no configuration file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    for override in overrides:
        table = with_override(table, override)
    if overrides:
        lines = "".join(f"#   {' '.join(override.split())}\n" for override in overrides)
        text = f"{text.rstrip()}\n\n# Changed on the command line:\n{lines}"
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


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+=,]+", "-", text).strip("-")


def run_id(method: Method, point: Point, seed: int) -> str:
    """Return the id of one run: readable, and fit for a folder's name."""
    whole = f"{_slug(method.name)}{point.suffix}__seed={seed}"
    if len(whole.encode()) <= LONGEST_ID:
        return whole
    kept = whole.encode()[: LONGEST_ID - 13].decode(errors="ignore")
    return f"{kept}...{hashlib.sha256(whole.encode()).hexdigest()[:10]}"


def as_json(table: Mapping[str, Any]) -> str:
    """Return the canonical text of a configuration, by which a stopped experiment recognises its own folder."""
    return json.dumps(table, indent=1, sort_keys=True, default=str) + "\n"
