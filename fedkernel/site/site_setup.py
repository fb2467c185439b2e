"""Description of a site for its ClientApp: data, keys, limits and storage for one run."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context

from fedkernel.data import TableLike
from fedkernel.ground import AnyArray, Positions, ShareableError, client_label
from fedkernel.peers import KeyPair, RunKeyFile
from fedkernel.preparing import TableToPrepare
from fedkernel.protocol import Guards, KernelClient
from fedkernel.site.gate import Gate
from fedkernel.site.result_files import Noise
from fedkernel.wire import MaskKeys

log = logging.getLogger(__name__)


def logged(error: Exception) -> str:
    """Log a client's error with its traceback, and return a text for the coordinator with type and log code."""
    return log_under_code("the client failed", f"{type(error).__name__} on the site", error)


def log_under_code(text: str, outline: str, error: Exception | None = None) -> str:
    """Log a text and an error's traceback under a random code; return the outline with this code."""
    code = f"E-{secrets.token_hex(2)}"
    log.error("%s: %s", code, text, exc_info=error, extra={"code": code})
    return f"{outline} (its log has the details under {code})"


@dataclass(frozen=True)
class Site:
    """Data, keys, limits and storage of a site for one run, as its client app uses them.

    - `X` (n_m, d_m): the table; None: no part in the run. A raw table: the run prepares it.
    - `new`, `noise_key`, `earlier`: see `KernelClient`. `labels`: returns its `y`; called only if a client needs it.
    - `keep`: stores named arrays on the site. `check_keep` raises OwnFileError if that is impossible.
    - `identity`, `pins`: the site's key pair and its peers' fingerprints (see `PeerClient`), from its own files only.
    - `kept_keys`: store of the run's letter keys; None: the site cannot be restarted within the run.
    - `ids`: of the rows of `X`; only their hashes leave (`fedkernel.wire.row_id_hashes`), keyed with `id_key`, which
      all sites share, or unkeyed with `ids_without_key`.
    - `min_rows`, `row_share`: fewest rows of an answer, and least share of the site's rows if rows are aligned.
    - `peers_pinned`: letters are exchanged with pinned peers only. `has_pins`: there are pins, of any run's sites.
    - `columns`, `sites`: names of the columns of `X`, and of the run's sites in client order; empty: unnamed.
    - `pairs`: the allowed client classes, by class name; None: all of the app's.
    - `gate`: checks against policy and plan; None: no such checks.
    - `path`: file of `X`, hidden from the coordinator.
    - `check_rows_apart`: raises InputError if the rows at these positions (None: all) differ from an earlier run's in
      too few rows; optionally stores them. Returns the fewest rows by which they differ from another run's; 0: none.
    - `remember_order`: stores the positions of the run's rows (None: all) and their order's id, for runs that project.
    - `projects`: whether the run projects `new` in place of fitting `X`; `ids` are those of `new` then.
    - `table`: returns the fingerprint of the site's files; empty: no files. `table_at_start`: returns that at a run's
      start, given the start's id and the present one.
    - `masks`: returns its keys for masked sums, given the run's id; None: it has none.
    - `keep_noise`: returns the noise kept under a name, or draws and keeps it; None: it is drawn from the run's seed.
    - `derived`: cache of `KernelClient.cached` by client class; None: not cached between messages, as for a raw table.
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
    check_rows_apart: Callable[[Positions | None, bool], int] = lambda positions, note: 0
    remember_order: Callable[[Positions | None, int], object] = lambda positions, order: None
    projects: bool = False
    table: Callable[[], str] = lambda: ""
    table_at_start: Callable[[str, str], str] = lambda beginning, now: now
    check_keep: Callable[[], object] = lambda: None
    earlier: Callable[[str], AnyArray] | None = None
    labels: Callable[[], AnyArray | None] = lambda: None
    kept_keys: RunKeyFile | None = None
    has_pins: bool = False
    sites: Sequence[str] = ()
    masks: Callable[[str], MaskKeys] | None = None
    keep_noise: Callable[[str, Callable[[], Noise]], Noise] | None = None
    derived: dict[type[KernelClient], dict[str, Any]] | None = None

    def check_rows(self, rows: int) -> None:
        """Raise ShareableError if an answer would be computed from too few rows."""
        if rows < self.min_rows:
            text = f"{self.display_name} has {rows} rows; its policy requires at least {self.min_rows} (--min-rows)"
            raise ShareableError(text)

    def check_table(self, then: str, run: str) -> None:
        """Raise ShareableError if the site's files have changed since a run began."""
        if self.table() != then:
            raise ShareableError(
                f"the file of {self.display_name} has changed since run {run!r} began; restore the file, or start the "
                "run again"
            )

    def labels_at(self, positions: Positions | None) -> AnyArray | None:
        """Return the labels of the usable rows at these positions (None: of all usable rows)."""
        y = self.labels()
        if y is not None and isinstance(self.X, TableToPrepare) and self.X.kept is not None:
            y = y[self.X.kept]
        return y if y is None or positions is None else y[positions]

    @property
    def has_pinned_peers(self) -> bool:
        """True if a key of at least one other client of the run is pinned."""
        return any(peer != self.number and not 0 < len(self.sites) <= peer for peer in self.pins)

    @property
    def display_name(self) -> str:
        """Name of the site for error texts."""
        return client_label(self.number, self.name)


FindSite = Callable[[Context, Mapping[str, Any]], Site]
