"""The keys of a run under way, in a sealed file of the site's, so that a process that is started again has them.

A site that was restarted is asked again for all of the run. Its peers' letters are sealed for the keys that it had
made, so with others it could open none of them, and nothing would bring its memory back. The file goes as the run ends,
as another begins, or as this one begins again at a site that lives.

What that costs: while a run lasts, who takes the site's folder and its identity with it can open the letters of that
run that he has recorded. He would have the table, too, which lies beside, and everything that the site could say of the
letters. Once the file is gone there is no such key any more, but for what a disk keeps of files that were removed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedkernel.ground import OwnFileError, write_whole
from fedkernel.peers.sealing import KEY, SEALING, KeyPair

FOLDER = "letter-keys"
"""Of a site's folder: a file for the run under way."""

_FORM = b"fedkernel kept keys 1"


@dataclass(frozen=True)
class KeptKeys:
    """The file of one run.

    `folder`: the site's. `run`: what tells the run from all others, 64 hexadecimal digits. `secret`: the site's own, of
    which the file's key follows.
    """

    folder: Path
    run: str
    secret: bytes = field(repr=False)

    def begin(self, *, restarted: bool) -> None:
        """Forget the keys of other runs, and of this one unless this process knows nothing of it yet."""
        forget_keys(self.folder, self.run if restarted else "")

    def keep(self, pairs: Sequence[KeyPair]) -> None:
        """Write key pairs down, for good, before the public ones leave; OwnFileError where that fails."""
        path, content = self._path, b"".join(pair.private for pair in pairs)
        sealed = self._cipher.encrypt(content, [_FORM, self.run.encode()])

        def write(file: Any) -> None:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())

        try:
            write_whole(path, write, 0o600)
        except OSError as error:
            outline = "the site cannot keep its keys for letters"
            raise OwnFileError(outline, f"{path} cannot be written: {error.strerror}") from None

    def load(self) -> list[KeyPair]:
        """Return the key pairs that were kept; none where there is no file.

        Raises OwnFileError if the file cannot be opened with the secret: then this is not the site that wrote it.
        """
        try:
            opened = self._cipher.decrypt(self._path.read_bytes(), [_FORM, self.run.encode()])
        except FileNotFoundError:
            return []
        except (InvalidTag, ValueError):
            raise OwnFileError(
                "the site was restarted, and cannot open the keys for letters that it has kept of this run, as with "
                "another identity than it had; its log says how to begin without them",
                f"{self._path} was sealed with another identity, or is damaged; allowed: the identity with which the "
                "run began, or no such file, and the run begins again at all sites",
            ) from None
        return [KeyPair(opened[place : place + KEY]) for place in range(0, len(opened), KEY)]

    @property
    def _path(self) -> Path:
        return self.folder / FOLDER / self.run

    @property
    def _cipher(self) -> AESSIV:
        derived = HKDF(algorithm=SHA256(), length=SEALING, salt=None, info=_FORM + self.run.encode())
        return AESSIV(derived.derive(self.secret))


def forget_keys(folder: Path, but: str = "") -> None:
    """Remove what a site's folder has of the keys of runs, except of one."""
    for path in (folder / FOLDER).glob("*"):
        if path.name != but:
            path.unlink(missing_ok=True)
