"""What there is at a site for whoever answers there: its data, its operator's word, where results go."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context

from fedkernel.data import TableLike
from fedkernel.ground import AnyArray, Positions, TellableError, called
from fedkernel.peers import KeptKeys, KeyPair
from fedkernel.preparing import TableToPrepare
from fedkernel.protocol import Guards, KernelClient
from fedkernel.site.gate import Gate

log = logging.getLogger(__name__)


def logged(error: Exception) -> str:
    """Log an error with its traceback; the coordinator learns the type only, and by which code the log has the rest."""
    return log_details("the client failed", f"{type(error).__name__} on the site", error)


def log_details(text: str, outline: str, error: Exception | None = None) -> str:
    """Write to the site's log what the coordinator does not hear.

    `text`: for the log. `outline`: for the coordinator. `error`: whose traceback the log has. Returns the outline, with
    the code under which the log has the text; records have it as their ``code``, too.
    """
    code = f"E-{secrets.token_hex(2)}"
    log.error("%s: %s", code, text, exc_info=error, extra={"code": code})
    return f"{outline} (its log has the details under {code})"


@dataclass(frozen=True)
class Site:
    """What a client app needs to know about the place it runs at.

    - `number`: the client's number in the cohort.
    - `X` (n_m, d_m): None: this node takes no part in the run. A raw table: the run prepares it.
    - `new` (n_new, d_m).
    - `keep`: stores named arrays on the site.
    - `threads`: BLAS threads for the client's computations.
    - `identity`, `pins`: the site's key pair and its peers' fingerprints (see `PeerClient`): the site's own, of no
      coordinator's.
    - `kept_keys`: where it keeps what its letters of the run are sealed with; None: nowhere, and it cannot be
      restarted.
    - `name`: the site's, for error texts.
    - `columns`: names of the columns of `X`, which the site's introduction has; empty: they have none.
    - `ids`: what each row of `X` is known by. They do not leave the site, but hashes of them do
      (`fedkernel.wire.row_ids`).
    - `id_key`: what these hashes are keyed with, as at all sites of a run.
    - `share_rows`: whether rows may leave as they are.
    - `min_rows`: nothing is answered from fewer rows than these.
    - `row_share`: nor, where rows are aligned, from a smaller share of the site's than this.
    - `ids_without_key`: whether hashes of the ids may leave that anybody can compute.
    - `peers_pinned`: whether it exchanges letters with peers that it has pinned only.
    - `has_pins`: whether it has pins at all, perhaps of other runs' sites.
    - `sites`: names of all sites of the run, in the order of the clients' numbers; empty: they have none.
    - `guards`: what every request is held to.
    - `pairs`: the client classes it is willing to run, by class name; None: all that the app has.
    - `gate`: what passes; None: all that the other attributes allow.
    - `noise_key`: what its noise is drawn with, in all runs, see `fedkernel.ground.noise`.
    - `path`: where `X` is, which the coordinator does not hear.
    - `check_rows_apart`: given the positions of the rows that a run works on, or None for all, raises InputError if
      these differ by few from those of an earlier run; where it is told to, it notes them.
    - `remember_order`: given the positions of the rows that a run works on, or None for all, and by what their order is
      known, notes both for runs that project new rows.
    - `projects`: whether the run projects `new` in place of fitting `X`; `ids` are those of `new` then.
    - `table`: returns by what the content of the site's files is known; empty: it has none that could change.
    - `table_as_begun`: given what a run's beginning is known by and what `table` returns, returns what that was as the
      run began.
    - `check_keep`: raises OwnFileError if nothing can be stored on the site.
    - `earlier`: given the id of the run with whose clusters those of this run are compared, returns them, (n_m,).
    - `labels`: returns the labels of the rows of `X`, (n_m,), or None: called for clients only that need them.
    - `outline`: returns what the coordinator hears of an error in the client's code, whose text may quote data.
    - `derived`: by client class, what was made of `X` since the process has it (`KernelClient.once`); None: it is made
      anew for each message, as of a table that a run prepares.
    """

    number: int
    X: TableLike | TableToPrepare | None
    new: TableLike | None
    keep: Callable[[dict[str, AnyArray]], object]
    threads: int = 1
    identity: KeyPair | None = None
    pins: Mapping[int, str] = field(default_factory=dict)
    name: str | None = None
    columns: Sequence[str] = ()
    ids: Sequence[str] | None = None
    id_key: bytes = b""
    share_rows: bool = False
    min_rows: int = 1
    row_share: float = 0.0
    ids_without_key: bool = False
    peers_pinned: bool = False
    guards: Guards | None = None
    pairs: Mapping[str, type[KernelClient]] | None = None
    gate: Gate | None = None
    noise_key: bytes = b""
    path: str | None = None
    check_rows_apart: Callable[[Positions | None, bool], object] = lambda positions, note: None
    remember_order: Callable[[Positions | None, int], object] = lambda positions, order: None
    projects: bool = False
    table: Callable[[], str] = lambda: ""
    table_as_begun: Callable[[str, str], str] = lambda beginning, now: now
    check_keep: Callable[[], object] = lambda: None
    earlier: Callable[[str], AnyArray] | None = None
    labels: Callable[[], AnyArray | None] = lambda: None
    kept_keys: KeptKeys | None = None
    has_pins: bool = False
    sites: Sequence[str] = ()
    outline: Callable[[Exception], str] = logged
    derived: dict[type[KernelClient], dict[str, Any]] | None = None

    def check_rows(self, rows: int) -> None:
        """Raise TellableError if these are too few to answer from."""
        if rows < self.min_rows:
            raise TellableError(
                f"{self.called} is to answer from {rows} rows, but answers from {self.min_rows} or more (--min-rows)"
            )

    def check_table(self, then: str, run: str) -> None:
        """Raise TellableError if the site's files are not what they were as a run began."""
        if self.table() != then:
            raise TellableError(
                f"{self.called} has another table than when run {run!r} began: its file has changed; allowed: the file "
                "as it was until the run ends, or to begin the run again"
            )

    def labels_at(self, positions: Positions | None) -> AnyArray | None:
        """Return the labels of the rows at these positions of those that can be used; of all with None."""
        y = self.labels()
        if y is not None and isinstance(self.X, TableToPrepare) and self.X.kept is not None:
            y = y[self.X.kept]
        return y if y is None or positions is None else y[positions]

    @property
    def has_pinned_peers(self) -> bool:
        """Whether there is a pin of another client of the run."""
        return any(peer != self.number and not 0 < len(self.sites) <= peer for peer in self.pins)

    @property
    def called(self) -> str:
        """What texts call it."""
        return called(self.number, self.name)


FindSite = Callable[[Context, Mapping[str, Any]], Site]
