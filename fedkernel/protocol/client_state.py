"""Base class of a client's memory between requests, as named arrays."""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from functools import cache
from typing import ClassVar, Self

from fedkernel.ground import AnyArray, ProtocolError

PASSING = "passing "
"""Name prefix of arrays that are lost with the process; moved, such an array is empty, of shape (0,)."""


@dataclass(frozen=True)
class State:
    """Arrays that a client keeps from one request to a later one.

    A subclass is a dataclass with a field for each array. In the memory they are named by class and field,
    ``Iterate.alpha``; a field that is None is absent. `load` reads all of a state's arrays, so split them by use.
    """

    passing: ClassVar[bool] = False
    """The arrays are a cache alone: no engine moves or stores them (`PASSING`)."""

    @classmethod
    @cache
    def _called(cls) -> Mapping[str, str]:
        """Return the arrays' names in the memory, by field."""
        return {field.name: f"{PASSING if cls.passing else ''}{cls.__name__}.{field.name}" for field in fields(cls)}

    @classmethod
    def known(cls, memory: Mapping[str, AnyArray]) -> bool:
        """Return whether the memory holds such a state."""
        return any(name in memory for name in cls._called().values())

    @classmethod
    def load(cls, memory: Mapping[str, AnyArray]) -> Self:
        """Return the state saved last, or raise a ProtocolError about the missing earlier request."""
        if not cls.known(memory):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
            raise ProtocolError(f"it has no {words} yet: a request that must come before this one did not")
        return cls(**{field: memory[name] for field, name in cls._called().items() if name in memory})

    @classmethod
    def forget(cls, memory: MutableMapping[str, AnyArray]) -> None:
        """Delete the saved state from the memory, if there is one."""
        for name in cls._called().values():
            if name in memory:
                del memory[name]  # `pop` would read the array

    def save(self, memory: MutableMapping[str, AnyArray]) -> Self:
        """Save the arrays in the memory, in place of those of an earlier state; unchanged arrays are not written."""
        for field, name in self._called().items():
            array, before = getattr(self, field), memory.get(name)
            if array is None and before is not None:
                del memory[name]
            elif array is not before:
                memory[name] = array
        return self
