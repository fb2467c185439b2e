"""Flower ServerApp that executes a job's runs."""

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedkernel.data import SiteFile, file_errors
from fedkernel.ground import FedkernelError, InputError, distinct_names, load_class, write_atomic
from fedkernel.models import load_model
from fedkernel.numerics import import_kernels
from fedkernel.run.flower_grids import ResumableGrid
from fedkernel.run.journal import Journal, RecordMismatchError
from fedkernel.run.journal_header import folder_here, header_of
from fedkernel.run.result import Result
from fedkernel.run.result_transport import Parcel, is_of_a_run, pack_result, print_parcel, text_of
from fedkernel.run.run_resumption import ResumingGrid
from fedkernel.run.settings import RunSettings
from fedkernel.wire import Job, RunSpec

ERROR = "error.json"  # name of the file with a failure's cause, for the process that waits for results
log = logging.getLogger("flwr")  # Flower's own log, which `flwr run --stream` prints


@runtime_checkable
class Strategy(Protocol):
    """Interface of a strategy for the ServerApp; `fedkernel.strategy.KernelStrategy` implements it."""

    def run(self, grid: Grid, settings: RunSettings, *, evaluate: bool, journal: Journal | None) -> Result[Any]:
        """Run the strategy's protocol over a grid."""

    def project(
        self, grid: Grid, settings: RunSettings, model: Any, *, to_sites: bool, journal: Journal | None
    ) -> Result[Any]:
        """Project the sites' new rows onto a fitted model."""


def server_app() -> ServerApp:
    """Build the ServerApp that executes the job in Flower's run configuration, run by run.

    Each run's result appears at once in its folder in the job's ``out``; the cause of a failure, one sentence, in
    ``error.json`` in the folder of the job, or of the run if the job goes on.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        job = Job.from_json(str(context.run_config["job"]))
        for run in job.runs:
            try:
                kind: type[Strategy] = load_class(run.strategy, Strategy, "pairs", "strategy")
                import_kernels(run.parameters)
                strategy = kind(**run.parameters)
                with _journal_of(job, run, strategy, grid) as (resumable, journal):
                    _deliver_result(run, _execute_run(job, run, strategy, resumable, journal), job)
                    if job.folder is None and journal is not None:  # only this process knows its folder
                        journal.remove()
            except Exception as error:
                goes_on = job.go_on and is_of_a_run(error)
                if goes_on or isinstance(error, FedkernelError):
                    _report_failure(error, run.id if goes_on else "", job)
                if not goes_on:
                    raise
                log.warning("%s has failed", run.id, exc_info=error)

    return app


def _report_failure(error: Exception, run: str, job: Job) -> None:
    """Write or print the cause of a run's failure, or of the whole job's if `run` is empty."""
    failure = {"kind": type(error).__name__, "text": text_of(error)}
    if job.mark is not None:
        print_parcel(Parcel(run, error=failure))
    elif job.out is not None:
        write_atomic(Path(job.out) / run / ERROR, lambda file: file.write(json.dumps(failure).encode()))


@contextmanager
def _journal_of(job: Job, run: RunSpec, strategy: Strategy, grid: Grid) -> Iterator[tuple[Grid, Journal | None]]:
    """Open a run's journal (None without `job.journals`), and a grid that can resume the run."""
    if not job.journals:
        yield grid, None
        return
    resumable, header = grid if isinstance(grid, ResumableGrid) else ResumingGrid(grid), header_of(job, run, strategy)
    folder = folder_here(run) if job.folder is None else job.folder / run.id
    journal = Journal(folder, header, resumable.write_every)
    try:
        if len(journal):
            resumable.prepare_resume(run.key, journal.answered, journal.checkpoints())
        yield resumable, journal
    except Exception as error:
        joining = isinstance(error, FedkernelError) and error.joining
        if is_of_a_run(error) and (joining or not journal.pending):  # its record would make a new try fail again
            journal.remove()
        raise
    finally:
        journal.close()
        if job.folder is None:
            with suppress(OSError):  # if the folder is not empty
                folder.rmdir()


def _execute_run(job: Job, run: RunSpec, strategy: Strategy, grid: Grid, journal: Journal | None) -> Result[Any]:
    """Execute or resume a run, and start it anew if the journal does not match it."""
    limits: dict[str, Any] = {name: getattr(job, name) for name in ("deadline", "deadlines", "quorum", "threads")}
    names = ("seed", "clients", "missing", "joint_seed", "compare", "wire", "sums", "privacy")
    own: dict[str, Any] = {name: getattr(run, name) for name in names}
    real = run.sites is not None  # with an outbox
    files = distinct_names([str(file.path) for file in run.shards or () if isinstance(file, SiteFile)])
    own |= {"prepare": run.prepares, "hashes": real, "shard_names": tuple(files)}
    settings = RunSettings(run=run.id, **limits, **own)
    try:
        if run.project is None:
            return strategy.run(grid, settings, evaluate=run.evaluate, journal=journal)
        model, to_sites = _earlier_model(job, run), run.project.coordinates == "sites"
        return strategy.project(grid, settings, model, to_sites=to_sites, journal=journal)
    except RecordMismatchError as error:
        if journal is None:
            raise
        journal.set_aside(str(error))
        return _execute_run(job, run, strategy, grid, journal)


def _earlier_model(job: Job, run: RunSpec) -> Any:
    """Load the model that a run projects onto. Raises InputError unless its hash is the one in the study."""
    path = Path(job.models[run.id])
    with file_errors(path, "the model of an earlier run"):
        content = path.read_bytes()
    if run.project is None or hashlib.sha256(content).hexdigest() != run.project.model:
        raise InputError(f"{path} is not the model of run {run.id!r} (project.model)")
    return load_model(path)


def _deliver_result(run: RunSpec, result: Result[Any], job: Job) -> None:
    """Save a run's result to the job's folder if that is on this machine, else print or log the result."""
    folder, parcel = job.folder, Parcel(run.id)
    if folder is not None:
        result.save(folder / run.id, whole=job.whole)
    elif job.mark is None:
        log.info("%s: %s", run.id, result)
    else:
        with TemporaryDirectory(prefix="fedkernel-") as temporary:
            result.save(temporary, whole=job.whole)
            parcel = pack_result(run.id, Path(temporary))
    if job.mark is not None:
        print_parcel(parcel)
