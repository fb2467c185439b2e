"""Which studies a site's operator has approved: a file of their hashes in the folder that the site keeps things in."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path

from fedkernel.errors import InputError
from fedkernel.run.job import SHORT

APPROVED = "approved"
"""The file: a line for each study, its SHA-256 and when it was approved."""


def check_hash(sha256: str) -> str:
    """Return a study's hash, or raise InputError if the text is none."""
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise InputError(f"study = {sha256!r}, but must be the SHA-256 of a study, 64 hexadecimal digits")
    return sha256


def approve(folder: Path, sha256: str) -> None:
    """Approve a study, for as long as its line stands there."""
    check_hash(sha256)
    folder.mkdir(parents=True, exist_ok=True)
    line = f"{sha256} {datetime.now(UTC).isoformat(timespec='seconds')}\n"
    with open(folder / APPROVED, "a", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(line)


def is_approved(folder: Path, sha256: str) -> bool:
    """Return whether a study has been approved.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        lines = (folder / APPROVED).read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"{folder / APPROVED} cannot be read: {error.strerror}") from None
    return any(line.split(" ")[0] == sha256 for line in lines)


def not_approved(sha256: str) -> str:
    """Return the sentence about a study that has not been approved."""
    return f"study {sha256[:SHORT]} is not approved; its operator can: fedkernel study approve {sha256} --out FOLDER"
