"""Transport of results over Flower's log: one printed line per run of a ServerApp."""

import base64
import binascii
import json
import sys
import zlib
from dataclasses import asdict, field
from pathlib import Path

import pydantic
from pydantic.dataclasses import dataclass

from fedkernel.ground import UNPACKED_BYTES, UNPACKED_RATIO, EngineError, write_atomic

PREFIX = "fedkernel-parcel "
FILES = ("model.npz", "points.npz", "result.json")
"""Files taken from a run's folder; no others are written into one, and the last marks it complete."""


@dataclass(frozen=True, config=pydantic.ConfigDict(strict=True, extra="forbid"))
class Parcel:
    """Result or failure of a run, as a ServerApp prints it.

    `run`: its id; empty where the whole job failed. `files`: the result's in base64; none where the job's folder has
    them. `error`: class name and text of a failure's cause.
    """

    run: str = ""
    files: dict[str, str] = field(default_factory=dict)
    error: dict[str, str] = field(default_factory=dict)


PARCELS = pydantic.TypeAdapter(Parcel)


def from_folder(run: str, folder: Path) -> Parcel:
    """Pack a run's result from its folder."""
    paths = {name: folder / name for name in FILES if (folder / name).exists()}
    return Parcel(run, {name: base64.b64encode(path.read_bytes()).decode() for name, path in paths.items()})


def into_folder(parcel: Parcel, folder: Path) -> None:
    """Write a parcel's files into a run's folder."""
    for name in FILES:
        if name in parcel.files:
            try:
                content = base64.b64decode(parcel.files[name])
            except ValueError:
                raise EngineError(f"the log of run {parcel.run!r} has a {name} that is damaged") from None
            write_atomic(folder / name, lambda file, content=content: file.write(content))  # type: ignore[misc]


def tell(parcel: Parcel) -> None:
    """Print a parcel as one line."""
    packed = base64.b64encode(zlib.compress(json.dumps(asdict(parcel)).encode())).decode()
    # in a single write, so that no other thread's output comes between
    sys.stdout.write(f"{PREFIX}{packed}\n")
    sys.stdout.flush()


def read(line: str) -> Parcel | None:
    """Parse a log's line into its parcel; None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        packed = base64.b64decode(line.removeprefix(PREFIX), validate=False)
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(packed, max(UNPACKED_BYTES, UNPACKED_RATIO * len(packed)))
        if not unpacking.eof:
            raise EngineError("the log of the run has a result that is cut off or would take too much memory")
        return PARCELS.validate_json(text)
    except (binascii.Error, zlib.error, ValueError):
        raise EngineError("the log of the run has a result that is damaged") from None
