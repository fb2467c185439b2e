"""Result of a run: model, simulated sites' outputs, costs, metrics and findings."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fedkernel.data import Preparation
from fedkernel.ground import DiskList, InputError, Precision, open_npz, short_repr, write_atomic
from fedkernel.models import FittedModel, Model
from fedkernel.numerics import WeightedPoints
from fedkernel.run.ledger import Ledger
from fedkernel.run.result_plot import draw_result, row_coordinates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

M = TypeVar("M")

POINTS = "points.npz"
"""Name of the file with a simulated run's whole coreset, in a folder that is read at once and removed."""


@dataclass
class Result(Generic[M]):
    """Result of one run. ``Result(model)`` wraps a model without a run.

    - `history`: a row per round: number, phase, wall-clock seconds, clients, floats, bytes, the protocol's own figures.
    - `outputs`: named arrays per client, of simulated sites only: a real site's never leave it.
    - `seconds`: wall-clock time of the run, joining included.
    - `columns`: names of the columns that the model was fitted on, with a horizontal partition of named columns.
    - `preparation`: of the raw columns; with a vertical partition each site keeps its own.
    - `strategy`: address of the strategy's class; empty if unknown.
    - `findings`: choices that the run made by itself, with reasons, and warnings of its evaluation.
    - `wire`: precision of the sent arrays.
    """

    model: M
    ledger: Ledger = field(default_factory=Ledger)
    history: Sequence[dict[str, Any]] = field(default_factory=list)
    outputs: dict[int, dict[str, npt.NDArray[Any]]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    columns: tuple[str, ...] = ()
    preparation: Preparation | None = None
    strategy: str = ""
    findings: list[str] = field(default_factory=list)
    wire: Precision = "float64"

    __repr__ = short_repr

    @property
    def fitted(self) -> FittedModel:
        """Model with its columns, preparation and strategy, to apply to raw tables."""
        return FittedModel(self.model, self.columns, self.preparation, self.strategy)

    def __str__(self) -> str:
        totals = ", ".join(f"{name} {total}" for name, total in self.ledger.totals().items())
        figures = "".join(f", {name} {value:.3g}" for name, value in self.metrics.items())
        wire = "" if self.wire == "float64" else f", wire {self.wire}"
        return f"{type(self.model).__name__}: {totals}{wire}, seconds {self.seconds:.3f}{figures}"

    def _repr_html_(self) -> str:
        """Return a notebook's table of costs and metrics, bars of eigenvalues or rounds, and the findings."""
        figures = {**self.ledger.totals(), "seconds": self.seconds, **self.metrics}
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{value:,.7g}</td></tr>" for name, value in figures.items())
        values, title = getattr(self.model, "eigenvalues_", None), "eigenvalues"
        if values is None:
            values, title = [row.get("floats_up", 0) for row in self.history], "floats up, by round"
        heights = 60 * np.maximum(values, 0.0)[:100] / max(float(np.max(values, initial=0.0)), 1e-300)
        box = '<rect x="{}" y="{:.1f}" width="3" height="{:.1f}"/>'
        bars = "".join(box.format(4 * place, 60 - height, height) for place, height in enumerate(heights))
        picture = f'<svg width="400" height="60" role="img"><title>{title}</title>{bars}</svg><p>{title}</p>'
        findings = "".join(f"<li>{escape(finding)}</li>" for finding in self.findings)
        name = escape(type(self.model).__name__)
        return f"<table><caption>{name}</caption>{rows}</table>{picture}<ul>{findings}</ul>"

    def plot(self) -> "Figure":
        """Draw the rows along two components, the clusters with sizes and silhouettes, and the spectrum.

        A panel for each that the model or simulated sites' outputs hold; of many rows a random sample. Clusters differ
        by marker and hatch, too. Notebooks show the figure, ``figure.savefig("result.png")`` saves it. InputError if
        there is nothing to draw.
        """
        return draw_result(self.model, row_coordinates(self.model, self.outputs))

    def save(self, folder: str | os.PathLike[str], *, whole: bool = False) -> None:
        """Write the result to a folder: ``model.npz``, and last ``result.json``, which marks the folder complete.

        Sites store their outputs themselves. `whole` also writes the coreset that centres were found from: coordinates
        of rows. Raises InputError for a model that `fedkernel.models.save_model` cannot write.
        """
        folder = Path(folder)
        self.fitted.save(folder / "model.npz")
        if whole and (points := getattr(self.model, "coreset_", None)) is not None:
            arrays = points._asdict()
            write_atomic(folder / POINTS, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays), 0o600)
        model_fields = self.model.result_fields() if isinstance(self.model, Model) else {}
        account = {
            "ledger": self.ledger.to_table(),
            "history": list(self.history),
            "metrics": self.metrics,
            "seconds": self.seconds,
            "findings": self.findings,
            **({"model": model_fields} if model_fields else {}),
        } | ({} if self.wire == "float64" else {"wire": self.wire})
        text = json.dumps(account).encode()
        write_atomic(folder / "result.json", lambda file: file.write(text))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Result[Any]":
        """Read a result from its folder, with the arrays that simulated sites wrote there."""
        folder = Path(folder)
        account = json.loads((folder / "result.json").read_text())
        outputs = {}
        for path in folder.glob("client-*.npz"):
            with open_npz(path) as file:
                outputs[int(path.stem.removeprefix("client-"))] = dict(file)
        fitted = FittedModel.load(folder / "model.npz")
        model: Any = fitted.model
        if isinstance(model, Model):
            model = model.with_result_fields(account.get("model", {}))
        if (folder / POINTS).exists():
            with open_npz(folder / POINTS) as file:
                model = replace(model, coreset_=WeightedPoints(**dict(file)))
        return Result(
            model=model,
            ledger=Ledger.from_table(account["ledger"]),
            history=DiskList(account["history"]),
            outputs=dict(sorted(outputs.items())),
            metrics=account["metrics"],
            seconds=account["seconds"],
            columns=fitted.columns,
            preparation=fitted.preparation,
            strategy=fitted.strategy,
            findings=account.get("findings", []),
            wire=account.get("wire", "float64"),
        )


def read_ledger(folder: str | os.PathLike[str]) -> Ledger:
    """Read only the ledger from a result's folder, without the model's class. Raises InputError if it is missing."""
    path = Path(folder) / "result.json"
    try:
        return Ledger.from_table(json.loads(path.read_text())["ledger"])
    except FileNotFoundError:
        raise InputError(f"there is no {path}; allowed: the folder of a run's result") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no run's result ({type(error).__name__})") from None
