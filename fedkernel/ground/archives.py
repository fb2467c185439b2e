"""Safe reading of npz and npy files from other parties: no pickle, bounded memory.

numpy trusts an array's header and unpacks a file to any size. Here the announced sizes are checked before allocation.
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
from scipy import sparse

from fedkernel.ground.arrays import AnyArray
from fedkernel.ground.errors import InputError
from fedkernel.ground.lazy_imports import AST_LOCK

READABLE_KINDS = "biufcSU"
"""Array kinds that are read: no objects, whose pickles could run code, and no dates, which cannot be hashed."""

UNPACKED_BYTES, UNPACKED_RATIO = 2**28, 100
"""Limits of another party's file: bytes when unpacked, or a multiple of its own size, whichever is more."""

MOST_HEADER_BYTES = 10_000  # bytes of an array's header that are read; numpy allows no more

MACHINE_BYTES = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
"""Bytes of the machine's memory."""

READ_ERRORS = (
    *(EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError),  # also an encrypted zip; pyarrow's are among
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, MemoryError),
)
"""Exceptions raised by a damaged file or one of another format."""


class Header(NamedTuple):
    """Shape, order and dtype that an .npy file's header announces."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[np.generic]

    def __str__(self) -> str:
        return f"{str(self.dtype)[:80]} {str(self.shape)[:80]}"

    @property
    def size(self) -> int | None:
        """Bytes of the entries, or None if the dtype or shape allows no size."""
        sized = self.dtype.itemsize > 0 and min(self.shape, default=0) >= 0
        return math.prod(self.shape) * self.dtype.itemsize if sized else None


_MAGIC_1_0 = np.lib.format.magic(1, 0)


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of an .npy stream. Raises ValueError if there is none, or it is not of numbers or text."""
    try:
        # most headers have version 1.0, for which numpy's reader would double the time
        if not (first := (magic := stream.read(8)) == _MAGIC_1_0):
            np.lib.format.read_magic(io.BytesIO(magic))
        size = stream.read(2 if first else 4)
        text = stream.read(min(int.from_bytes(size, "little"), MOST_HEADER_BYTES))
        if b"L" in text:  # a Python 2 integer, for which numpy prints a warning
            raise ValueError
        header = _parsed(size + text, first)
    except Exception as error:  # numpy evaluates the header as an expression
        raise ValueError(f"has no header of an .npy file ({type(error).__name__})") from None
    if header.dtype.kind not in READABLE_KINDS:
        raise ValueError(f"announces {header}; allowed: numbers or text")
    return header


@lru_cache(maxsize=256)
def _parsed(text: bytes, first: bool) -> Header:
    """Parse an .npy header of version 1.0 or 2.0; cached, since every round sends the same ones."""
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    with AST_LOCK:
        return Header(*read(io.BytesIO(text)))


@lru_cache(maxsize=256)
def header_of(dtype: str, shape: tuple[int, ...], fortran: bool) -> bytes:
    """Return the header of an .npy file for an array of this dtype, shape and order, as bytes."""
    stream, descr = io.BytesIO(), np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return stream.getvalue()


def load_npy(path: str | os.PathLike[str], *, mapped: bool = False) -> AnyArray:
    """Load an npy file that this party wrote. `mapped`: leave the entries on disk until they are read."""
    with AST_LOCK:
        array: AnyArray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def load_sparse(path: str | os.PathLike[str]) -> sparse.csr_array:
    """Load a file that this party wrote by `scipy.sparse.save_npz`."""
    with AST_LOCK:
        return cast(sparse.csr_array, sparse.load_npz(path))


class Archive(Mapping[str, AnyArray]):
    """Read-only mapping of an npz file's array names to its arrays, each read on access."""

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
        """Return the bytes of a member that is no array."""
        return self._file.read(self._members[name])

    def __getitem__(self, name: str) -> AnyArray:
        """Read an array. Raises InputError if the member is no array or differs from its announced size."""
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
            stream.read(1)  # at its end zipfile verifies the member's checksum
        return array


@contextmanager
def open_npz(path: str | os.PathLike[str], *, own: bool = True) -> Iterator[Archive]:
    """Open an npz file and turn read errors, also later ones, into InputError.

    `own`: whether this party wrote the file: its arrays may take all of the machine's memory. Another party's file may
    take 256 MiB, or 100 times its own size if that is more. Raises FileNotFoundError.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as file:
            unpacked = sum(member.file_size for member in file.infolist())
            allowed = MACHINE_BYTES if own else min(MACHINE_BYTES, max(UNPACKED_BYTES, UNPACKED_RATIO * size))
            if unpacked > allowed:
                raise InputError(f"{path} unpacks to {unpacked:,} bytes; allowed for {size:,} bytes: {allowed:,}")
            yield Archive(file)
    except (FileNotFoundError, InputError):
        raise
    except READ_ERRORS as error:
        raise InputError(f"{path} is damaged or is no npz file ({type(error).__name__})") from None
