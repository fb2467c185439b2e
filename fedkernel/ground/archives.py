"""npz and npy files of others, read without pickle and without taking more memory than they may.

What a file announces is read first: an array whose header and entries do not fit each other, and a file that would
unpack to more than is allowed, are refused before anything of that size is allocated. numpy believes a header, and
takes whatever a small file unpacks to.
"""

import io
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from fedkernel.ground.arrays import READING, AnyArray
from fedkernel.ground.errors import InputError

KINDS = "biufcSU"
"""Of arrays that are read: no objects, whose pickles could run anything, and no dates, which cannot be hashed."""

SMALL, TIMES = 2**28, 100
"""Somebody else's file may unpack to so many bytes, or to so many times its own size if that is more."""

LONGEST = 10_000
"""Bytes of an array's header that are read: numpy allows no more."""

MEMORY = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
"""Bytes that the machine has."""

UNREADABLE = (
    *(EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError),  # also an encrypted zip; pyarrow's are among
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, MemoryError),
)
"""What goes wrong in reading a file that is damaged or another than it seems."""


class Header(NamedTuple):
    """What an array in the form of an .npy file says of itself."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]

    def __str__(self) -> str:
        return f"{str(self.dtype)[:80]} {str(self.shape)[:80]}"

    @property
    def size(self) -> int | None:
        """Bytes of the entries; None where they have no size, or there is a negative number of them."""
        sized = self.dtype.itemsize > 0 and min(self.shape, default=0) >= 0
        return math.prod(self.shape) * self.dtype.itemsize if sized else None


_FIRST = np.lib.format.magic(1, 0)


def read_header(stream: IO[bytes]) -> Header:
    """Read a header from where an .npy file begins; after it the entries follow.

    Raises ValueError if there is none, or one of an array of anything but numbers and text.
    """
    try:
        # most are of the first form, for which numpy's reading takes as long as all else here
        if not (first := (magic := stream.read(8)) == _FIRST):
            np.lib.format.read_magic(io.BytesIO(magic))
        size = stream.read(2 if first else 4)
        text = stream.read(min(int.from_bytes(size, "little"), LONGEST))
        if b"L" in text:  # a whole number of Python 2's, of which numpy warns on standard error
            raise ValueError
        header = _parsed(size + text, first)
    except Exception as error:  # numpy evaluates the header as an expression
        raise ValueError(f"has no header of an .npy file ({type(error).__name__})") from None
    if header.dtype.kind not in KINDS:
        raise ValueError(f"announces {header}; allowed: numbers or text")
    return header


@lru_cache(maxsize=256)
def _parsed(text: bytes, first: bool) -> Header:
    """Parse a header of the first form or another: the same ones come with every round."""
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    with READING:
        return Header(*read(io.BytesIO(text)))


@lru_cache(maxsize=256)
def header_of(dtype: str, shape: tuple[int, ...], fortran: bool) -> bytes:
    """Return what an .npy file has before the entries."""
    stream, descr = io.BytesIO(), np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return stream.getvalue()


class Archive(Mapping[str, AnyArray]):
    """The arrays of an npz file by name, each of them read as it is asked for."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self._members = {member.filename.removesuffix(".npy"): member for member in file.infolist()}
        if len(self._members) < len(file.infolist()):
            raise InputError(f"{file.filename} names an array twice")

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def content(self, name: str) -> bytes:
        """Return a member that is no array."""
        return self._file.read(self._members[name])

    def __getitem__(self, name: str) -> AnyArray:
        """Read an array; InputError if it is none, or not as large as it announces."""
        member = self._members[name]
        with self._file.open(member) as stream:
            try:
                header = read_header(stream)
                if header.size is None or stream.tell() + header.size != member.file_size:
                    raise ValueError(f"announces {header}, but has {member.file_size - stream.tell():,} bytes")
            except ValueError as error:
                raise InputError(f"{name} in {self._file.filename} {error}") from None
            array = np.empty(header.shape, header.dtype, "F" if header.fortran else "C")
            entries: Any = memoryview(array.reshape(-1, order="A").view(np.uint8).data)
            while entries:
                if not (count := cast(io.BufferedIOBase, stream).readinto(entries)):
                    raise EOFError
                entries = entries[count:]
            stream.read(1)  # with its end the member's checksum is held against what came
        return array


@contextmanager
def open_npz(path: str | os.PathLike[str], *, own: bool = True) -> Iterator[Archive]:
    """Open an npz file; what goes wrong with it, here and in reading its arrays, is one sentence.

    `own`: whether it is of one's own making: its arrays may take all memory that the machine has. Those of somebody
    else's file may take 256 MiB together, or 100 times the file's own size if that is more. Raises FileNotFoundError.
    Raises InputError if it is damaged, is none, or would take more.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as file:
            unpacked = sum(member.file_size for member in file.infolist())
            allowed = MEMORY if own else min(MEMORY, max(SMALL, TIMES * size))
            if unpacked > allowed:
                raise InputError(f"{path} would take {unpacked:,} bytes; allowed: {allowed:,} of one of {size:,} bytes")
            yield Archive(file)
    except (FileNotFoundError, InputError):
        raise
    except UNREADABLE as error:
        raise InputError(f"{path} is damaged or is no npz file ({type(error).__name__})") from None
