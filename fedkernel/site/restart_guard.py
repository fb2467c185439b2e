"""Log of a run's request hashes, to refuse different requests when the run is started again.

Guards count within a run, from its start. A coordinator that restarted it with other vectors would thus learn more than
they allow. Each run's file holds the hashes of its requests in order, each with a hash of the letters delivered, which
are sealed anew. Honest runs repeat them to the bit, since their requests follow from the sites' data and the seed.
"""

from pathlib import Path

from fedkernel.ground import RefusedError, open_for_owner
from fedkernel.site.raw_request import RawRequest

FOLDER = "asked"

SIZE = 64
"""Bytes of an entry: a request's hash and the hash of its letters."""


class Requests:
    """Hashes of a run's requests, in a file of the site; `run`: the run's `Gate.key`."""

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FOLDER / run

    def check(self, place: int, request: RawRequest, letters: bytes | None = None) -> None:
        """Raise RefusedError if a request, or its letters if given, differs from that of the run's previous start."""
        try:
            with open(self._path, "rb") as file:
                file.seek(SIZE * place)
                before = file.read(SIZE)
        except FileNotFoundError:
            return
        expected = request.sha256 if letters is None else _whole(request, letters)
        if len(before) == SIZE and not before.startswith(expected):
            what = "differs from" if not before.startswith(request.sha256) else "delivers other letters than in"
            raise RefusedError(
                "study.attempts",
                f"request {place + 1} of the run ({request.name}) {what} the run's previous start; repeat it unchanged "
                "or start a new study (study.attempts)",
            )

    def note(self, place: int, request: RawRequest, letters: bytes) -> None:
        """Write the hashes of a request and its letters at the request's position in the run."""
        self._path.parent.mkdir(0o700, exist_ok=True)
        with open(self._path, "r+b" if self._path.exists() else "xb", opener=open_for_owner) as file:
            file.seek(SIZE * place)
            file.write(_whole(request, letters))


def _whole(request: RawRequest, letters: bytes) -> bytes:
    """Return the `SIZE` bytes of a request's entry in the file."""
    return request.sha256 + letters.ljust(SIZE - len(request.sha256), b"\0")
