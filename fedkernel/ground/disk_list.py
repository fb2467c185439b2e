"""List of JSON rows with its older part on disk, for the ledger and history of long runs."""

import errno
import json
import logging
import os
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import IO, Any, Generic, TypeVar, overload

from fedkernel.ground.arrays import short_repr

log = logging.getLogger(__name__)

RowT = TypeVar("RowT")

CHUNK = 256  # rows that are written, and read, together


def _unchanged(row: Any) -> Any:
    return row


class DiskList(Sequence[RowT], Generic[RowT]):
    """Append-only list whose older rows lie in a nameless temporary file, or in memory if it cannot be written.

    `dump`, `load`: convert a row to JSON data and back; the result must equal the row.
    """

    def __init__(
        self,
        rows: Iterable[RowT] = (),
        dump: Callable[[RowT], Any] = _unchanged,
        load: Callable[[Any], RowT] = _unchanged,
    ) -> None:
        self._dump, self._load = dump, load
        self._file: IO[bytes] | None = None
        self._ends = array("Q", [0])  # where chunks end in the file
        self._chunk: tuple[int, list[RowT]] = -1, []  # the last one read
        self._last: list[RowT] = []
        self._spills = True
        self.extend(rows)

    def append(self, row: RowT) -> None:
        """Append a row."""
        self._last.append(row)
        if len(self._last) >= 2 * CHUNK and self._spills:
            self._spill()

    def extend(self, rows: Iterable[RowT]) -> None:
        """Append several rows."""
        for row in rows:
            self.append(row)

    def _spill(self) -> None:
        """Move the first chunk of the rows in memory to disk."""
        data = json.dumps([self._dump(row) for row in self._last[:CHUNK]]).encode()
        try:
            if self._file is None:
                # unbuffered: after a failed write a buffer would be flushed again before each read
                self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - ends with this object
                weakref.finalize(self, self._file.close)
            self._file.seek(self._ends[-1])
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            log.warning("rows of the ledger stay in memory: %s", error)
            self._spills = False
            return
        self._ends.append(self._ends[-1] + len(data))
        del self._last[:CHUNK]

    def _read(self, number: int) -> list[RowT]:
        if self._chunk[0] != number and self._file is not None:
            self._file.seek(self._ends[number])
            text = self._file.read(self._ends[number + 1] - self._ends[number])
            self._chunk = number, [self._load(row) for row in json.loads(text)]
        return self._chunk[1]

    def __len__(self) -> int:
        return CHUNK * (len(self._ends) - 1) + len(self._last)

    @overload
    def __getitem__(self, place: int) -> RowT: ...

    @overload
    def __getitem__(self, place: slice) -> list[RowT]: ...

    def __getitem__(self, place: int | slice) -> RowT | list[RowT]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = range(len(self))[place]
        spilled = len(self) - len(self._last)
        return self._last[number - spilled] if number >= spilled else self._read(number // CHUNK)[number % CHUNK]

    def __iter__(self) -> Iterator[RowT]:
        yield from map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DiskList | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(row == known for row, known in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # as a list

    def __repr__(self) -> str:
        return short_repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self), self._dump, self._load)
