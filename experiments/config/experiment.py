"""Configuration of an experiment, validated as a whole, with its sweeps and cases."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic

from fedkernel.data import DataSpec, PartitionSpec, Prepare
from fedkernel.engines import ENGINES
from fedkernel.experiments.baselines import check_baseline
from fedkernel.experiments.claims import AnyCheck
from fedkernel.experiments.config import sections
from fedkernel.ground import InputError, Precision, Sums, distinct_names, explain, resolve_address
from fedkernel.protocol import Privacy, check_covered
from fedkernel.wire import Deadlines, Quorum, Seconds

CASE_NAME = "case"  # key that may come first in a case: the case's name, which changes nothing

Case = Annotated[dict[str, Any], pydantic.Field(min_length=1)]
Cases = Annotated[
    Annotated[list[Case], pydantic.Tag("(one kind)")]
    | Annotated[dict[str, Annotated[list[Case], pydantic.Field(min_length=1)]], pydantic.Tag("(kinds)")],
    pydantic.Discriminator(lambda value: "(kinds)" if isinstance(value, Mapping) else "(one kind)"),
]

SWEEPABLE = ("data", "partition", "prepare", "privacy", "strategy", "baseline")  # sections that a sweep may change


class Experiment(pydantic.BaseModel):
    """Validated configuration of an experiment, with the text of its file.

    - `name`: name, also of the default output folder.
    - `title`: heading of the report.
    - `seeds`: each method runs once per seed, which decides all that is random, the partition included.
    - `engine`: local, ray, grpc or superlink.
    - `deadline`: seconds that a round may take.
    - `deadlines`: seconds by phase, such as a request's name.
    - `quorum`: number or fraction of clients that must remain for a run to go on, in rounds where its method can; by
      default all.
    - `threads`: BLAS threads of each client and of the coordinator.
    - `evaluate`: measure each strategy's model on the clients, by a round or two more, if its method can.
    - `wire`: type of arrays in messages: float32 takes half of the bytes, and rounds each entry by 6e-8.
    - `sums`: "masked" hides each client's reply in a sum over all, at three times its bytes.
    - `privacy`: noise on masked sums.
    - `folder`: absolute path from which relative ones count; by default the file's folder.
    - `data`: a data set, files or sites.
    - `partition`: division of a data set among clients.
    - `prepare`: preparation of the clients' tables by all of them together.
    - `strategy`: federated methods, a table for each.
    - `baseline`: methods to compare these with, a table for each.
    - `sweep`: lists of values by dotted path, such as ``strategy.NAME.n_components`` or ``strategy.*.rounds``. Each
      value of one list is combined with each of the others.
    - `case`: values that go together, by dotted path, such as a data set and its kernel. Cases are combined with sweeps
      and with those of other kinds, ``[[case.KIND]]``. The first value, which may be ``case = "..."``, names a case.
    - `report`: figures and metrics of the report.
    - `paper`: the paper's result that the experiment repeats.
    - `claim`: sentences of a paper to check against the runs.
    - `quick`: changes that ``--quick`` makes, by dotted path, for a rehearsal of seconds.
    - `rehearsal`: whether `quick` was applied, so that claims about missing settings are no error.
    """

    model_config = sections.STRICT

    name: str = pydantic.Field(pattern=r"^\w[\w.-]*$")
    title: str = ""
    seeds: list[Annotated[int, pydantic.Field(ge=0, lt=2**63)]] = pydantic.Field(default=[0], min_length=1)
    engine: str = "local"
    deadline: Seconds = 3600.0
    deadlines: Deadlines = {}
    quorum: Quorum | None = None
    threads: int = pydantic.Field(default=1, ge=1)
    evaluate: bool = False
    wire: Precision = "float64"
    sums: Sums = "plain"
    privacy: Privacy | None = None
    folder: str | None = None
    data: sections.Data
    partition: PartitionSpec = PartitionSpec()
    prepare: Prepare | None = None
    strategy: list[sections.Method] = []
    baseline: list[sections.Method] = []
    sweep: dict[str, Annotated[list[Any], pydantic.Field(min_length=1)]] = {}
    case: Cases = []
    report: sections.ReportOptions = sections.ReportOptions()
    claim: list[AnyCheck] = []
    paper: sections.Paper | None = None
    quick: dict[str, Any] = {}
    rehearsal: bool = False

    _table: dict[str, Any] = pydantic.PrivateAttr(default_factory=dict)
    _text: str = pydantic.PrivateAttr("")
    _source: str = pydantic.PrivateAttr("")

    @pydantic.field_validator("folder")
    @classmethod
    def _is_absolute(cls, folder: str | None) -> str | None:
        if folder is not None and not Path(folder).is_absolute():
            raise ValueError(f"{folder!r} must be an absolute path; by default it is the folder of the file")
        return folder

    @pydantic.field_validator("data")
    @classmethod
    def _has_absolute_paths(cls, data: Any, info: pydantic.ValidationInfo) -> Any:
        return data if isinstance(data, sections.Sites) else data.within(info.data.get("folder") or Path())

    @pydantic.field_validator("strategy", "baseline", "case", "claim", mode="before")
    @classmethod
    def _is_list(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if isinstance(value, Mapping) and not (info.field_name == "case" and _is_kinds(value)):
            raise ValueError(f"its table must be written with double brackets, [[{info.field_name}]]")
        return value

    @pydantic.field_validator("sweep", "case", mode="before")
    @classmethod
    def _is_flat(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if info.field_name == "sweep" or not isinstance(value, Mapping):
            tables = value if isinstance(value, list) else [value]
        elif _is_kinds(value):
            tables = [table for cases in value.values() for table in cases]
        else:
            return value  # `_is_list` raises the error
        for key, values in (item for table in tables if isinstance(table, Mapping) for item in table.items()):
            if key.partition(".")[0] not in SWEEPABLE and (info.field_name, key) != ("case", CASE_NAME):
                raise ValueError(f"{key!r} cannot be swept, only what is inside {', '.join(SWEEPABLE)}")
            if isinstance(values, Mapping) and "." not in key:
                raise ValueError(f'a dotted path must be in quotes, such as "partition.clients" (found {key} = ...)')
        return value

    @pydantic.field_validator("case")
    @classmethod
    def _is_alike(cls, value: list[Case] | dict[str, list[Case]]) -> list[Case] | dict[str, list[Case]]:
        first: dict[str, str] = {}
        for kind, cases in _kinds(value).items():
            what = f"{kind}." if kind else ""
            for number, case in enumerate(cases):
                if list(case) != list(cases[0]):
                    listed = f"{_listed(case)}, but all must have the keys {_listed(cases[0])}"
                    raise ValueError(f"case.{what}{number} has {listed}")
            for key in cases[0] if cases else ():
                if key in first:
                    raise ValueError(f"case.{kind}: {key!r} is in case.{first[key]} already; it can be in one only")
                first[key] = kind
        return value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        if isinstance(self.data, sections.Sites) and (self.sums == "masked") != bool(self.data.identities):
            keys = "each site's line of `fedkernel identity FILE --name NAME --public`"
            raise ValueError(f'sums = "masked" and a table data.identities, of {keys}, need each other')
        if self.privacy is not None:
            check_covered(self.prepare, masked=self.sums == "masked")
        if self.engine not in ENGINES:
            raise ValueError(f"engine = {self.engine!r}, but must be one of {', '.join(ENGINES)}")
        if both := [key for cases in self.kinds for key in cases[0] if key in self.sweep]:
            raise ValueError(f"sweep.{both[0]}: the cases set it already; it can be in one of the two only")
        sections.refuse_repetition(self.seeds, "seeds: ")
        for key, values in self.swept.items():
            sections.refuse_repetition(values, f"case: {key}: " if key not in self.sweep else f"sweep.{key}: ")
        methods = [*self.strategy, *self.baseline]
        if not methods:
            raise ValueError("at least one [[strategy]] or [[baseline]] is needed")
        names = [method.name for method in methods]
        sections.refuse_repetition(names, "name = ")
        for table in self.strategy:
            resolve_address(table.method, "pairs", f"strategy {table.name!r}: method")
        for table in self.baseline:
            check_baseline(table.method, f"baseline {table.name!r}: method")
        if not isinstance(self.data, DataSpec):
            if self.partition != PartitionSpec():
                key = "shards" if isinstance(self.data, sections.Shards) else "sites"
                raise ValueError(f"partition has no meaning with data.{key}, the clients' parts; allowed: none")
            if isinstance(self.data, sections.Sites) and self.baseline:
                raise ValueError("baseline has no meaning with data.sites, in more than one place; allowed: none")
        elif self.clients is None:
            raise ValueError("partition.clients is required (or sizes, or columns)")
        self._check_claims(names)
        return self

    def _check_claims(self, names: list[str]) -> None:
        """Raise ValueError for claims about methods or settings without a run."""
        for number, claim in enumerate(self.claim):
            for name in claim.methods:
                if name not in names:
                    raise ValueError(f"claim.{number}: there is no method named {name!r}, only {_listed(names)}")
            if self.rehearsal:
                continue
            for key, value in (item for where in claim.conditions for item in where.items()):
                if key not in self.swept:
                    swept = _listed(self.swept) or "nothing"
                    raise ValueError(f"claim.{number}: {key!r} is not swept (swept: {swept})")
                if value not in (values := self.swept[key]):
                    raise ValueError(f"claim.{number}: {key} = {value!r}, but must be one of {_listed(values)}")
            if unknown := [key for key in getattr(claim, "along", []) if key not in self.swept]:
                raise ValueError(f"claim.{number}: along has {unknown[0]!r}, which is not swept")

    @property
    def table(self) -> dict[str, Any]:
        """Configuration as a table, with overrides applied."""
        return self._table

    @property
    def text(self) -> str:
        """Text of the configuration file as the user wrote it."""
        return self._text

    @property
    def source(self) -> str:
        """Name of the configuration file."""
        return self._source

    @property
    def clients(self) -> int | None:
        """Number of clients, or None if the configuration does not determine it."""
        if isinstance(self.data, sections.Shards):
            return len(self.data.shards)
        if isinstance(self.data, sections.Sites):
            return len(self.data.sites)
        lists = (self.partition.sizes, self.partition.columns)
        return self.partition.clients or next((len(parts) for parts in lists if parts is not None), None)

    @property
    def file_names(self) -> list[str]:
        """Names of the clients' files; empty without files."""
        return distinct_names(self.data.shards) if isinstance(self.data, sections.Shards) else []

    @property
    def metrics(self) -> list[str]:
        """Metrics that the report or a claim names."""
        named = [self.report.metric, *self.report.also, *(getattr(claim, "metric", None) for claim in self.claim)]
        return list(dict.fromkeys(name for name in named if name is not None))

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every combination of swept values and cases, by their first values. Without a sweep, one empty setting."""
        return [dict(zip(self.swept, values, strict=True)) for values in itertools.product(*self.swept.values())]

    @property
    def kinds(self) -> list[list[Case]]:
        """Cases of each kind; empty without any."""
        return [cases for cases in _kinds(self.case).values() if cases]

    @property
    def swept(self) -> dict[str, list[Any]]:
        """Values of each swept parameter, and the first value of each case, by dotted path."""
        firsts = {first: [case[first] for case in cases] for cases in self.kinds for first in [next(iter(cases[0]))]}
        return firsts | self.sweep

    def changes(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return all changes of the configuration in one of the `settings`, by dotted path."""
        firsts = ((case, *next(iter(case.items()))) for cases in self.kinds for case in cases)
        chosen = [case for case, key, value in firsts if setting[key] == value]
        changed = {key: value for case in chosen for key, value in case.items()} | dict(setting)
        return {key: value for key, value in changed.items() if key != CASE_NAME}

    @property
    def settings_and_seeds(self) -> list[tuple[dict[str, Any], int]]:
        """Every pair of setting and seed. In a finished experiment each method has a run of each pair."""
        return [(setting, seed) for setting in self.settings for seed in self.seeds]

    @classmethod
    def from_table(cls, table: Mapping[str, Any], source: str, text: str = "") -> "Experiment":
        """Validate a configuration's table. Raises InputError, a sentence with source, key and allowed values."""
        try:
            experiment = cls.model_validate(table)
        except pydantic.ValidationError as error:
            report, form = (list(kind.model_fields) for kind in (sections.ReportOptions, sections.FileForm))
            inner = {"data": sections.data_fields(table.get("data")), "report": report, "data.forms.*": form}
            for section, kind in (("partition", PartitionSpec), ("prepare", Prepare)):
                inner[section] = [field.name for field in dataclasses.fields(kind)]
            finding = explain(error, list(cls.model_fields), validated=table, inner=inner)
            raise InputError(f"{source}: {finding}") from None
        experiment._table, experiment._source, experiment._text = dict(table), source, text
        return experiment


def _kinds(cases: list[Case] | dict[str, list[Case]]) -> dict[str, list[Case]]:
    return cases if isinstance(cases, dict) else {"": cases}


def _is_kinds(value: Mapping[str, Any]) -> bool:
    """Return whether a ``case`` table holds cases of several kinds, each a list of tables."""
    return all(
        isinstance(cases, list) and bool(cases) and all(isinstance(case, Mapping) for case in cases)
        for cases in value.values()
    )


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(repr, values))
