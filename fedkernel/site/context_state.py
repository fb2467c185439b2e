"""Memory of a client between the messages of a run, stored in Flower's Context."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from fedkernel.ground import AnyArray, ProtocolError, RefusedError
from fedkernel.protocol import CACHE_PREFIX
from fedkernel.wire import flower_internals


def copy_state(state: RecordDict) -> RecordDict:
    """Copy a context's state; the copy shares the arrays, which are never changed in place."""
    copies = RecordDict()
    for name, record in state.items():
        copies[name] = record.copy()  # a new record would have Flower serialise every array
    return copies


REMOVED = "gone "  # prefix of the record that lists the entries removed from the record of that name


def changes_of(before: RecordDict, state: RecordDict) -> RecordDict:
    """Return the changed and removed entries of a context's state since an earlier `copy_state`."""
    changes = RecordDict()
    for name, record in state.items():
        known = dict(before.get(name, {}))
        if isinstance(record, ArrayRecord):
            # by identity, since arrays are never changed in place
            changed = ArrayRecord({key: array for key, array in record.items() if known.get(key) is not array})
            if changed or name not in before:
                changes[name] = changed
        else:  # few scalars
            changes[name] = record
        if gone := [key for key in known if key not in record]:
            changes[REMOVED + name] = ConfigRecord({"names": gone})
    return changes


def apply_changes(state: RecordDict, name: str, record: Any) -> None:
    """Apply one record of `changes_of` to a context's state."""
    if name.startswith(REMOVED):
        for key in record["names"]:
            state[name.removeprefix(REMOVED)].pop(key, None)
        return
    if name not in state:
        state[name] = type(record)({})
    state[name].update(record)


T = TypeVar("T")


class _Scalar(Generic[T]):
    """Attribute of a `Memory`, kept in the memory's record of scalars. `default`: the value until one is set."""

    def __init__(self, name: str, default: T) -> None:
        self._name, self._default = name, default

    def __get__(self, memory: "Memory", owner: type) -> T:
        return cast(T, memory.scalars.get(self._name, self._default))

    def __set__(self, memory: "Memory", value: T) -> None:
        memory.scalars[self._name] = cast(Any, value)


def _records_in(context: Context) -> dict[str, Any]:
    return dict(context.state.items())  # `state.config_records` would be built from these


def _is_of(records: Mapping[str, Any], run: str) -> bool:
    return "run" in records and bool(records["run"]["id"] == run)


class Memory(MutableMapping[str, AnyArray]):
    """One run's named arrays in Flower's context, copied when written and read-only when read.

    Only engines that move or store the context serialise them. ProtocolError if it holds no memory of this run.
    """

    preparation = _Scalar[str | None]("preparation", None)
    """The raw table's preparation, written by `fedkernel.preparing.to_text`; None: not prepared yet."""

    requests_digest = _Scalar("asked", "")
    """Chained hash of the run's requests so far, which masks are bound to; empty: none."""

    table = _Scalar("table", "")
    """Fingerprint of the site's files at the run's start; empty: no files."""

    noted = _Scalar("noted", False)
    """True once the run's rows are stored for comparison with later runs."""

    order = _Scalar[int | None]("order", None)
    """Id of the common rows and their order, see `fedkernel.wire.order_id`; None: rows are not aligned."""

    def __init__(self, context: Context, run: str) -> None:
        records = _records_in(context)
        if not _is_of(records, run):
            known = str(records["run"]["id"]) if "run" in records else None
            why = "it was restarted after the run had begun" if known is None else f"it has begun run {known!r} since"
            raise ProtocolError(f"it has no memory of run {run!r}: {why}")
        self.scalars = cast(ConfigRecord, records["run"])
        self._record, self._rows = cast(ArrayRecord, records["memory"]), cast(ArrayRecord, records["rows"])

    @classmethod
    def find(cls, context: Context, run: str) -> "Memory | None":
        """Return a context's memory of a run, or None if it has none."""
        return cls(context, run) if _is_of(_records_in(context), run) else None

    @classmethod
    def begin(cls, context: Context, run: str) -> "Memory":
        """Create an empty memory for a run that begins, and discard an earlier run's."""
        context.state["run"] = ConfigRecord({"id": run})
        context.state["memory"], context.state["rows"] = ArrayRecord(), ArrayRecord()
        return cls(context, run)

    def check_current(self, begun: int, taken: int) -> None:
        """Raise RefusedError unless the memory is of the run's latest start and includes all later answers."""
        # a coordinator can have several contexts, each of an engine's run, but guards count in one context only
        if (begun, taken) != tuple(self.scalars.get(name, 0) for name in ("begun", "taken")):
            raise RefusedError(
                "study.attempts",
                f"run {self.scalars['id']!r} was started again, or got another request, which this memory lacks; start "
                "the run once at a time, and send its requests one after the other (study.attempts)",
            )

    def note_current(self, begun: int, taken: int) -> None:
        """Store the number of the run's starts, and that of requests answered since the latest start."""
        self.scalars["begun"], self.scalars["taken"] = begun, taken

    @property
    def rows(self) -> AnyArray | None:
        """Positions of the run's rows in the site's table, in the run's order, or None for all rows."""
        return flower_internals.read_array(self._rows["rows"], copy=False) if "rows" in self._rows else None

    @rows.setter
    def rows(self, positions: AnyArray | None) -> None:
        self._rows.pop("rows", None)
        if positions is not None:
            self._rows["rows"] = flower_internals.HeldArray(positions)

    @property
    def settled(self) -> bool:
        """True once the run's rows can no longer be changed."""
        return "settled" in self._rows

    @property
    def apart(self) -> int:
        """Fewest rows added and removed since another run at the site, or 0 if none had other rows."""
        return int(flower_internals.read_array(self._rows["settled"], copy=False)[0]) if self.settled else 0

    def settle(self, apart: int) -> None:
        """Fix the run's rows. `apart`: the fewest rows by which they differ from another run's."""
        if not self.settled:
            self._rows["settled"] = flower_internals.HeldArray(np.array([apart]))

    def __getitem__(self, name: str) -> AnyArray:
        return flower_internals.read_array(self._record[name], copy=False)

    def __contains__(self, name: object) -> bool:
        return name in self._record  # the inherited method would read the array

    def __setitem__(self, name: str, value: AnyArray) -> None:
        self._record[name] = flower_internals.HeldArray(value, serialise_empty=name.startswith(CACHE_PREFIX))

    def __delitem__(self, name: str) -> None:
        del self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)
