"""Requests and replies before a run's first round: introduction, joint seed, and common rows."""

from typing import Annotated

import pydantic
from pydantic import AfterValidator, FailFast, Field

from fedkernel.ground import MOST_SHOWN, one_line
from fedkernel.protocol import Done, Reply, Request, Shape, Size
from fedkernel.wire.row_id_hashes import HASH_BYTES, Hashes

Digits = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Introduction(Reply):
    """A client's number and table size, and names of site and columns if any: reveals these.

    - `names`: of the columns; empty: unnamed.
    - `ids`: whether the rows have ids.
    - `commitment`: to the site's share of the seed, in a run with a joint seed.
    - `sampled`: rows that may be sampled into a coreset at most, in a method that samples any.
    """

    client: Size
    rows: Size
    columns: Size
    new_rows: Size
    site: Annotated[str, Field(max_length=200), AfterValidator(one_line)] | None = None
    names: tuple[Annotated[str, Field(max_length=MOST_SHOWN)], ...] = ()
    ids: bool = False
    commitment: Digits | None = None
    sampled: Size | None = None

    @pydantic.model_validator(mode="after")
    def _names_fit_columns(self) -> "Introduction":
        if self.names and len(set(self.names)) != self.columns:
            raise ValueError(f"names has {len(set(self.names))} different ones, but there are {self.columns} columns")
        return self


BEGINNING = "beginning"
"""Name of the scalar in `Introduce` that identifies a start of the run; a resumed run repeats it."""


class Introduce(Request[Introduction]):
    """First request of a run, for a client's `Introduction`."""


class Share(Reply):
    """The site's share of a joint seed; reveals nothing else."""

    share: Digits


class ShowShare(Request[Share]):
    """Request for the site's share of the joint seed; holds all sites' commitments in client order."""

    commitments: Annotated[tuple[Digits, ...], FailFast()]


class TakeShares(Request[Done]):
    """Request that delivers all sites' shares of the joint seed, in client order."""

    shares: Annotated[tuple[Digits, ...], FailFast()]


class HashedIds(Reply):
    """Hashes (n_m, 16) of a site's row ids: reveals their number, and the ids to a key holder.

    `key_check` (16,): the same at sites with the same key.
    """

    hashes: Annotated[Hashes, Shape("n_m", "size", dtype="uint8")]
    key_check: Annotated[Hashes, Shape("size", dtype="uint8")]


class HashIds(Request[HashedIds]):
    """Request for the hashes of a site's row ids."""

    def known_dimensions(self) -> dict[str, int]:
        """Return the size of a hash in bytes."""
        return {"size": HASH_BYTES}


class CommonRows(Reply):
    """The number of common rows that a site now works on; reveals nothing new."""

    rows: Size


class TakeRows(Request[CommonRows]):
    """Request that delivers the hashes of the common rows, in their common order."""

    hashes: Annotated[Hashes, Shape("n", "size", dtype="uint8")]

    def check_reply(self, reply: CommonRows) -> None:
        """Raise ValueError if the reply's number of rows differs from that of the hashes."""
        if reply.rows != len(self.hashes):
            raise ValueError(f"rows = {reply.rows}, but must be {len(self.hashes)}, the number of common rows")
