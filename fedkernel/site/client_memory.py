"""What a client remembers from one message of a run to the next, in Flower's context."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict

from fedkernel.ground import AnyArray, ProtocolError, RefusedError
from fedkernel.protocol import PASSING
from fedkernel.wire import flower


def copy_of(state: RecordDict) -> RecordDict:
    """Return a copy of a context's state, whose arrays, which are never changed in place, are the same."""
    copies = RecordDict()
    for name, record in state.items():
        copies[name] = record.copy()  # not made anew, for which Flower would serialise every array
    return copies


REMOVED = "gone "
"""Before the name of a record: what is said of it is which entries it has no more."""


def changes_of(before: RecordDict, state: RecordDict) -> RecordDict:
    """Return what a context's state has that its `copy_of` before lacks, or has otherwise, and what it has no more.

    Arrays, which are never changed in place, are compared by what they are and not by their entries.
    """
    changes = RecordDict()
    for name, record in state.items():
        known = dict(before.get(name, {}))
        if isinstance(record, ArrayRecord):
            changed = ArrayRecord({key: array for key, array in record.items() if known.get(key) is not array})
            if changed or name not in before:
                changes[name] = changed
        else:  # scalars, which are few
            changes[name] = record
        if gone := [key for key in known if key not in record]:
            changes[REMOVED + name] = ConfigRecord({"names": gone})
    return changes


def take_changes(state: RecordDict, name: str, record: Any) -> None:
    """Change a context's state by one of what `changes_of` returned."""
    if name.startswith(REMOVED):
        for key in record["names"]:
            state[name.removeprefix(REMOVED)].pop(key, None)
        return
    if name not in state:
        state[name] = type(record)({})
    state[name].update(record)


def _records_in(context: Context) -> dict[str, Any]:
    return dict(context.state.items())  # `state.config_records` would be put together from them


def _is_of(records: Mapping[str, Any], run: str) -> bool:
    return "run" in records and bool(records["run"]["id"] == run)


class Memory(MutableMapping[str, AnyArray]):
    """A client's named arrays in Flower's context, where they survive rounds on every engine; one run's at a time.

    What is written is copied, and what is read cannot be changed: an engine that keeps the context in its process has
    it serialised at no time, one that moves it or writes it down whenever it does so.

    `run`: one that has begun, and is the last that has. Raises ProtocolError if the context holds no memory of this
    run.
    """

    def __init__(self, context: Context, run: str) -> None:
        records = _records_in(context)
        if not _is_of(records, run):
            known = str(records["run"]["id"]) if "run" in records else None
            why = "it was restarted after the run had begun" if known is None else f"it has begun run {known!r} since"
            raise ProtocolError(f"it knows nothing of run {run!r}: {why}")
        self._run = cast(ConfigRecord, records["run"])
        self._record, self._rows = cast(ArrayRecord, records["memory"]), cast(ArrayRecord, records["rows"])

    @classmethod
    def find(cls, context: Context, run: str) -> "Memory | None":
        """Return a context's memory of a run, if it holds one."""
        return cls(context, run) if _is_of(_records_in(context), run) else None

    @classmethod
    def begin(cls, context: Context, run: str) -> "Memory":
        """Return the empty memory of a run that begins: nothing of an earlier one is taken for this one's."""
        context.state["run"] = ConfigRecord({"id": run})
        context.state["memory"], context.state["rows"] = ArrayRecord(), ArrayRecord()
        return cls(context, run)

    def check_current(self, begun: int, taken: int) -> None:
        """Raise RefusedError unless it is of the run's last beginning, and of all that was answered since.

        A coordinator can have several contexts, each of an engine's run: what guards count in one, the others lack.
        """
        if (begun, taken) != tuple(self._run.get(name, 0) for name in ("begun", "taken")):
            raise RefusedError(
                "study.attempts",
                f"run {self._run['id']!r} has begun again or was asked something else meanwhile, of which nothing is "
                "remembered here; allowed: one beginning at a time, and one request after the other (study.attempts)",
            )

    def note_current(self, begun: int, taken: int) -> None:
        """Remember which beginning of the run this is of, and how much was answered since."""
        self._run["begun"], self._run["taken"] = begun, taken

    @property
    def rows(self) -> AnyArray | None:
        """Positions of the site's rows that the run works on, in its order; None: all, as they are."""
        return flower.read_array(self._rows["rows"], copy=False) if "rows" in self._rows else None

    @rows.setter
    def rows(self, positions: AnyArray | None) -> None:
        self._rows.pop("rows", None)
        if positions is not None:
            self._rows["rows"] = flower.HeldArray(positions)

    @property
    def preparation(self) -> str | None:
        """What is done to the site's raw table, as `fedkernel.preparing.to_text` wrote it; None: nothing yet."""
        return str(self._run["preparation"]) if "preparation" in self._run else None

    @preparation.setter
    def preparation(self, text: str) -> None:
        self._run["preparation"] = text

    @property
    def table(self) -> str:
        """By what the site's table was known as the run began; empty: by nothing."""
        return str(self._run.get("table", ""))

    @table.setter
    def table(self, text: str) -> None:
        self._run["table"] = text

    @property
    def settled(self) -> bool:
        """Whether it can no longer be said which rows the run works on."""
        return "settled" in self._rows

    def settle(self) -> None:
        """Leave the rows as they are from now on."""
        if not self.settled:
            self._rows["settled"] = flower.HeldArray(np.ones(1))

    @property
    def noted(self) -> bool:
        """Whether the rows that the run works on are noted for later ones."""
        return bool(self._run.get("noted", False))

    @noted.setter
    def noted(self, value: bool) -> None:
        self._run["noted"] = value

    @property
    def order(self) -> int | None:
        """By what the rows that all sites agreed on are known, see `fedkernel.wire.order_of`."""
        order = self._run.get("order")
        return order if isinstance(order, int) else None

    @order.setter
    def order(self, order: int) -> None:
        self._run["order"] = order

    def __getitem__(self, name: str) -> AnyArray:
        return flower.read_array(self._record[name], copy=False)

    def __contains__(self, name: object) -> bool:
        return name in self._record  # the inherited one would read the array

    def __setitem__(self, name: str, value: AnyArray) -> None:
        self._record[name] = flower.HeldArray(value, passing=name.startswith(PASSING))

    def __delitem__(self, name: str) -> None:
        del self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)
