"""Runs with sites that may be unfit or fail again and again: who is asked to come back mended, and who is set aside."""

from collections import Counter
from collections.abc import Callable

from fedkernel.engines.grpc.hub import Hub
from fedkernel.engines.grpc.notify import Tell
from fedkernel.ground import FedkernelError, ProtocolError, and_more, find
from fedkernel.run import NOT_RUN, FailedRun
from fedkernel.wire import RunSpec


class Attempts:
    """Carries out runs one after the other, and remembers which sites they failed with.

    `mend`: seconds for which a site that cannot take part is waited for, to come back mended. `set_aside`: after so
    many failed runs in a row whose cause lies with a site no other is tried with it; 0: always. `tell`: told in a
    sentence who cannot take part, and who is set aside.
    """

    def __init__(self, hub: Hub, mend: float, set_aside: int, tell: Tell) -> None:
        self._hub = hub
        self._mend = mend
        self._most = set_aside
        self._tell = tell
        self._fit: set[tuple[str, str]] = set()  # names, and processes, of sites that have carried a run out
        self._refused: dict[str, str] = {}  # why sites could not take part, by their names
        self._in_a_row: Counter[str] = Counter()
        self._aside: dict[str, str] = {}

    def carry_out(self, run: RunSpec, begin: Callable[[], object]) -> FailedRun | None:
        """Carry a run out, which `begin` does, and return why there is no result; None: there is one."""
        if why := self._hopeless(run):
            return FailedRun(run.id, NOT_RUN, f"it was not tried, since {why}")
        try:
            self._begin(begin)
        except Exception as error:
            failed = FailedRun.of(run.id, error)  # what ends more than one run goes on its way
            if isinstance(error, FedkernelError):
                self._note(error)
            return failed
        self._fit |= self._hub.instances.items()
        self._refused.clear()  # all have taken part
        self._in_a_row.clear()
        return None

    def _begin(self, begin: Callable[[], object]) -> None:
        """Begin a run, and anew whenever sites that could not take part have come back."""
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
        """Tell what lies with sites' tables, before the first round, of sites that are here for the first time so.

        Who has carried a run out can take part, but in this run; who has come back as he went will not do better; and
        what all are at odds with is no site's fault.
        """
        names = self._hub.names_of(error.nodes)
        processes = {(name, self._hub.instances[name]) for name in names}
        as_before = any(self._refused.get(name) == str(error) for name in names)
        some = 0 < len(names) < len(self._hub.instances)
        return some and error.joining and error.mendable and not as_before and not processes & self._fit

    def _ask_back(self, error: FedkernelError) -> None:
        """Tell sites why they cannot take part, and wait until all are there again, with the others, or raise."""
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
        """Count the runs in a row that have failed with a site."""
        if not (names := self._hub.names_of(error.nodes)):
            return  # it tells nothing of anybody
        self._in_a_row = Counter({name: self._in_a_row[name] + 1 for name in names})
        for name in names:
            if self._most and self._in_a_row[name] >= self._most and name not in self._aside:
                count = self._in_a_row[name]
                runs = f"{count} runs in a row" if count > 1 else "a run"
                self._aside[name] = f"site {name!r} is set aside, with which {runs} failed: {error}"
                self._tell(f"{name} is set aside, with which {runs} failed; other runs are not tried with it")

    def _hopeless(self, run: RunSpec) -> str:
        """Return why a run need not be tried; empty: it is worth trying, or the strategy goes on without sites."""
        if away := [name for name in self._hub.missing if name in self._refused]:
            return f"site {away[0]!r} could not take part and has not come back: {self._refused[away[0]]}"
        if lost := self._hub.lost:
            return f"site {lost[0]!r}{and_more(len(lost) - 1)} is no longer connected"
        goes_on = getattr(find(run.strategy, object, "pairs", "strategy"), "on_missing", "fail") == "continue"
        return "" if goes_on else next(iter(self._aside.values()), "")


def raise_for(failures: list[FailedRun]) -> None:
    """Raise the cause of the first of runs that have failed, and say how many others there are."""
    if failures:
        error, text = failures[0].error, sentence_of(failures)
        raise error.reworded(text) if isinstance(error, FedkernelError) else ProtocolError(text)


def sentence_of(failures: list[FailedRun]) -> str:
    """Return what failed runs come to, for whoever took part in them; empty: nothing failed."""
    return f"{failures[0].text}{and_more(len(failures) - 1)}" if failures else ""
