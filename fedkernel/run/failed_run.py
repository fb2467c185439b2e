"""Description of a failed run, for an engine that goes on with the next run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedkernel.ground import EngineError, FedkernelError

NOT_RUN = "NotRun"
"""Kind of a run that was skipped because a site that it needs is excluded."""


@dataclass(frozen=True)
class FailedRun:
    """Run that ended without a result: its cause's class name, or `NOT_RUN`, text, and error if raised here."""

    run: str
    kind: str
    text: str
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, run: str, error: Exception) -> "FailedRun":
        """Build the description of a run's failure; raise the error itself if it ends all runs."""
        if not is_of_a_run(error):
            raise error
        return cls(run, type(error).__name__, text_of(error), error)

    @classmethod
    def from_table(cls, run: str, table: Mapping[str, str]) -> "FailedRun":
        """Rebuild from the `as_table` of a different process."""
        return cls(run, table["kind"], table["text"])

    @property
    def as_table(self) -> dict[str, str]:
        """Kind and text of the cause as plain data, for a different process."""
        return {"kind": self.kind, "text": self.text}


def text_of(error: Exception) -> str:
    """Return an error's text; an error that is not fedkernel's own is marked as a defect."""
    return str(error) if isinstance(error, FedkernelError) else f"{type(error).__name__}: {error} (this is a defect)"


def is_of_a_run(error: Exception) -> bool:
    """Return whether an error ends only one run; errors of the engine or the system end all runs."""
    return not isinstance(error, EngineError | OSError)
