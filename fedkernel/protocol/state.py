"""What a client remembers from one request to a later one, as named arrays."""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from functools import cache
from typing import ClassVar, Self

from fedkernel.ground import AnyArray, ProtocolError

PASSING = "passing "
"""Before the name of an array that is remembered while its process lives; once moved, it is empty, of shape (0,)."""


@dataclass(frozen=True)
class State:
    """Arrays that a client keeps together from one request to a later one; a subclass is a dataclass that names them.

    In the memory they are called by class and field, ``Iterate.alpha``. A field that is None is not there. What is
    needed at different times belongs in different states: `load` reads all arrays of one.
    """

    passing: ClassVar[bool] = False
    """Whether its arrays only spare the work of making them again: no engine moves or stores them (`PASSING`)."""

    @classmethod
    @cache
    def _called(cls) -> Mapping[str, str]:
        """Return what the arrays are called in the memory, by field."""
        return {field.name: f"{PASSING if cls.passing else ''}{cls.__name__}.{field.name}" for field in fields(cls)}

    @classmethod
    def known(cls, memory: Mapping[str, AnyArray]) -> bool:
        """Return whether there is one in the memory."""
        return any(name in memory for name in cls._called().values())

    @classmethod
    def load(cls, memory: Mapping[str, AnyArray]) -> Self:
        """Return what was saved last, or raise a ProtocolError that the request for it did not come before."""
        if not cls.known(memory):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
            raise ProtocolError(f"it has no {words} yet: a request that must come before this one did not")
        return cls(**{field: memory[name] for field, name in cls._called().items() if name in memory})

    @classmethod
    def forget(cls, memory: MutableMapping[str, AnyArray]) -> None:
        """Take what was saved out of the memory, if anything."""
        for name in cls._called().values():
            if name in memory:
                del memory[name]  # `pop` would read the array

    def save(self, memory: MutableMapping[str, AnyArray]) -> Self:
        """Put the arrays into the memory, in place of those of an earlier one; what it had of it stays as it is."""
        for field, name in self._called().items():
            array, before = getattr(self, field), memory.get(name)
            if array is None and before is not None:
                del memory[name]
            elif array is not before:
                memory[name] = array
        return self
