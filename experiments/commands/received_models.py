"""Files from a server at a site: stored if allowed, within a quota, and applied to the site's rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import commands
from fedkernel.ground import InputError

if TYPE_CHECKING:
    from fedkernel.data import SiteFile

MODEL = ".model.npz"
"""Ending of the names of model files."""

QUOTA = 2**30
"""Most bytes of all files from servers."""

BLOCK = 4096
"""Least bytes that a file counts for, so that the quota limits the number of files too."""


@dataclass(frozen=True)
class Receiving:
    """Handling of files that a server sends.

    Parameters
    ----------
    out : Path
        The site's folder; files go into ``received`` in it, under their names, and replace none.
    tell : callable
        Called with a sentence about each file.
    wanted : bool
        Whether any are accepted.
    quota : int
        Most bytes of all files in that folder, each counting as a `BLOCK` at least.
    apply : bool
        Whether models are applied to the site's rows.
    """

    out: Path
    tell: Callable[[str], object]
    wanted: bool = True
    quota: int = QUOTA
    apply: bool = True

    def take(self, name: str, content: bytes, new: "SiteFile | None" = None, runs: Sequence[str] = ()) -> None:
        """Store a model file, and apply it to the site's rows; other files are refused.

        `runs` are the ids of the job's runs: the file's model belongs to one of them, or was handed out without a run.
        """
        from fedkernel.ground import write_new  # noqa: PLC0415 - imports NumPy, which the help does not wait for

        folder = self.out / "received"
        if not self.wanted or not name.endswith(MODEL):
            allowed = "models, with --take-models" if not self.wanted else f"models (NAME{MODEL})"
            self.tell(f"the server sent {name}, {len(content):,} bytes, which is not taken; allowed: {allowed}")
            return
        stored_bytes = sum(max(path.stat().st_size, BLOCK) for path in folder.iterdir()) if folder.exists() else 0
        if stored_bytes + max(len(content), BLOCK) > self.quota:
            self.tell(
                f"the server sent {name}, {len(content):,} bytes, which is not taken: {folder} has {stored_bytes:,}; "
                f"allowed: {self.quota:,} in all (--models-quota)"
            )
            return
        path, run = write_new(folder / name, content, 0o600), name.removesuffix(MODEL)
        self.tell(f"received {path}")
        if not self.apply:
            return
        try:
            wrote = commands.apply_received(path, run, self.out, new, handed_out=run not in runs)
            self.tell(wrote or f"new rows: fedkernel predict {path} FILE")
        except Exception as error:  # no file from the server ends the session
            text = str(error) if isinstance(error, InputError | OSError) else type(error).__name__
            self.tell(f"{path} cannot be applied here: {text}")
