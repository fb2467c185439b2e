"""A run that has failed, as an engine tells of it that goes on with the next one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedkernel.ground import EngineError, FedkernelError

NOT_RUN = "NotRun"
"""The kind of a run that was not tried, since a site that it needs is set aside."""


@dataclass(frozen=True)
class FailedRun:
    """A run of which there is no result.

    - `run`: its id.
    - `kind`: of the cause: the name of its class, or `NOT_RUN`.
    - `text`: the cause, a sentence.
    - `error`: the cause itself, where it came up in this process.
    """

    run: str
    kind: str
    text: str
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, run: str, error: Exception) -> "FailedRun":
        """Return what an error means for its run.

        Raises Exception: the error itself, where it is no run's: the engine is gone, or the disk is full.
        """
        if not is_of_a_run(error):
            raise error
        return cls(run, type(error).__name__, text_of(error), error)

    @classmethod
    def from_table(cls, run: str, table: Mapping[str, str]) -> "FailedRun":
        """Read what `as_table` wrote in another process."""
        return cls(run, table["kind"], table["text"])

    @property
    def as_table(self) -> dict[str, str]:
        """The cause, for whoever waits in another process."""
        return {"kind": self.kind, "text": self.text}


def text_of(error: Exception) -> str:
    """Return an error as a sentence: what nobody raised on purpose is a defect."""
    return str(error) if isinstance(error, FedkernelError) else f"{type(error).__name__}: {error} (this is a defect)"


def is_of_a_run(error: Exception) -> bool:
    """Tell what may end one run from what would end each: an engine that is gone, and what the system refuses."""
    return not isinstance(error, EngineError | OSError)
