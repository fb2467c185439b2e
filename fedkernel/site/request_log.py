"""What a run has asked of a site, so that it asks the same where it begins again.

Guards count within a run, from its beginning: if a coordinator could begin it anew with other vectors, they would count
a part of what it has. A file for each run has the hashes of its requests in order, each with that of what stood in the
letters it delivered, which are sealed anew. Honest runs repeat them to the bit, since all of theirs follows from what
the sites hold and from the seed.
"""

from pathlib import Path

from fedkernel.ground import RefusedError, owner_only
from fedkernel.site.raw_request import Asking

FOLDER = "asked"

SIZE = 64
"""Bytes of a request's hash and of its letters'."""


class Requests:
    """The hashes of what a run has asked.

    `folder`: the site's. `run`: what tells this run from all others, 64 hexadecimal digits.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FOLDER / run

    def check(self, place: int, asking: Asking, letters: bytes | None = None) -> None:
        """Raise RefusedError if the request in a place was another when the run began before, or, read, its letters."""
        try:
            with open(self._path, "rb") as file:
                file.seek(SIZE * place)
                before = file.read(SIZE)
        except FileNotFoundError:
            return
        own = asking.sha256 if letters is None else _whole(asking, letters)
        if len(before) == SIZE and not before.startswith(own):
            what = "is another" if not before.startswith(asking.sha256) else "delivers other letters"
            raise RefusedError(
                "study.attempts",
                f"{asking.request}, request {place + 1} of the run, {what} than when it began before; allowed: the "
                "same, or a study of its own (study.attempts)",
            )

    def note(self, place: int, asking: Asking, letters: bytes) -> None:
        """Write down the hashes of the request in a place and of what stood in its letters."""
        self._path.parent.mkdir(0o700, exist_ok=True)
        with open(self._path, "r+b" if self._path.exists() else "xb", opener=owner_only) as file:
            file.seek(SIZE * place)
            file.write(_whole(asking, letters))


def _whole(asking: Asking, letters: bytes) -> bytes:
    """Return what stands in the file for a request, `SIZE` bytes."""
    return asking.sha256 + letters.ljust(SIZE - len(asking.sha256), b"\0")
