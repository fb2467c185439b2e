"""What a run has asked of a site, so that it asks the same where it begins again.

Guards count within a run, from its beginning: if a coordinator could begin it anew with other vectors, they would count
a part of what it has. A file for each run has the hashes of its requests in order; honest runs repeat them to the bit,
since all of theirs follows from what the sites hold and from the seed.
"""

import os
from pathlib import Path

from fedkernel.errors import RefusedError
from fedkernel.run.asking import Asking

FOLDER = "asked"

SIZE = 32
"""Bytes of a hash."""


class Requests:
    """The hashes of what a run has asked.

    Parameters
    ----------
    folder : Path
        The site's.
    run : str
        What tells this run from all others, 64 hexadecimal digits.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FOLDER / run

    def check(self, place: int, asking: Asking) -> None:
        """Raise RefusedError if the request in a place was another when the run began before."""
        try:
            with open(self._path, "rb") as file:
                file.seek(SIZE * place)
                before = file.read(SIZE)
        except FileNotFoundError:
            return
        if len(before) == SIZE and before != asking.sha256:
            raise RefusedError(
                "study.attempts",
                f"{asking.request}, request {place + 1} of the run, is another than when it began before; allowed: the "
                "same, or a study of its own (study.attempts)",
            )

    def note(self, place: int, asking: Asking) -> None:
        """Write down the hash of the request in a place."""
        self._path.parent.mkdir(exist_ok=True)
        with open(self._path, "r+b" if self._path.exists() else "xb", opener=_own) as file:
            file.seek(SIZE * place)
            file.write(asking.sha256)


def _own(path: str, flags: int) -> int:
    """Open a file for its owner only."""
    return os.open(path, flags, 0o600)
