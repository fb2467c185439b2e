"""Strategy-client pair under test: its runs on permuted or divided tables, and the record of their messages."""

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import numpy.typing as npt

from fedkernel.ground import FloatArray, InputError
from fedkernel.numerics import orthonormal_basis, sin_theta_error
from fedkernel.peers import Letter, Mailbox
from fedkernel.protocol import KernelClient, Plan, PlanPosition, Reply, Request, advance
from fedkernel.run import Result, RunSettings
from fedkernel.strategy import KernelStrategy, Tags, check_tables, simulated_sites
from fedkernel.wire import shares_rows

SAME, OTHER = 1e-16, 1e-8
"""Errors, squared sines or relative differences, below which results are equal, and above which they differ."""


class NotApplicable(Exception):  # noqa: N818 - it is no error
    """Reason why a property has no meaning for a strategy-client pair."""


@dataclass(frozen=True)
class Exchange:
    """Request to a client in one round, the client's reply, and its letters to other clients."""

    request: Request[Any]
    reply: Reply
    letters: Sequence[Letter]


@dataclass(frozen=True)
class Recording:
    """Recorded run: result, each client's exchanges, and requests that drew random numbers, by client and purpose."""

    result: Result[Any]
    exchanges: Mapping[int, Sequence[Exchange]]
    purposes: Mapping[tuple[int, str], Sequence[str]]

    def outside(self, plan: Plan) -> str:
        """Describe the first recorded request that a plan does not contain, or return an empty text."""
        for client, exchanges in self.exchanges.items():
            place = PlanPosition()
            for request in (exchange.request for exchange in exchanges):
                fields = request.model_dump(mode="json", exclude=set(request.shapes()))
                shapes = {name: array.shape for name, array in request.arrays().items()}
                try:
                    place = advance(plan, place, type(request).__name__, fields, shapes)
                except InputError as error:
                    return f"client {client}: {error}"
        return ""


class Pair:
    """Strategy-client pair under test, with tables to test it on and its expected properties.

    - `shards`: a table per client, at least two: (N, d_m) with a vertical partition, (n_m, d) with a horizontal one.
      Some dozen rows are enough, and none should be at two clients.
    - `tags`, `name`: by default the strategy's own, and its class.
    - `y`: labels (n_m,) of each client's rows, for a client that needs them.
    """

    def __init__(
        self,
        strategy: KernelStrategy[Any],
        shards: Sequence[npt.ArrayLike],
        tags: Tags | None = None,
        name: str | None = None,
        y: Sequence[npt.ArrayLike] | None = None,
    ) -> None:
        self.strategy = strategy
        self.tables = [np.asarray(shard, dtype=np.float64) for shard in shards]
        self.tags = strategy.tags if tags is None else tags
        self.name = name or type(strategy).__name__
        if len(self.tables) < 2:
            raise InputError(f"shards has {len(self.tables)} tables, but a test needs at least 2")
        self.axis = 1 if strategy.partition == "vertical" else 0
        self.y = None if y is None else [np.asarray(labels) for labels in y]

    def __str__(self) -> str:
        return self.name

    def fit(
        self,
        tables: Sequence[npt.ArrayLike],
        *,
        order: Sequence[int] | None = None,
        rows: npt.NDArray[np.intp] | None = None,
        **settings: Any,
    ) -> Result[Any]:
        """Run the strategy on permuted tables, with matching labels. `order`: of the clients. `rows`: of the rows."""
        y = self.y
        if y is not None and order is not None:
            y = [y[number] for number in order]
        if y is not None and (rows is not None or len(tables) == 1):
            order_of_rows = slice(None) if rows is None else rows
            together = [y[0]] * len(tables) if self.axis == 1 else [np.concatenate(y)]
            ends = np.cumsum([np.shape(table)[0] for table in tables])[:-1]
            parts = [labels[order_of_rows] for labels in together]
            y = parts if self.axis == 1 else np.split(parts[0], ends)
        return self.strategy.fit(tables, y=y, **settings)

    def fit_serialised(self) -> Result[Any]:
        """Run the strategy on its tables with serialised messages, as between machines."""
        client, share_rows = self.strategy.client, shares_rows(self.strategy.hyperparameters)
        tables = check_tables(self.tables, "shards", client.table)
        sites = simulated_sites(client, tables, y=self.y, share_rows=share_rows, serialised=True)
        with sites as (grid, outputs):
            result = self.strategy.run(grid, RunSettings(clients=len(tables)))
        result.outputs = outputs
        return result

    @property
    def whole(self) -> FloatArray:
        """All clients' tables, concatenated along the divided axis."""
        return np.concatenate(self.tables, axis=self.axis)

    def divided(self, whole: FloatArray) -> list[FloatArray]:
        """Divide a whole table into parts with the sizes of the clients' tables."""
        ends = np.cumsum([table.shape[self.axis] for table in self.tables])
        return np.split(whole, ends[:-1], axis=self.axis)

    @functools.cached_property
    def recording(self) -> Recording:
        """Recorded run with seed 0, computed once."""
        return record_run(self)

    def outcome(self, result: Result[Any], order: Sequence[int] | None = None) -> list[FloatArray]:
        """Return a run's components (`Tags.components`) as orthonormal bases. Client c held table ``order[c]`` there.

        Bases (N, k): one, or one per vertical client that keeps its own; without components the model's arrays.
        """
        if self.tags.components is None:
            if not (arrays := arrays_of(result.model)):
                raise NotApplicable("tags.components = None, and the model has no arrays that could be compared")
            return list(arrays.values())
        return [orthonormal_basis(part) for part in self.components(result, order)]

    def components(self, result: Result[Any], order: Sequence[int] | None = None) -> list[FloatArray]:
        """Return the arrays that `Tags.components` names: the model's, or else the sites' outputs."""
        name = str(self.tags.components)
        if isinstance(of_model := getattr(result.model, name, None), np.ndarray):
            return [of_model]
        holders = np.argsort(range(len(self.tables)) if order is None else order)
        if not all(name in result.outputs[client] for client in holders):
            text = f"neither the model nor every site's outputs have {name!r}, as tags.components says"
            self.fail("components", text)
        parts = [result.outputs[int(client)][name] for client in holders]
        return parts if self.axis == 1 else [np.vstack(parts)]

    def error(self, result: Result[Any], order: Sequence[int] | None = None, rows: Any = None) -> float:
        """Return the distance of a run's result from the recorded one. `rows`: permutation of the rows in this run."""
        before, after = self.outcome(self.recording.result), self.outcome(result, order)
        if self.tags.components is not None and rows is not None:
            before = [basis[rows] for basis in before]
        if [array.shape for array in before] != [array.shape for array in after]:
            return math.inf
        distance = _squared_difference if self.tags.components is None else sin_theta_error
        return max(distance(*arrays) for arrays in zip(before, after, strict=True))

    def central(self, tables: Sequence[FloatArray], result: Result[Any]) -> Any:
        """Compute the strategy's `central` at a run's kernel widths; NotApplicable if it has none."""
        try:
            return self.strategy.as_run(result).central(tables)
        except NotImplementedError as error:
            raise NotApplicable(str(error)) from None

    def fail(self, check: str, text: str) -> NoReturn:
        """Raise the AssertionError of a failed property."""
        raise AssertionError(f"{check}, {self.name}, {self.strategy!r}: {text}")

    def require(self, holds: bool, check: str, text: str) -> None:
        """Raise the AssertionError of a property unless the property holds."""
        if not holds:
            self.fail(check, text)

    def require_promised(self, check: str, what: str, tag: str, error: float) -> None:
        """Raise AssertionError unless an error is small where its tag is true, and large where it is false."""
        promised = getattr(self.tags, tag)
        if promised and error > SAME:
            self.fail(check, f"{what} {_changes(error)}, but tags.{tag} = True")
        if not promised and error < OTHER:
            self.fail(check, f"{what} {_changes(error)} only, but tags.{tag} = False")

    def require_same_or_drawn(self, check: str, what: str, error: float, tag: str | None = None) -> None:
        """Raise AssertionError unless results are equal. With drawn rows they must differ, by up to `Tags.draws`."""
        draws, promised = self.tags.draws, f"tags.{tag} = True and " if tag else ""
        if draws and not OTHER < error <= draws:
            self.fail(check, f"{what} {_changes(error)}, but {promised}tags.draws = {draws:g} says up to that")
        if not draws and error > SAME:
            self.fail(check, f"{what} {_changes(error)}, but {promised}tags.draws = 0")


def record_run(pair: Pair, *, evaluate: bool = False) -> Recording:
    """Run a strategy with seed 0, and record its clients' exchanges and draws of random numbers."""
    exchanges: dict[int, list[Exchange]] = defaultdict(list)
    purposes: dict[tuple[int, str], list[str]] = defaultdict(list)
    letters: dict[int, list[Letter]] = defaultdict(list)
    pending: dict[int, str] = {}
    respond, rng, write = KernelClient._respond, KernelClient.rng, Mailbox.write

    def noting_answers(self: KernelClient, answer: Any, request: Request[Any], config: Any) -> Reply:
        pending[self.client] = type(request).__name__
        reply = respond(self, answer, request, config)
        exchanges[self.client].append(Exchange(request, reply, letters.pop(self.client, [])))
        return reply

    def noting_draws(self: KernelClient, purpose: str) -> np.random.Generator:
        purposes[self.client, purpose].append(pending[self.client])
        return rng(self, purpose)

    def noting_letters(self: Mailbox, peer: int, letter: Letter) -> None:
        letters[self.client].append(letter)
        write(self, peer, letter)

    with (
        mock.patch.object(KernelClient, "_respond", noting_answers),
        mock.patch.object(KernelClient, "rng", noting_draws),
        mock.patch.object(Mailbox, "write", noting_letters),
    ):
        return Recording(pair.fit(pair.tables, evaluate=evaluate), exchanges, purposes)


def arrays_of(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Return a model's arrays by name; a model without attributes is itself the array."""
    if model is None:
        return {}
    if isinstance(model, np.ndarray) or not hasattr(model, "__dict__"):
        return {"value": np.asarray(model)}
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


def bits_of(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return each array's dtype, shape and bytes, which are equal only if all bits are."""
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def _changes(error: float) -> str:
    between = f" (neither equal, {SAME:g}, nor different, {OTHER:g}: try other tables or settings)"
    return f"changes the result by {error:.1e}" + (between if SAME < error < OTHER else "")


def _squared_difference(first: FloatArray, second: FloatArray) -> float:
    size = max(float(np.square(first).max(initial=0.0)), float(np.finfo(np.float64).tiny))
    return float(np.square(first - second).max(initial=0.0)) / size
