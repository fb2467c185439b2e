"""Where the points lie that clusters were found from, which runs keep where the study says so."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.results.rows import Run
from fedkernel.models import CoresetPicture
from fedkernel.run import CORESET


def read_coresets(out: Path, runs: Iterable[Run]) -> Mapping[str, CoresetPicture]:
    """Return by the run's id what has been kept; InputError for a file that is damaged."""
    paths = {run.id: out / "results" / run.id / CORESET for run in runs}
    return {run_id: CoresetPicture.load(path) for run_id, path in paths.items() if path.exists()}
