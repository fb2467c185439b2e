"""Storage of a site's cluster labels, for comparison in a later run of the same study.

Each file has a mark, a hash of run and table, to exclude other studies' runs of the same id and changed tables.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkernel.ground import AnyArray, InputError, OwnFileError, RefusedError, open_npz
from fedkernel.wire import Job, RunSpec

ORIGIN = "origin"  # name of the mark among the arrays of a site's file

EQUAL_FIELDS = ("strategy", "pair", "parameters", "sites", "prepare", "evaluate")
"""Fields of `RunSpec` that must be equal in two runs whose clusters are compared."""


@dataclass(frozen=True)
class OwnClusters:
    """Storage of a site's cluster labels, and access to those of an earlier run. `who`: the site's name in texts."""

    folder: Path
    job: Job
    run: RunSpec
    table: Callable[[], str]
    who: str

    def marked(self, outputs: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return a site's output arrays, with the run's mark if cluster labels are among them."""
        return {**outputs, ORIGIN: np.array(self._origin(self.run))} if "labels" in outputs else dict(outputs)

    def check(self) -> None:
        """Raise RefusedError if the run names an earlier run that `of` would refuse."""
        if self.run.compare is not None:
            self._check(self.run.compare)

    def of(self, run: str) -> AnyArray:
        """Return the cluster labels (n_m,) of the site's rows in an earlier run.

        Raises RefusedError unless the study names that run, and it comes before with the same method and sites. Raises
        OwnFileError if the site has no clusters of it, or those of another run of that id, or of a changed table.
        """
        earlier = self._check(run)
        path = self.folder / f"{run}.npz"
        try:
            with open_npz(path) as file:
                if "labels" not in file:  # a failed run leaves its outputs so far
                    raise InputError(f"{path} holds no labels, since the run did not finish here")
                labels, origin = file["labels"], str(file[ORIGIN])
        except FileNotFoundError:
            raise self._nothing(run, f"there is no {path}") from None
        except InputError as error:
            raise self._nothing(run, str(error)) from None
        if origin != self._origin(earlier):
            raise self._nothing(run, f"{path} is of a different run with this name, or the table has changed since")
        return labels

    def _check(self, run: str) -> RunSpec:
        """Return the study's earlier run with this id. Raises RefusedError unless the two runs may be compared."""
        runs = self.job.runs if self.job.study is None else self.job.study.runs
        for earlier in runs[: runs.index(self.run)]:
            same = all(getattr(earlier, name) == getattr(self.run, name) for name in EQUAL_FIELDS)
            if earlier.id == run == self.run.compare and same and earlier.seed != self.run.seed:
                return earlier
        raise RefusedError(
            "study.plan",
            f"{self.who} compares its clusters only with an earlier run of the study, of the same method with another "
            f"seed, but was asked for run {run[:240]!r} (study.plan)",
        )

    def _origin(self, run: RunSpec) -> str:
        """Return the mark of a run: a hash of the run and the site's table."""
        return hashlib.sha256(f"{self.table()}{run.model_dump_json()}".encode()).hexdigest()

    def _nothing(self, run: str, why: str) -> OwnFileError:
        outline = f"{self.who} has no clusters of run {run!r} to compare this run's with"
        return OwnFileError(outline, f"{self.who}: {why}; use the --out folder of the earlier run")
