"""Sections of a configuration: methods, data, report and paper."""

import dataclasses
import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import pydantic

from experiments.claims.checks import Measured
from fedkernel.data import DataSpec, SiteFile
from fedkernel.engines.grpc.certificates import check_name
from fedkernel.models import check_metric
from fedkernel.wire import MOST_SITES

T = TypeVar("T")
STRICT = pydantic.ConfigDict(extra="forbid", frozen=True)

OF_FILES = tuple(
    field.name for field in dataclasses.fields(SiteFile) if field.name not in ("path", "allowed", "hidden")
)
"""Options of `fedkernel join` for reading a file, also allowed in ``[data]`` with ``shards``."""


def differing(values: list[T], what: str = "") -> list[T]:
    """Return the values if no two are equal; `what` begins the error."""
    if again := [value for place, value in enumerate(values) if value in values[:place]]:
        raise ValueError(f"{what}{again[0]!r} stands twice, but the values must differ")
    return values


SiteName = Annotated[str, pydantic.AfterValidator(check_name)]


class Method(pydantic.BaseModel):
    """Table ``[[strategy]]`` or ``[[baseline]]``: a name, a method, and the method's own parameters.

    Attributes
    ----------
    name : str
        In tables and plots; unique in the file.
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


if TYPE_CHECKING:

    class _OfFiles(pydantic.BaseModel):
        """The fields of `OF_FILES`, with their types and defaults."""

else:
    _hints = get_type_hints(SiteFile)
    _OfFiles = pydantic.create_model(
        "_OfFiles",
        __config__=STRICT,
        **{field.name: (_hints[field.name], field) for field in dataclasses.fields(SiteFile) if field.name in OF_FILES},
    )


class Shards(_OfFiles):
    """Table ``[data]`` with one file per client, as sites have them, instead of a data set to divide.

    Beside what stands here it takes all that `SiteFile` says of how a file is read and what of it is used, such as
    ``id``, ``label`` and ``columns``, for all files together. Where columns are divided, each file need not have those
    that are named, but one of them must; all must have the ids.
    """

    model_config = STRICT

    shards: list[str] = pydantic.Field(min_length=1)
    missing: Literal["drop", "refuse"] = "drop"

    def __hash__(self) -> int:
        return hash((*self.shards, self.missing))  # of a list there is none

    @property
    def reading(self) -> dict[str, Any]:
        """The options for reading the files that the table sets."""
        values = {name: getattr(self, name) for name in OF_FILES if name in self.model_fields_set}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    @property
    def files(self) -> list[SiteFile]:
        """The files with their reading options."""
        return [SiteFile(path, **self.reading) for path in self.shards]

    def within(self, folder: str | os.PathLike[str]) -> "Shards":
        """Return a copy with absolute paths, relative ones taken from `folder`, and patterns expanded."""
        paths = [str(Path(folder, Path(file).expanduser()).resolve()) for file in self.shards]
        _ = self.files  # refuses options that contradict each other
        return self.model_copy(update={"shards": [match for path in paths for match in _matches(path)]})


def _matches(path: str) -> list[str]:
    """Return the path, or the files that match it if it is a pattern."""
    if not glob.has_magic(path) or Path(path).exists():
        return [path]
    if matches := sorted(match for match in glob.glob(path) if Path(match).is_file()):
        return matches
    raise ValueError(f"no file matches {path}")


class Sites(pydantic.BaseModel):
    """Table ``[data]`` with named sites that hold their own data, for `fedkernel serve`."""

    model_config = STRICT

    sites: list[SiteName] = pydantic.Field(min_length=1, max_length=MOST_SITES)
    missing: Literal["drop", "refuse"] = "drop"
    share_model: bool = False
    joint_seed: bool | None = None
    signatures: list[str] = []

    @pydantic.field_validator("sites")
    @classmethod
    def _differ(cls, values: list[str]) -> list[str]:
        return values if len(set(values)) == len(values) else differing(values)


class ReportOptions(pydantic.BaseModel):
    """Table ``[report]``: figures and metrics of the report."""

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
        return differing(values)


class Paper(pydantic.BaseModel):
    """Table ``[paper]``: the result of a paper that an experiment reproduces, and differences in the setting."""

    model_config = STRICT

    name: str = pydantic.Field(min_length=1)
    shows: str = pydantic.Field(min_length=1)
    setting: str = ""
    here: str = ""
    plots: list[str] = []
    memory: float = pydantic.Field(default=1.0, gt=0)


def data_fields(value: Any) -> list[str]:
    """Return the keys that a ``[data]`` table of this kind allows."""
    kind = NAMED.get(_which_data(value).strip("()"))
    if kind is None:
        return [field.name for field in dataclasses.fields(DataSpec)]
    return sorted(kind.model_fields, key=lambda name: name in OF_FILES)


NAMED: dict[str, type[Shards | Sites]] = {"shards": Shards, "sites": Sites}
"""Kinds of ``[data]`` tables by their distinctive key; any other table is a `DataSpec`."""


def _which_data(value: Any) -> str:
    kinds = (
        key for key, kind in NAMED.items() if isinstance(value, kind) or (isinstance(value, Mapping) and key in value)
    )
    return f"({next(kinds, 'set')})"


Data = Annotated[
    Annotated[DataSpec, pydantic.Tag("(set)")]
    | Annotated[Shards, pydantic.Tag("(shards)")]
    | Annotated[Sites, pydantic.Tag("(sites)")],
    pydantic.Discriminator(_which_data),
]
