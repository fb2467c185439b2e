"""What a site is asked before the first round: who it is, its share of the seed, and which rows all sites have."""

from typing import Annotated

import pydantic
from pydantic import AfterValidator, FailFast, Field

from fedkernel.ground import SHOWN, one_line
from fedkernel.protocol import Receipt, Reply, Request, Shape, Size
from fedkernel.wire.row_ids import SIZE, Hashes

Digits = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Introduction(Reply):
    """A client's number and the size of its table: reveals these, and names where the site and its columns have them.

    - `names`: the columns'; empty: they have none.
    - `ids`: whether the rows are known by ids.
    - `commitment`: to its share of the run's seed, where sites draw that together.
    - `sampled`: how many of the rows may be sampled into a coreset, where a method samples any.
    """

    client: Size
    rows: Size
    columns: Size
    new_rows: Size
    site: Annotated[str, Field(max_length=200), AfterValidator(one_line)] | None = None
    names: tuple[Annotated[str, Field(max_length=SHOWN)], ...] = ()
    ids: bool = False
    commitment: Digits | None = None
    sampled: Size | None = None

    @pydantic.model_validator(mode="after")
    def _a_name_each(self) -> "Introduction":
        if self.names and len(set(self.names)) != self.columns:
            raise ValueError(f"it has {len(set(self.names))} different names for its {self.columns} columns")
        return self


BEGINNING = "beginning"
"""Stands beside `Introduce`: tells this beginning of the run from others, and is the same where that is resumed."""


class Introduce(Request[Introduction]):
    """Begins a run, and asks who this is."""


class Share(Reply):
    """The site's share of a seed that all sites draw together: reveals nothing else."""

    share: Digits


class ShowShare(Request[Share]):
    """Asks for the site's share of the run's seed, with all sites' commitments to theirs, in the clients' order."""

    commitments: Annotated[tuple[Digits, ...], FailFast()]


class TakeShares(Request[Receipt]):
    """Tells the shares of all sites, in the clients' order, from which the run's seed follows."""

    shares: Annotated[tuple[Digits, ...], FailFast()]


class HashedIds(Reply):
    """Hashes of the ids of a site's rows: reveals how many there are, and to who has the key which.

    `hashes` (n_m, 16). `key_check` (16,): the same at sites with the same key.
    """

    hashes: Annotated[Hashes, Shape("n_m", "size", dtype="uint8")]
    key_check: Annotated[Hashes, Shape("size", dtype="uint8")]


class HashIds(Request[HashedIds]):
    """Asks for the hashes of the rows' ids."""

    def known_dimensions(self) -> dict[str, int]:
        """Return the size of a hash."""
        return {"size": SIZE}


class CommonRows(Reply):
    """How many rows a site works on from now on: reveals nothing that was not asked."""

    rows: Size


class TakeRows(Request[CommonRows]):
    """Tells the hashes of the rows that all sites have, in the order that they have from now on."""

    hashes: Annotated[Hashes, Shape("n", "size", dtype="uint8")]

    def check_reply(self, reply: CommonRows) -> None:
        """Raise ValueError if these are not as many rows."""
        if reply.rows != len(self.hashes):
            raise ValueError(f"it works on {reply.rows} of the {len(self.hashes)} rows")
