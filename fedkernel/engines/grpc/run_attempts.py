"""Retry policy for runs whose sites are unfit or fail repeatedly."""

from collections import Counter
from collections.abc import Callable

from fedkernel.engines.grpc.operator_messages import Tell
from fedkernel.engines.grpc.stream_grid import Hub
from fedkernel.ground import FedkernelError, ProtocolError, and_more, load_class
from fedkernel.run import NOT_RUN, FailedRun
from fedkernel.wire import RunSpec


class Attempts:
    """Executor of a job's runs, with a memory of the sites that caused failures.

    `mend`: seconds to wait for the return of a site that cannot take part. `set_aside`: consecutive failed runs caused
    by a site after which it is in no further run; 0: never. `tell`: called with a sentence whenever a site cannot take
    part or is set aside.
    """

    def __init__(self, hub: Hub, mend: float, set_aside: int, tell: Tell) -> None:
        self._hub = hub
        self._mend = mend
        self._most = set_aside
        self._tell = tell
        self._fit: set[tuple[str, str]] = set()  # names and processes of sites that have completed a run
        self._refused: dict[str, str] = {}  # errors of sites that could not take part, by name
        self._in_a_row: Counter[str] = Counter()
        self._aside: dict[str, str] = {}

    def carry_out(self, run: RunSpec, begin: Callable[[], object]) -> FailedRun | None:
        """Execute a run by calling `begin`, and return its failure; None after success."""
        if why := self._hopeless(run):
            return FailedRun(run.id, NOT_RUN, f"it was not tried, since {why}")
        try:
            self._begin(begin)
        except Exception as error:
            failed = FailedRun.of(run.id, error)  # raises an error that concerns all runs
            if isinstance(error, FedkernelError):
                self._note(error)
            return failed
        self._fit |= self._hub.instances.items()
        self._refused.clear()  # all have taken part
        self._in_a_row.clear()
        return None

    def _begin(self, begin: Callable[[], object]) -> None:
        """Begin a run, and again whenever unfit sites have come back."""
        while True:
            try:
                begin()
            except FedkernelError as error:
                if not self._may_be_mended(error):
                    raise
                self._ask_back(error)
            else:
                return

    def _may_be_mended(self, error: FedkernelError) -> bool:
        """Return whether a failure before the first round may be repaired by some sites.

        False for sites that have completed a run, for an error that a site repeats after its return, and for an error
        of all sites, which is no single one's fault.
        """
        names = self._hub.names_of(error.nodes)
        processes = {(name, self._hub.instances[name]) for name in names}
        as_before = any(self._refused.get(name) == str(error) for name in names)
        some = 0 < len(names) < len(self._hub.instances)
        return some and error.joining and error.mendable and not as_before and not processes & self._fit

    def _ask_back(self, error: FedkernelError) -> None:
        """Dismiss unfit sites with the reason, and wait for all to be connected again; raise if they are not."""
        names = self._hub.names_of(error.nodes)
        text = f"{', '.join(names)} cannot take part: {error}; the others wait for it to come back mended"
        self._tell(text)
        for name in names:
            self._refused[name] = str(error)
            self._hub.dismiss(name, text)
        if not self._hub.wait_for_all(seconds=self._mend):
            away = f"{', '.join(names)} did not come back in {self._mend:g} s"
            raise error.reworded(f"{error} ({away})") from error

    def _note(self, error: FedkernelError) -> None:
        """Count each site's consecutive failed runs."""
        if not (names := self._hub.names_of(error.nodes)):
            return  # no site caused it
        self._in_a_row = Counter({name: self._in_a_row[name] + 1 for name in names})
        for name in names:
            if self._most and self._in_a_row[name] >= self._most and name not in self._aside:
                count = self._in_a_row[name]
                runs = f"{count} runs in a row" if count > 1 else "a run"
                self._aside[name] = f"site {name!r} is set aside, with which {runs} failed: {error}"
                self._tell(f"{name} is set aside, with which {runs} failed; other runs are not tried with it")

    def _hopeless(self, run: RunSpec) -> str:
        """Return why a run must be skipped; empty if it can be tried."""
        if away := [name for name in self._hub.missing if name in self._refused]:
            return f"site {away[0]!r} could not take part and has not come back: {self._refused[away[0]]}"
        if lost := self._hub.lost:
            return f"site {lost[0]!r}{and_more(len(lost) - 1)} is no longer connected"
        goes_on = getattr(load_class(run.strategy, object, "pairs", "strategy"), "on_missing", "fail") == "continue"
        return "" if goes_on else next(iter(self._aside.values()), "")


def raise_for(failures: list[FailedRun]) -> None:
    """Raise the first failed run's cause, with the number of the others."""
    if failures:
        error, text = failures[0].error, sentence_of(failures)
        raise error.reworded(text) if isinstance(error, FedkernelError) else ProtocolError(text)


def sentence_of(failures: list[FailedRun]) -> str:
    """Summarise failed runs for the sites; empty if none failed."""
    return f"{failures[0].text}{and_more(len(failures) - 1)}" if failures else ""
