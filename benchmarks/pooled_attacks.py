"""Attacks on any pair's sums: a search for tables at which the pair's own clients, asked the same, give the same sums.

Nothing here names a message: sums are known by their class, and a client is its own model. Rows count as recovered if
they are off by less than `NEAR` of their mean length; their order stays unknown, but where columns are divided d + 1 of
the rows are known.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from attacks.algebra import in_order_of
from attacks.target import CANCER, STUDIES, WINE

from fedkernel.clients.landmark_base import Landmarks
from fedkernel.ground import FedkernelError
from fedkernel.protocol import CarriesRows, Guards, KernelClient, Summed, allowed_numbers, decode, wire_of
from fedkernel.strategy import KernelStrategy, strategy_of

NEAR, FITS = 0.1, 1e-9
"""Relative errors of a row that is recovered, and of sums that fit."""

KINDS = ("all sites", "one site apart", "a fifth of a site's rows apart", "one row apart")
"""The sums of one run, or the difference of two that are asked the same: without a site, or without rows of one."""

BY_ROWS: Mapping[str, Callable[[int], Mapping[str, Any]]] = {
    "CentroidKMeans": lambda size: {"n_clusters": 2, "n_landmarks": size, "rounds": 1},
    "CentroidKPCA": lambda size: {"n_components": 2, "n_landmarks": size, "rounds": 1},
    "DisKPCA": lambda size: {"n_components": 2, "n_adaptive": 3, "embedding_size": size, "share_rows": True},
    "FKKMeans": lambda size: {"n_clusters": 2, "n_components": 2, "n_features": size, "iterations": 20},
    "SpectralKMeans": lambda size: {"n_clusters": 2, "components": BY_ROWS["UniformKPCA"](size)},
    "UniformKPCA": lambda size: {"n_components": 2, "n_samples": size, "share_rows": True},
}
BY_COLUMNS = {name: {"n_components": 1, "merge": "exact", "rounds": 40} for name in ("VFedPCA", "VFedAKPCA")}
"""Parameters by which a pair sends as many numbers as guards let through; others have those of their study."""

Requests = Mapping[int, Sequence[tuple[type[KernelClient], Any]]]
"""By site, each request that it answered, with the class that did."""


class Recovered(NamedTuple):
    """Sums for each entry that is sought, the share of the rows that are recovered, and their median error."""

    equations: float
    near: float
    median: float


def tables(vertical):
    """Return the tables of three sites."""
    X = (CANCER if vertical else WINE)[np.random.default_rng(1).permutation(len(CANCER if vertical else WINE))]
    return np.array_split(X[:20, :15], 3, axis=1) if vertical else np.array_split(X[:30, :3], 3)


def strategies_of(pair: str) -> Iterator[KernelStrategy[Any]]:
    """Yield a pair in several sizes, or as in its study."""
    for size in (3, 4, 5, 6, 8, 11, 14, 18, 22) if pair in BY_ROWS else (0,):
        with suppress(FedkernelError):
            yield strategy_of(pair, BY_ROWS[pair](size) if size else BY_COLUMNS.get(pair, STUDIES[pair]))


def most_requests(pair: str, tables: Sequence[Any], share: float, *, chosen: bool = False) -> Requests:
    """Return the requests of the honest run for most sums that guards of this `table_share` let through.

    `chosen`: with random rows of the coordinator's in place of rows in requests, as many as the run may have.
    """
    best: tuple[int, Requests] = -1, {}
    for strategy in strategies_of(pair):
        requests = requests_of(strategy, tables, share)
        if chosen:
            requests = {site: [(kind, _with_rows(own, strategy)) for kind, own in requests[site]] for site in requests}
        numbers = sum(map(len, sums_of(tables[0], requests, 0).values()))
        if best[0] < numbers <= allowed_numbers(tables[0].size, share):
            best = numbers, requests
    return best[1]


def _with_rows(request: Any, strategy: Any) -> Any:
    if not isinstance(request, CarriesRows) or not issubclass(request.reply_type, Summed):
        return request
    rows = np.random.default_rng(0).standard_normal((strategy.n_landmarks, request.width))
    return request.model_copy(update=CarriesRows.of(rows))


def requests_of(strategy: KernelStrategy[Any], tables: Sequence[Any], share: float) -> Requests:
    """Return the requests of an honest run, up to the first that guards of this `table_share` refuse."""
    requests: dict[int, list[Any]] = {site: [] for site in range(len(tables))}
    with _at_sites(requests, Guards(table_share=share)), suppress(FedkernelError):
        strategy.fit(tables, seed=0, evaluate=True)
    least = min(map(len, requests.values()))
    return {site: own[:least] for site, own in requests.items()}


@contextmanager
def _at_sites(requests: dict[int, list[Any]], guards: Guards) -> Iterator[None]:
    fit = KernelClient.fit

    def landmarks(site: Any) -> Any:
        return site._landmarks() if Landmarks.known(site.memory) else None

    def guarded(self: KernelClient, parameters: Any, config: Any) -> Any:
        self.guards, before = guards, landmarks(self)
        result = fit(self, parameters, config)
        request = decode(self.handlers[config["message"]][0], parameters, config, wire_of(config))
        if isinstance(request, CarriesRows):  # the coordinator knows those that the site drew, too
            new = landmarks(self)[0 if before is None else len(before) :]
            request = request.model_copy(update={"before": 0, **CarriesRows.of(new)})
        if not self.reply.disclosed:
            requests[self.client].append((type(self), request))
        return result

    KernelClient.fit = guarded  # type: ignore[method-assign]
    try:
        yield
    finally:
        KernelClient.fit = fit  # type: ignore[method-assign]


def sums_of(X: Any, requests: Requests, site: int) -> dict[int, Any]:
    """Return the numbers of each of a site's summed replies, by its place, but of those that such a table has not."""
    memory: dict[str, Any] = {}
    numbers, derived = {}, {kind: {} for kind, _ in requests[site]}
    summed = [place for place, (_, request) in enumerate(requests[site]) if issubclass(request.reply_type, Summed)]
    for place, (kind, request) in enumerate(requests[site][: max(summed, default=-1) + 1]):
        with suppress(Exception):
            client = kind(X, client=site, memory=memory, share_rows=True, derived=derived[kind])
            reply = getattr(client, kind.handlers[type(request).__name__][1])(request)
            if place in summed:
                numbers[place] = np.concatenate([array.ravel() for array in reply.arrays().values()])
    return numbers


def without_rows(requests: Requests, rows: int) -> Requests:
    """Return the same requests to sites that lack the first rows: vectors over the rows lack these entries."""

    def shorter(request: Any) -> Any:
        over = {name: shape.dimensions for name, shape in request.shapes().items() if shape.dimensions[:1] == ("N",)}
        return request.model_copy(
            update={name: array[rows:] for name, array in request.arrays().items() if name in over}
        )

    return {site: [(kind, shorter(request)) for kind, request in own] for site, own in requests.items()}


def recover(
    tables: Sequence[Any], requests: Requests, what: str, *, vertical: bool, seconds: float
) -> Recovered | None:
    """Attack the sums of these requests; None if they are fewer than a row has entries."""
    apart = {KINDS[2]: max(1, len(tables[0]) // 5), KINDS[3]: 1}.get(what, 0)
    seen = tables if what == KINDS[0] or (vertical and apart) else tables[:1]
    known = sum(X.shape[1] for X in seen) + 1 if vertical else 0
    runs = [(0, requests), (apart, without_rows(requests, apart))] if vertical and apart else [(0, requests)]
    wholes = [[sums_of(X[skip:], own, site) for skip, own in runs] for site, X in enumerate(seen)]
    places = [place for place in wholes[0][0] if all(place in run for site in wholes for run in site)]

    def sums(X: Any, site: int) -> Any:
        replies = [sums_of(X[skip:], own, site) for skip, own in runs]
        if any(place not in run or not np.isfinite(run[place]).all() for place in places for run in replies):
            return np.full(goal.size, 1e100)
        return np.concatenate([np.zeros(0), *(run[place] for place in places for run in replies)])

    if not vertical:  # of sums by groups, how these change with the rows is no help to a search
        places = [place for place in places if place in _adding(tables[0].shape, requests)]
    if apart and not vertical:  # of sums over rows, that of the missing ones is left
        rest, seen = sums_of(tables[0][apart:], requests, 0), [tables[0][:apart]]
        goal = np.concatenate([np.zeros(0), *(wholes[0][0][place] - rest[place] for place in places)])
    else:
        goal = np.zeros(sum(run[place].size for place in places for run in wholes[0]))
        goal = sum(sums(X, site) for site, X in enumerate(seen))
    free = [np.arange(X.shape[0])[:, None] + np.zeros(X.shape) < len(X) - known for X in seen]
    if goal.size < seen[0].shape[1]:
        return None
    rng, latest, fits = np.random.default_rng(0), time.process_time() + seconds, (seen, math.inf)
    guesses: Any = [_by_known_rows(X, known, wholes, places) for X in seen] if vertical else None
    while time.process_time() < latest and fits[1] > FITS:
        guesses = guesses or [0.7 * rng.standard_normal(X.shape) for X in seen]
        start = [np.where(own, guess, X) for own, guess, X in zip(free, guesses, seen, strict=True)]
        fits, guesses = min(fits, search(sums, goal, start, free, latest), key=lambda pair: pair[1]), None
    true, nearest = (
        np.concatenate(rows, axis=1 if vertical else 0)[: (apart or -known or None)] for rows in (seen, fits[0])
    )
    errors = np.linalg.norm(true - (nearest if vertical else in_order_of(true, nearest)), axis=1)
    errors /= np.linalg.norm(np.vstack(seen) if not vertical else np.hstack(seen), axis=1).mean()
    equations = goal.size / sum(own.sum() for own in free)
    return Recovered(float(equations), float((errors < NEAR).mean()), float(np.median(errors)))


def _adding(shape: tuple[int, int], requests: Requests) -> set[int]:
    """Return the places of replies that are sums over rows, as made-up rows show."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, *shape))
    whole, *parts = (sums_of(X, requests, 0) for X in (np.vstack([A, B]), A, B))
    both = {place for place in whole if all(place in part for part in parts)}
    return {place for place in both if np.allclose(whole[place], sum(part[place] for part in parts), atol=1e-9)}


def _by_known_rows(X: Any, known: int, wholes: Any, places: Sequence[int]) -> Any:
    """Return the rows that an affine map of sums with a number for each row gives, if it gives the last, known ones."""
    totals = (sum(site[0][place] for site in wholes) for place in places)
    columns = [total.reshape(len(X), -1) for total in totals if total.size % len(X) == 0]
    extended = np.hstack([np.ones((len(X), 1)), *(own / np.linalg.norm(own, axis=0) for own in columns)])
    return extended @ np.linalg.lstsq(extended[-known:], X[-known:], rcond=None)[0]


def search(sums: Callable[[Any, int], Any], goal: Any, start: Sequence[Any], free: Sequence[Any], latest: float) -> Any:
    """Return tables whose sums are near to `goal`, by Levenberg and Marquardt's method; and their misfit.

    `sums`: of a table and the number of its site. `free`: which entries are sought, by table. `latest`: process time.
    """
    scale = float(np.sqrt(np.square(goal).mean())) or 1.0

    def misfit(tables: Sequence[Any]) -> tuple[Any, Any]:
        parts = [sums(X, site) for site, X in enumerate(tables)]
        return parts, (sum(parts) - goal) / scale

    tables, damping, slow = list(start), 1e-2, 0
    parts, gap = misfit(tables)
    while time.process_time() < latest and gap @ gap > FITS**2 / 1e6 and damping < 1e9 and slow < 15:
        columns = []
        for site, X in enumerate(tables):
            for entry in zip(*np.nonzero(free[site]), strict=True):
                moved = X.copy()
                moved[entry] += 1e-6
                columns.append((sums(moved, site) - parts[site]) / 1e-6 / scale)
        J, lower = np.array(columns).T, False
        while not lower and damping < 1e9:
            damped = np.vstack([J, math.sqrt(damping) * np.eye(J.shape[1])])
            step = np.linalg.lstsq(damped, np.concatenate([-gap, np.zeros(J.shape[1])]), rcond=None)[0]
            nearer = [X.copy() for X in tables]
            for X, own, change in zip(
                nearer, free, np.split(step, np.cumsum([own.sum() for own in free])[:-1]), strict=True
            ):
                X[own] += change
            nearer_parts, nearer_gap = misfit(nearer)
            if lower := bool(nearer_gap @ nearer_gap < gap @ gap):
                slow = slow + 1 if nearer_gap @ nearer_gap > 0.9 * (gap @ gap) else 0
                tables, parts, gap = nearer, nearer_parts, nearer_gap
            damping *= 0.2 if lower else 4
    return tables, float(np.sqrt(gap @ gap / gap.size))
