"""Sealed file of a site's letter keys for the current run, so that a restarted process can go on.

A restarted site is sent all of the run's requests again. Its peers' letters are sealed for the keys that it had made,
so with other keys it could not open them, nor restore its memory. The file is removed as the run ends, as another
begins, or as this one begins again at a running site.

The cost: during a run, a thief of the site's folder and its identity can open that run's letters, if he has recorded
them. He would also have the table beside it, and with it everything in the site's letters. After the file is removed
the key is gone, but for remains of removed files on the disk.
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

from fedkernel.ground import OwnFileError, write_atomic
from fedkernel.peers.sealing import KEY_BYTES, SEALING_BYTES, KeyPair

KEY_FOLDER = "letter-keys"  # subfolder of a site's folder, with a file for the current run

_FORM = b"fedkernel kept keys 1"


@dataclass(frozen=True)
class RunKeyFile:
    """Sealed file of a run's letter keys in a site's folder. `run`: its 64 digits. `secret`: gives the file's key."""

    folder: Path
    run: str
    secret: bytes = field(repr=False)

    def begin(self, *, restarted: bool) -> None:
        """Remove the key files of other runs, and this run's unless the process was `restarted`."""
        remove_key_files(self.folder, self.run if restarted else "")

    def keep(self, pairs: Sequence[KeyPair]) -> None:
        """Write key pairs to disk before the public keys leave; OwnFileError if that fails."""
        path, content = self._path, b"".join(pair.private for pair in pairs)
        sealed = self._cipher.encrypt(content, [_FORM, self.run.encode()])

        def write(file: Any) -> None:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())

        try:
            write_atomic(path, write, 0o600)
        except OSError as error:
            outline = "the site cannot store its letter keys"
            raise OwnFileError(outline, f"{path} cannot be written: {error.strerror}") from None

    def load(self) -> list[KeyPair]:
        """Return the file's key pairs, none without a file. OwnFileError: a damaged file, or another secret."""
        try:
            opened = self._cipher.decrypt(self._path.read_bytes(), [_FORM, self.run.encode()])
        except FileNotFoundError:
            return []
        except (InvalidTag, ValueError):
            raise OwnFileError(
                "the restarted site cannot decrypt its stored letter keys; its identity may have changed. See its log "
                "to restart without them",
                f"{self._path} was sealed with a different identity, or is damaged; allowed: the identity with which "
                "the run began, or no such file, and the run begins again at all sites",
            ) from None
        return [KeyPair(opened[place : place + KEY_BYTES]) for place in range(0, len(opened), KEY_BYTES)]

    @property
    def _path(self) -> Path:
        return self.folder / KEY_FOLDER / self.run

    @property
    def _cipher(self) -> AESSIV:
        derived = HKDF(algorithm=SHA256(), length=SEALING_BYTES, salt=None, info=_FORM + self.run.encode())
        return AESSIV(derived.derive(self.secret))


def remove_key_files(folder: Path, but: str = "") -> None:
    """Remove the key files of all runs from a site's folder, except that of the run `but`."""
    for path in (folder / KEY_FOLDER).glob("*"):
        if path.name != but:
            path.unlink(missing_ok=True)
