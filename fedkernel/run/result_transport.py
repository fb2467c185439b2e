"""Results and failures of runs for another process, through Flower's log: a ServerApp prints each as one line."""

import base64
import binascii
import json
import sys
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pydantic

from fedkernel.ground import UNPACKED_BYTES, UNPACKED_RATIO, EngineError, FedkernelError, write_atomic

NOT_RUN = "NotRun"
"""Kind of a run that was skipped because a site that it needs is excluded."""


@dataclass(frozen=True)
class FailedRun:
    """Run that ended without a result: its cause's class name, or `NOT_RUN`, text, and error if raised here."""

    run: str
    kind: str
    text: str
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, run: str, error: Exception) -> "FailedRun":
        """Build the description of a run's failure; raise the error itself if it ends all runs."""
        if not is_of_a_run(error):
            raise error
        return cls(run, type(error).__name__, text_of(error), error)


def text_of(error: Exception) -> str:
    """Return an error's text; an error that is not fedkernel's own is marked as a defect."""
    return str(error) if isinstance(error, FedkernelError) else f"{type(error).__name__}: {error} (this is a defect)"


def is_of_a_run(error: Exception) -> bool:
    """Return whether an error ends only one run; errors of the engine or the system end all runs."""
    return not isinstance(error, EngineError | OSError)


PREFIX = "fedkernel-parcel "
FILES = ("model.npz", "points.npz", "result.json")
"""Names of the files that are transported from and to a run's folder; the last one marks it complete."""


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(strict=True, extra="forbid"))
class Parcel:
    """Packed result of a run (base64; no files where the job's folder has them), or failure (no id: the job's)."""

    run: str = ""
    files: dict[str, str] = field(default_factory=dict)
    error: dict[str, str] = field(default_factory=dict)


def pack_result(run: str, folder: Path) -> Parcel:
    """Pack the result files in a run's folder as a parcel."""
    paths = {name: folder / name for name in FILES if (folder / name).exists()}
    return Parcel(run, {name: base64.b64encode(path.read_bytes()).decode() for name, path in paths.items()})


def unpack_result(parcel: Parcel, folder: Path) -> None:
    """Write a parcel's files into a run's folder."""
    for name in FILES:
        if name in parcel.files:
            try:
                content = base64.b64decode(parcel.files[name])
            except ValueError:
                raise EngineError(f"{name} in the log of run {parcel.run!r} is damaged") from None
            write_atomic(folder / name, lambda file, content=content: file.write(content))  # type: ignore[misc]


def print_parcel(parcel: Parcel) -> None:
    """Print a run's packed result or failure as one line of Flower's log."""
    packed = base64.b64encode(zlib.compress(json.dumps(asdict(parcel)).encode())).decode()
    # in a single write, so that no other thread's output comes between
    sys.stdout.write(f"{PREFIX}{packed}\n")
    sys.stdout.flush()


def read(line: str) -> Parcel | None:
    """Parse a line of Flower's log into its parcel; None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        packed = base64.b64decode(line.removeprefix(PREFIX), validate=False)
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(packed, max(UNPACKED_BYTES, UNPACKED_RATIO * len(packed)))
        if not unpacking.eof:
            raise EngineError("the log of the run has a result that is cut off or would take too much memory")
        return pydantic.TypeAdapter(Parcel).validate_json(text)
    except (binascii.Error, zlib.error, ValueError):
        raise EngineError("the log of the run has a result that is damaged") from None
