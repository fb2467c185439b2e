"""Declared properties of a strategy's results, such as reproducibility, each tested by `fedkernel.testing`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tags:
    """Declared properties of a strategy's results; a test fails both if one is wrongly set and wrongly unset.

    A class declares, as its attribute ``tags``, the properties of its default settings after its iterations have
    converged. A test of other settings replaces some: ``check_pair(strategy, shards,
    tags=dataclasses.replace(strategy.tags, rotations=False))``.

    - `components`: name of the array, with a row for each row of the tables, whose columns span the result: an
      attribute of the model, or of the sites' outputs (with a horizontal partition of their own rows). None: the result
      is the model's arrays, entry by entry.
    - `orthonormal`: the components, divided by the roots of the model's ``eigenvalues_`` if it has any, are
      orthonormal.
    - `same_bits`: two runs of one seed give the same bits; false where a site protects its rows by noise of its own.
    - `order`: another order of the clients gives the same; false where their numbers decide the edges between them.
    - `pooled`: with a horizontal partition, the result does not depend on the client that holds a row.
    - `draws`: where rows are drawn by client and position, the largest distance (sin-theta error) between results of
      different draws. 0: there is no such draw.
    - `signs`, `rotations`: the result does not depend on columns' signs, or on a rotation of a client's columns (with a
      horizontal partition, of all clients' alike).
    - `repeated`: purposes whose random numbers a client reuses in each round, because the method says so.
    - `peers`: clients write to each other, under keys of their own making.
    - `alone`: with all data at one client, the result is that of `central`.
    - `error`, `best`: metric of the strategy's comparison with `central`, and its value for equal results.
    """

    components: str | None = None
    orthonormal: bool = False
    same_bits: bool = True
    order: bool = True
    pooled: bool = True
    draws: float = 0.0
    signs: bool = False
    rotations: bool = False
    repeated: tuple[str, ...] = ()
    peers: bool = False
    alone: bool = False
    error: str = "error"
    best: float = 0.0
