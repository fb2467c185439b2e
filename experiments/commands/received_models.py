"""Models that a server sends to a site: stored if allowed, within a quota, and applied to the site's rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedkernel import data, ground
from fedkernel.experiments import commands
from fedkernel.ground import InputError

MODEL = ".model.npz"  # ending of the names of model files
QUOTA = 2**30  # most bytes of all files from servers
LEAST_FILE_BYTES = 4096  # that a file counts for, so that the quota limits the number of files too


@dataclass(frozen=True)
class ReceivedModels:
    """Storage of model files from a server, in ``received`` of the site's folder `out`. No file is replaced.

    - `report_line`: called with a sentence about each file.
    - `quota`: most bytes of all files in that folder, each counting as a `LEAST_FILE_BYTES` at least.
    - `apply`: whether models are applied to the site's rows.
    """

    out: Path
    report_line: Callable[[str], object]
    accept_models: bool = True
    quota: int = QUOTA
    apply: bool = True

    def store(self, name: str, content: bytes, new: "data.SiteFile | None" = None, runs: Sequence[str] = ()) -> None:
        """Store a model file, and apply it to the site's rows. `runs`: the job's, unless it hands the model out."""
        folder = self.out / "received"
        refused = f"the server sent {name}, {len(content):,} bytes, which is not accepted"
        if not self.accept_models or not name.endswith(MODEL):
            allowed = "models, with --take-models" if not self.accept_models else f"models (NAME{MODEL})"
            self.report_line(f"{refused}; allowed: {allowed}")
            return
        stored = folder.iterdir() if folder.exists() else ()
        stored_bytes = sum(max(path.stat().st_size, LEAST_FILE_BYTES) for path in stored)
        if stored_bytes + max(len(content), LEAST_FILE_BYTES) > self.quota:
            allowed = f"{self.quota:,} in all (--models-quota)"
            self.report_line(f"{refused}: {folder} has {stored_bytes:,}; allowed: {allowed}")
            return
        path, run = ground.write_new(folder / name, content, 0o600), name.removesuffix(MODEL)
        self.report_line(f"received {path}")
        if not self.apply:
            return
        try:
            wrote = commands.apply_received(path, run, self.out, new, handed_out=run not in runs)
            self.report_line(wrote or f"new rows: fedkernel predict {path} FILE")
        except Exception as error:  # no file from the server ends the session
            text = str(error) if isinstance(error, InputError | OSError) else type(error).__name__
            self.report_line(f"{path} cannot be applied here: {text}")
