"""Base class of a client's state between requests: named arrays in the client's memory."""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias

from fedkernel.ground import AnyArray, ProtocolError, accept_former_names

ClientMemory: TypeAlias = MutableMapping[str, AnyArray]
"""Arrays that a client keeps from one request of a run to the next, by name."""

CACHE_PREFIX = "passing "
"""Name prefix of cached arrays, which are lost with the process and sent as empty ones, of shape (0,)."""


@dataclass(frozen=True)
class State:
    """Base class of a client's state: arrays that it keeps from one request to a later one.

    A subclass is a dataclass with a field for each array. In the memory they are named by class and field,
    ``Iterate.alpha``; a field that is None is absent. `load` reads all of a state's arrays, so split them by use.
    """

    is_cache: ClassVar[bool] = False
    """True if the arrays are only a cache, which no engine moves or stores (`CACHE_PREFIX`)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_former_names(cls, {"passing": "is_cache"})

    @classmethod
    @cache
    def _array_names(cls) -> Mapping[str, str]:
        """Return the names of the state's arrays in the memory, by field."""
        prefix = f"{CACHE_PREFIX if cls.is_cache else ''}{cls.__name__}"
        return {field.name: f"{prefix}.{field.name}" for field in fields(cls)}

    @classmethod
    def known(cls, memory: Mapping[str, AnyArray]) -> bool:
        """Return whether the memory holds a state of this class."""
        return any(name in memory for name in cls._array_names().values())

    @classmethod
    def load(cls, memory: Mapping[str, AnyArray]) -> Self:
        """Return the state saved last; ProtocolError if none was, since an earlier request is missing."""
        if not cls.known(memory):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
            raise ProtocolError(f"it has no {words} yet: the request that must come before this one is missing")
        return cls(**{field: memory[name] for field, name in cls._array_names().items() if name in memory})

    @classmethod
    def forget(cls, memory: MutableMapping[str, AnyArray]) -> None:
        """Delete the saved state from the memory, if there is one."""
        for name in cls._array_names().values():
            if name in memory:
                del memory[name]  # `pop` would read the array

    def save(self, memory: MutableMapping[str, AnyArray]) -> Self:
        """Save the arrays in the memory, in place of those of an earlier state; unchanged arrays are not written."""
        for field, name in self._array_names().items():
            array, before = getattr(self, field), memory.get(name)
            if array is None and before is not None:
                del memory[name]
            elif array is not before:
                memory[name] = array
        return self
