"""Sections of a configuration file: methods, data, report and paper."""

import dataclasses
import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import pydantic

from fedkernel.data import DataSpec, SiteFile
from fedkernel.engines.grpc.certificates import check_name
from fedkernel.experiments.claims.checks import Measured
from fedkernel.ground import listed, shortened
from fedkernel.models import check_metric
from fedkernel.wire import MOST_SITES

T = TypeVar("T")
STRICT = pydantic.ConfigDict(extra="forbid", frozen=True)

_READING = [field for field in dataclasses.fields(SiteFile) if field.name not in ("path", "allowed", "hidden")]
READING_OPTIONS = tuple(field.name for field in _READING)
"""Options of `fedkernel join` for reading a file, also allowed in ``[data]`` with ``shards``."""


def refuse_repetition(values: list[T], prefix: str = "") -> list[T]:
    """Return the values. Raises ValueError, which begins with `prefix`, if two are equal."""
    if again := [value for place, value in enumerate(values) if value in values[:place]]:
        raise ValueError(f"{prefix}{again[0]!r} is listed twice, but the values must differ")
    return values


SiteName = Annotated[str, pydantic.AfterValidator(check_name)]


class Method(pydantic.BaseModel):
    """Table ``[[strategy]]`` or ``[[baseline]]``: a name, a method, and the method's own parameters.

    - `name`: name in tables and plots, unique in the file.
    - `method`: a strategy's class such as ``DKPCA``, or a baseline such as ``central KPCA``.
    - `group`: methods of one group are drawn together.
    """

    model_config = pydantic.ConfigDict(extra="allow", frozen=True)

    name: str = pydantic.Field(min_length=1)
    method: str
    group: str | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the method, apart from its name, class and group."""
        return dict(self.model_extra or {})


if TYPE_CHECKING:

    class _ReadingOptions(pydantic.BaseModel):
        """Base model with the fields of `READING_OPTIONS`, their types and defaults."""

else:
    _hints = get_type_hints(SiteFile)
    _fields = {field.name: (_hints[field.name], field) for field in _READING}
    _ReadingOptions = pydantic.create_model("_OfFiles", __config__=STRICT, **_fields)


class FileForm(pydantic.BaseModel):
    """Table ``[data.forms."FILE"]`` with the format of a single file that differs from the others."""

    model_config = STRICT

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: int | None = None


class Shards(_ReadingOptions):
    """Table ``[data]`` with one file per client, in place of a data set to divide.

    The options for reading hold for all files. All must have the ids; one must have a column to `drop` and, where
    columns are divided, any other that is named.

    - `shards`: paths, or patterns with ``*`` and ``?``, whose files are taken in the order of their names.
    - `missing`: treatment of rows that not all files have, with columns divided and ids.
    - `forms`: ``delimiter``, ``decimal``, ``encoding`` and ``header`` of single files, by path.
    """

    model_config = STRICT

    shards: list[str] = pydantic.Field(min_length=1)
    missing: Literal["drop", "refuse"] = "drop"
    forms: dict[str, FileForm] = pydantic.Field(default_factory=dict)

    @pydantic.field_validator("forms", mode="before")
    @classmethod
    def _are_of_files(cls, forms: Any) -> Any:
        for name in FileForm.model_fields:
            if isinstance(forms, Mapping) and not isinstance(forms.get(name, {}), Mapping):
                raise ValueError(f'{name} is of one file; allowed: its table, [data.forms."FILE"], with {name}')
        return forms

    def __hash__(self) -> int:
        return hash((*self.shards, self.missing))  # of a list there is none

    @property
    def reading(self) -> dict[str, Any]:
        """Reading options that the table sets."""
        values = {name: getattr(self, name) for name in READING_OPTIONS if name in self.model_fields_set}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    @property
    def files(self) -> list[SiteFile]:
        """Files of the clients with their reading options."""
        own = {path: form.model_dump(exclude_none=True) for path, form in self.forms.items()}
        return [SiteFile(path, **self.reading | own.get(path, {})) for path in self.shards]

    def within(self, folder: str | os.PathLike[str]) -> "Shards":
        """Return a copy with absolute paths, relative ones taken from `folder`, and patterns expanded."""

        def absolute(file: str) -> str:
            return str(Path(folder, Path(file).expanduser()).resolve())

        _ = self.files  # refuses options that contradict each other
        paths = [match for file in self.shards for match in _matches(absolute(file))]
        if others := [file for file in self.forms if absolute(file) not in paths]:
            raise ValueError(
                f"forms has {others[0]!r}, which is none of the files in shards; allowed: {listed(self.shards)}"
            )
        forms = {absolute(file): form for file, form in self.forms.items()}
        return self.model_copy(update={"shards": paths, "forms": forms})


def _matches(path: str) -> list[str]:
    """Return a path, or the files that match it if it is a pattern."""
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    if matches := sorted(match for match in glob.glob(path) if Path(match).is_file()):
        return matches
    raise ValueError(f"no file matches {path}; allowed: patterns that some file matches, and paths")


class Sites(pydantic.BaseModel):
    """Table ``[data]`` with named sites that hold their own data, for `fedkernel serve`.

    - `sites`: names of the sites, in the order of the clients' numbers.
    - `missing`: treatment of rows that not all sites have, with columns divided and ids.
    - `share_model`: whether all sites get each run's model.
    - `joint_seed`: whether the sites draw each run's seed together; by default where replies are drawn from it.
    - `identities`: with ``sums = "masked"``, each site's public keys, as `fedkernel identity --public` prints them.
    - `signatures`: the study's, as `fedkernel study sign` prints them.
    """

    model_config = STRICT

    sites: list[SiteName] = pydantic.Field(min_length=1, max_length=MOST_SITES)
    missing: Literal["drop", "refuse"] = "drop"
    share_model: bool = False
    joint_seed: bool | None = None
    identities: dict[SiteName, str] = {}
    signatures: list[str] = []

    @pydantic.field_validator("sites")
    @classmethod
    def _differ(cls, values: list[str]) -> list[str]:
        return values if len(set(values)) == len(values) else refuse_repetition(values)

    @pydantic.model_validator(mode="after")
    def _identities_are_of_sites(self) -> "Sites":
        if self.identities and self.identities.keys() != set(self.sites):
            raise ValueError(f"identities has keys of {', '.join(self.identities)}; allowed: one for each of the sites")
        for name, key in self.identities.items():
            if not re.fullmatch("[0-9a-f]{128}", key):
                printed = "128 hexadecimal digits, as fedkernel identity --public prints them"
                raise ValueError(f"identities.{name} = {key!r} is no public key; allowed: {printed}")
        return self


class ReportOptions(pydantic.BaseModel):
    """Table ``[report]``: figures and metrics of the report.

    - `plots`: whether figures are drawn.
    - `metric`: metric of the console's table and the figures. By default, and if no run has it, the error, or the
      first that any run has of simplified_silhouette, nmi, ari, stability and all others.
    - `also`: further metrics, or counts such as ``seconds``, to draw against each swept number; metrics also against
      floats and rounds.
    - `by_iteration`: values to draw against the outer iteration t, a figure for each; ``floats_up`` is all clients'
      upload in an iteration.
    - `images`: whether columns are pixels of square images, as which components of divided columns are drawn; runs
      finished without it have none.
    - `rows`: whether rows are drawn along the first two components of the first seed; by default where nothing is swept
      and rows have classes or clusters; runs finished without it have none.
    - `reference`: whether runs are compared with the central answer, which may need too much memory.
    """

    model_config = STRICT

    plots: bool = True
    metric: str | None = None
    also: list[Measured] = []
    by_iteration: list[Annotated[str, pydantic.Field(min_length=1)]] = []
    images: bool = False
    rows: bool | None = None
    reference: bool = True

    @pydantic.field_validator("metric")
    @classmethod
    def _is_metric(cls, metric: str | None) -> str | None:
        return None if metric is None else check_metric(metric)

    @pydantic.field_validator("also", "by_iteration")
    @classmethod
    def _differ(cls, values: list[str]) -> list[str]:
        return refuse_repetition(values)


class Paper(pydantic.BaseModel):
    """Table ``[paper]``: the paper's result that an experiment reproduces, and differences in the setting.

    - `name`: the paper's method, by which experiments are grouped.
    - `shows`: what the paper has, such as ``figure 2a``, ``figures 13 and 14`` or ``table II``.
    - `setting`: the paper's setting.
    - `here`: the setting here if it is another, and why.
    - `plots`: drawn figures to show, by file name without ending; by default the first.
    - `memory`: memory in GB, so that experiments run in parallel only while all fit.
    """

    model_config = STRICT

    name: str = pydantic.Field(min_length=1)
    shows: str = pydantic.Field(min_length=1)
    setting: str = ""
    here: str = ""
    plots: list[str] = []
    memory: float = pydantic.Field(default=1.0, gt=0)


def data_fields(value: Any) -> list[str]:
    """Return the keys that a ``[data]`` table of this kind allows."""
    kind = DATA_KINDS.get(_data_kind(value).strip("()"))
    if kind is None:
        return [field.name for field in dataclasses.fields(DataSpec)]
    return sorted(kind.model_fields, key=lambda name: name in READING_OPTIONS)


DATA_KINDS: dict[str, type[Shards | Sites]] = {"shards": Shards, "sites": Sites}
"""Kinds of ``[data]`` tables by their distinctive key; any other table is a `DataSpec`."""

_PURPOSES = {
    "shards": "files in one place, one for each client (shards)",
    "sites": "sites that hold their own data and join fedkernel serve (sites)",
    "name": "a data set that is divided in one place (name)",
}


def _data_kind(value: Any) -> str:
    keys = value if isinstance(value, Mapping) else ()
    kinds = (key for key, kind in DATA_KINDS.items() if isinstance(value, kind) or key in keys)
    return f"({next(kinds, 'set')})"


def _of_one_kind(value: Any) -> Any:
    """Raise ValueError for a ``[data]`` table without a kind, or with a key of another kind."""
    if not isinstance(value, Mapping):
        return value
    kind, allowed = _data_kind(value).strip("()"), data_fields(value)
    own = kind if kind in DATA_KINDS else "name"
    for key in (key for key in value if key not in allowed):
        if others := [other for other in _PURPOSES if key in data_fields({other: None})]:
            given = f"{key} = {shortened(repr(value[key]))} is for {_PURPOSES[others[0]]}"
            raise ValueError(f"{given}, but this table is of {_PURPOSES[own]}; allowed here: {', '.join(allowed)}")
    if own not in value and {*value} <= {*allowed}:
        raise ValueError("name is required, or shards or sites")
    return value


Data = Annotated[
    Annotated[
        Annotated[DataSpec, pydantic.Tag("(set)")]
        | Annotated[Shards, pydantic.Tag("(shards)")]
        | Annotated[Sites, pydantic.Tag("(sites)")],
        pydantic.Discriminator(_data_kind),
    ],
    pydantic.BeforeValidator(_of_one_kind),
]
