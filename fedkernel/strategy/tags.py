"""What a strategy promises beyond what holds of every pair: `fedkernel.testing` reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tags:
    """What holds of the results of a pair; each tag is checked both ways, so that none says more or less than is true.

    A class declares, as its attribute ``tags``, what holds of its default settings and where its iterations have
    converged; a test of other settings says what is different there:
    ``check_pair(strategy, shards, tags=dataclasses.replace(strategy.tags, rotations=False))``.

    Attributes
    ----------
    components : str or None
        The array, with a row for each row of the tables, whose columns span what was found: an attribute of the model,
        or what each site keeps in its outputs (with a horizontal partition of its own rows). None: what was found are
        the model's arrays, entry by entry.
    orthonormal : bool
        The components are orthonormal: what the sites keep, divided by the roots of the model's ``eigenvalues_`` where
        it has any.
    same_bits : bool
        Two runs of one seed give the same bits; not so where a site protects its rows by noise of its own.
    order : bool
        Another order of the clients gives the same; not so where their numbers say who talks to whom.
    pooled : bool
        With a horizontal partition: it does not matter which client holds a row.
    draws : float
        Where the result stands on rows that are drawn by client and position: how far (as a sin-theta error) results
        of other draws may be from each other. 0: there is no such draw.
    signs, rotations : bool
        Changing the signs of columns, or rotating the columns of a client (with a horizontal partition those of all
        alike), changes nothing.
    repeated : tuple of str
        Purposes whose random numbers a client takes again in each round, because the method says so.
    peers : bool
        Clients write to each other, under keys of their own making.
    alone : bool
        With all data at one client, the result is that of `central`.
    error, best : str, float
        The metric of the strategy's comparison with `central`, and its value where there is no difference.
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
