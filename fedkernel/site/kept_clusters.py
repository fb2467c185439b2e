"""The clusters that a site kept of a run's rows, for a later run of the study whose clusters are compared with them.

They are in the site's own file of that run, marked with what they are of, so that they survive its process, and are no
other's: neither another study's of that name, nor of a table that was changed since.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkernel.ground import AnyArray, InputError, OwnFileError, RefusedError, open_npz
from fedkernel.wire import Job, RunSpec

ORIGIN = "origin"
"""What the mark is called among the arrays of a site's file."""

SAME = ("strategy", "pair", "parameters", "sites", "prepare", "evaluate")
"""Of runs that are compared."""


@dataclass(frozen=True)
class OwnClusters:
    """What a site keeps of a run's clusters, and has of those that they may be compared with.

    `folder`: the site's own. `table`: returns the SHA-256 of the site's file. `who`: what texts call the site.
    """

    folder: Path
    job: Job
    run: RunSpec
    table: Callable[[], str]
    who: str

    def marked(self, outputs: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return arrays that the site keeps, with the mark of their run where clusters are among them."""
        return {**outputs, ORIGIN: np.array(self._origin(self.run))} if "labels" in outputs else dict(outputs)

    def check(self) -> None:
        """Raise RefusedError, as `of` does, where the run's clusters are to be compared with those of a wrong run.

        Where that has failed, and there are none of it, this one may go on without.
        """
        if self.run.compare is not None:
            self._check(self.run.compare)

    def of(self, run: str) -> AnyArray:
        """Return the clusters (n_m,) of the site's rows in the run of that id.

        Raises RefusedError if that is not the one that the study says, or none of the same method and sites that comes
        before. Raises OwnFileError if the site has kept none of it, or of another run of that id, or its table was
        changed.
        """
        earlier = self._check(run)
        path = self.folder / f"{run}.npz"
        try:
            with open_npz(path) as file:
                if "labels" not in file:  # a run that failed here leaves what the site has kept until then
                    raise InputError(f"{path} holds no labels, since the run has not finished here")
                labels, origin = file["labels"], str(file[ORIGIN])
        except FileNotFoundError:
            raise self._nothing(run, f"there is no {path}") from None
        except InputError as error:
            raise self._nothing(run, str(error)) from None
        if origin != self._origin(earlier):
            raise self._nothing(run, f"{path} is of another run of that name, or of a table that has changed since")
        return labels

    def _check(self, run: str) -> RunSpec:
        """Return the run of that id, which must be the one that this one may be compared with."""
        earlier = self._earlier()
        if earlier is None or run != earlier.id:
            raise RefusedError(
                "study.plan",
                f"{self.who} compares its clusters only with those of a run that the study has before this one, of the "
                f"same method with another seed, but was asked for run {run[:240]!r} (study.plan)",
            )
        return earlier

    def _earlier(self) -> RunSpec | None:
        """Return the run that this one may be compared with."""
        runs = self.job.runs if self.job.study is None else self.job.study.runs
        for other in runs[: runs.index(self.run)]:
            if other.id == self.run.compare:
                same = all(getattr(other, name) == getattr(self.run, name) for name in SAME)
                return other if same and other.seed != self.run.seed else None
        return None

    def _origin(self, run: RunSpec) -> str:
        """Return what tells a run on the site's table from all others: a hash of both."""
        return hashlib.sha256(f"{self.table()}{run.model_dump_json()}".encode()).hexdigest()

    def _nothing(self, run: str, why: str) -> OwnFileError:
        outline = f"{self.who} has no clusters of run {run!r} to compare this run's with"
        return OwnFileError(outline, f"{self.who}: {why}; allowed: the folder that it was joined with (--out)")
