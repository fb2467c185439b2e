"""Execution of a job's runs, with retries after a site's repair and exclusion of sites that fail repeatedly."""

from collections import Counter
from collections.abc import Callable

from fedkernel.engines.grpc.reports import Report
from fedkernel.engines.grpc.stream_grid import StreamGrid
from fedkernel.ground import FedkernelError, ProtocolError, and_more, load_class
from fedkernel.run import NOT_RUN, FailedRun
from fedkernel.wire import RunSpec


class RunRetries:
    """Executor of a job's runs, with a memory of the sites that caused failures.

    `repair_seconds`: longest wait for the return of a site that cannot take part. `set_aside`: consecutive failed runs
    caused by a site after which it is in no further run; 0: never. `report`: called with a sentence on such sites.
    """

    def __init__(self, grid: StreamGrid, repair_seconds: float, set_aside: int, report: Report) -> None:
        self._grid = grid
        self._repair_seconds = repair_seconds
        self._failures_allowed = set_aside
        self._report = report
        self._proven: set[tuple[str, str]] = set()  # names and processes of sites that have completed a run
        self._unfit: dict[str, str] = {}  # errors of sites that could not take part, by name
        self._failures_in_a_row: Counter[str] = Counter()
        self._set_aside: dict[str, str] = {}

    def carry_out(self, run: RunSpec, begin: Callable[[], object]) -> FailedRun | None:
        """Execute a run by calling `begin`. Return the run's failure, or None if it succeeded."""
        if why := self._skip_reason(run):
            return FailedRun(run.id, NOT_RUN, f"it was skipped, since {why}")
        try:
            self._begin(begin)
        except Exception as error:
            failed = FailedRun.of(run.id, error)  # raises an error that concerns all runs
            if isinstance(error, FedkernelError):
                self._note(error)
            return failed
        self._proven |= self._grid.instances.items()
        self._unfit.clear()  # all have taken part
        self._failures_in_a_row.clear()
        return None

    def _begin(self, begin: Callable[[], object]) -> None:
        """Call `begin`, and call it again whenever sites that could not take part have come back."""
        while True:
            try:
                begin()
            except FedkernelError as error:
                if not self._may_be_repaired(error):
                    raise
                self._await_return(error)
            else:
                return

    def _may_be_repaired(self, error: FedkernelError) -> bool:
        """Return whether some sites may repair a failure to join. Both they and the error must be new."""
        names = self._grid.names_of(error.nodes)
        processes = {(name, self._grid.instances[name]) for name in names}
        as_before = any(self._unfit.get(name) == str(error) for name in names)
        some = 0 < len(names) < len(self._grid.instances)
        return some and error.joining and error.mendable and not as_before and not processes & self._proven

    def _await_return(self, error: FedkernelError) -> None:
        """Dismiss the sites that caused an error, with its text, and wait until all are back. Else raise the error."""
        names = self._grid.names_of(error.nodes)
        text = f"{', '.join(names)} cannot take part: {error}; the others wait until this is repaired"
        self._report(text)
        for name in names:
            self._unfit[name] = str(error)
            self._grid.dismiss(name, text)
        if not self._grid.wait_for_all(seconds=self._repair_seconds):
            away = f"{', '.join(names)} did not come back in {self._repair_seconds:g} s"
            raise error.reworded(f"{error} ({away})") from error

    def _note(self, error: FedkernelError) -> None:
        """Count each site's consecutive failed runs, and exclude sites with too many."""
        if not (names := self._grid.names_of(error.nodes)):
            return  # no site caused it
        self._failures_in_a_row = Counter({name: self._failures_in_a_row[name] + 1 for name in names})
        for name in names:
            count = self._failures_in_a_row[name]
            if 0 < self._failures_allowed <= count and name not in self._set_aside:
                runs = f"{count} runs in a row" if count > 1 else "a run"
                self._set_aside[name] = f"site {name!r} is excluded, because {runs} failed by its fault: {error}"
                self._report(f"{name} is excluded from further runs, because {runs} failed by its fault")

    def _skip_reason(self, run: RunSpec) -> str:
        """Return the reason to skip a run, or an empty text if it can be tried."""
        if away := [name for name in self._grid.missing if name in self._unfit]:
            return f"site {away[0]!r} could not take part and has not come back: {self._unfit[away[0]]}"
        if lost := self._grid.lost:
            return f"site {lost[0]!r}{and_more(len(lost) - 1)} is no longer connected"
        goes_on = getattr(load_class(run.strategy, object, "pairs", "strategy"), "on_missing", "fail") == "continue"
        return "" if goes_on else next(iter(self._set_aside.values()), "")


def raise_for(failures: list[FailedRun]) -> None:
    """Raise the first failed run's error, with the number of further failed runs."""
    if failures:
        error, text = failures[0].error, sentence_of(failures)
        raise error.reworded(text) if isinstance(error, FedkernelError) else ProtocolError(text)


def sentence_of(failures: list[FailedRun]) -> str:
    """Return one sentence for the sites on failed runs, or an empty text if none failed."""
    return f"{failures[0].text}{and_more(len(failures) - 1)}" if failures else ""
