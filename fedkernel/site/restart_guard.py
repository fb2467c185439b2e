"""Log of request hashes that refuses a restarted run whose requests differ.

Guards count within a run, from its start. A coordinator that restarted it with other vectors would thus learn more than
they allow. Each run's file holds the hashes of its requests in order, each with a hash of the letters delivered, which
are sealed anew. Honest runs repeat them to the bit, since their requests follow from the sites' data and the seed.
"""

from pathlib import Path

from fedkernel.ground import RefusedError, open_for_owner
from fedkernel.site.raw_request import Asking

FOLDER = "asked"

SIZE = 64
"""Bytes of an entry: a request's hash and its letters'."""


class Requests:
    """The hashes of a run's requests, in a file of the site; `run` is its `Gate.key`."""

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FOLDER / run

    def check(self, place: int, asking: Asking, letters: bytes | None = None) -> None:
        """Raise RefusedError if a request, or its letters if given, differ from the run's previous start."""
        try:
            with open(self._path, "rb") as file:
                file.seek(SIZE * place)
                before = file.read(SIZE)
        except FileNotFoundError:
            return
        expected = asking.sha256 if letters is None else _whole(asking, letters)
        if len(before) == SIZE and not before.startswith(expected):
            what = "is another" if not before.startswith(asking.sha256) else "delivers other letters"
            raise RefusedError(
                "study.attempts",
                f"{asking.request}, request {place + 1} of the run, {what} than when it began before; allowed: the "
                "same, or a study of its own (study.attempts)",
            )

    def note(self, place: int, asking: Asking, letters: bytes) -> None:
        """Write the hashes of a request and its letters at their position."""
        self._path.parent.mkdir(0o700, exist_ok=True)
        with open(self._path, "r+b" if self._path.exists() else "xb", opener=open_for_owner) as file:
            file.seek(SIZE * place)
            file.write(_whole(asking, letters))


def _whole(asking: Asking, letters: bytes) -> bytes:
    """Return the file's `SIZE` bytes for a request."""
    return asking.sha256 + letters.ljust(SIZE - len(asking.sha256), b"\0")
