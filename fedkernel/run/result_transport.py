"""Transport of runs' results and failures to another process, as lines that a ServerApp prints to Flower's log."""

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
    """Run that ended without a result. `kind`: the error's class or `NOT_RUN`. `error`: None if raised elsewhere."""

    run: str
    kind: str
    text: str
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, run: str, error: Exception) -> "FailedRun":
        """Build the description of a run's failure, or raise the error itself if it ends all runs."""
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
    """Files of a run's result in base64, none if the job's folder has them, or a failure. No run id: the job's."""

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
    """Parse a line of Flower's log into its parcel, or return None for any other line."""
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
