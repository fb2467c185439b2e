"""Servers that die at any moment of a run, and others that go on with the run's journal, by a seed.

They die over the network of `faulty`, whose sites live on or are started again, too; or in one process, with their
sites. A journal may have been cut off as they died, or have another bit since.
"""

import itertools
import random
import struct
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

from counting import Died
from endings import DEADLINE, PAIRS, QUORUM, RATE, RATES, any_pair, ending_of, expected, quiet
from endings import history as network
from faulty import NAMES, SimulatedHub, World
from folders import FILES

from fedkernel.engines.local import LocalGrid
from fedkernel.run.journal import NAME
from fedkernel.run.server_app import _execute_run, _journal_of
from fedkernel.wire import Job, RunSpec

HEAD = struct.Struct(">QI32s")
LIVES = 4
"""Of a server, the last of which nothing ends but the run."""

WEIGHTS = (4, 4, 1, 1, 2)
"""Of the pairs: more of those with many rounds than where only the network goes wrong."""

NEVER = 10**9, ""
MOMENTS = ("about to ask", "asking", "all have replied")
MOST = 1000.0
"""Seconds of the virtual clock in which every site comes back that ever will."""


class Mortal:
    """A grid that dies when it has asked so often."""

    exchanges, moment = NEVER

    def push_messages(self, messages):
        self.exchanges -= 1
        if self.exchanges <= 0 and self.moment == "about to ask":
            raise Died
        return super().push_messages(messages)

    def checkpoint(self):
        if self.exchanges <= 0 and self.moment == "all have replied":
            raise Died
        return super().checkpoint()


class MortalHub(Mortal, SimulatedHub):
    """It may also die while it waits."""

    def push_messages(self, messages):
        ids = super().push_messages(messages)
        if self.exchanges == 0 and self.moment == "asking":
            self.world.later(self.world.rng.uniform(0.0, 1.0), self.die)
        return ids

    def die(self):
        if self.world.hub is self:
            raise Died


class MortalGrid(Mortal, LocalGrid):
    """Its sites die with it."""


def places_in(data):
    """Return where the records begin of a journal, which may be under way, the header's left out."""
    place, places = 0, []
    while place + HEAD.size <= len(data):
        places.append(place)
        place += HEAD.size + HEAD.unpack_from(data, place)[0]
    return places[1:]


def damage(path, rng):
    """Do to a journal what may happen to it as its process dies, or later; return what that was, if it was anything."""
    fault = rng.choice(("", "", "cut off", "another bit"))
    if not fault or not path.exists() or not (data := bytearray(path.read_bytes())):
        return []
    if fault == "cut off":  # within the last record
        del data[rng.randrange(max(places_in(data), default=0), len(data)) :]
    elif fault == "another bit":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return [fault]


def job_of(name, folder):
    strategy = PAIRS[name].strategy
    run = RunSpec(id="run", strategy=type(strategy).__name__, parameters=strategy.hyperparameters, sites=list(NAMES))
    return Job(runs=[run], out=folder, journals=True, deadline=DEADLINE, quorum=QUORUM.get(name))


def header_of(job, run, strategy):
    """Return less than a journal's header: what would be looked up again in every life stays the same."""
    return {"run": run.id, "strategy": repr(strategy)}


def carry_out(job, strategy, grid):
    """Carry a run out, or on, as the ServerApp does, but for its files."""
    (run,) = job.runs
    known = patch("fedkernel.run.journal_header.header_of", header_of)
    with known, _journal_of(job, run, strategy, grid) as (resumable, journal):
        return _execute_run(job, run, strategy, resumable, journal)


def lives(name, rng):
    """Yield for each life of a server when it dies, and in which of what moments."""
    exchanges = 1 + expected(name)[2].ledger.rounds
    for _ in range(LIVES - 1):
        yield rng.randint(1, exchanges), rng.choice(MOMENTS)
    yield NEVER


def over_a_network(seed, *, trace=None):
    """Return what `endings.history` does, of a run whose server dies; where it is not gone on with, sites are gone."""
    rng = random.Random(-1 - seed)  # noqa: S311 - not secret
    name, app, outputs = any_pair(rng, WEIGHTS)
    ending = ""
    with quiet(), TemporaryDirectory(dir=FILES) as folder:
        job = job_of(name, folder)
        text = job.model_copy(update={"out": None, "journals": False}).model_dump_json()
        world = World(seed, app, rate=RATES.get(name, RATE), kind=MortalHub, job=text, trace=trace)
        clock = SimpleNamespace(monotonic=lambda: world.now, perf_counter=lambda: world.now, sleep=world.sleep)
        for world.hub.exchanges, world.hub.moment in lives(name, rng):
            world.go_on(world.now + MOST, until=lambda: not world.hub.missing)
            if missing := world.hub.missing:
                assert all(site.gone for site in world.sites if site.name in missing), f"{missing} do not come"
                ending = "not gone on with: a site does not come back"
                break
            try:
                with patch("fedkernel.run.client_joining.time", clock):
                    ending = ending_of(name, outputs, partial(carry_out, job, PAIRS[name].strategy, world.hub), world)
                break
            except Died:
                world.note(f"the server dies, {world.hub.moment}")
                world.faults += ["die", *damage(Path(folder) / "run" / NAME, rng)]
                world.end(restart=lambda: rng.random() < 0.15)
                world.sleep(rng.choice((0.05, 1.0, 30.0)))
                world.begin()
                world.note(f"a server is started, after: {world.faults[-1]}")
    return name, ending, world.faults


def in_one_process(seed, *, trace=None):
    """Return the same of a run in one process, which dies with its sites."""
    rng = random.Random(-1 - seed)  # noqa: S311 - not secret
    name, app, outputs = any_pair(rng, WEIGHTS)
    ending, faults = "", []
    clock = SimpleNamespace(monotonic=itertools.count().__next__)  # that ticks when it is read
    with quiet(), TemporaryDirectory(dir=FILES) as folder, patch("fedkernel.run.journal.time", clock):
        job = job_of(name, folder)
        for exchanges, moment in lives(name, rng):
            with MortalGrid(app, clients=len(NAMES)) as grid:
                grid.exchanges, grid.moment, grid.write_every = exchanges, moment, rng.choice((0.0, 2.0, 5.0))
                try:
                    ending = ending_of(name, outputs, partial(carry_out, job, PAIRS[name].strategy, grid))
                    break
                except Died:
                    faults += ["die", *damage(Path(folder) / "run" / NAME, rng)]
            if trace is not None:
                trace(f"the process dies, {moment}, at exchange {exchanges}; after: {faults[-1]}")
    return name, ending, faults


KINDS = [network] * 6 + [over_a_network] * 3 + [in_one_process]


def history(seed, *, trace=None):
    """Return what pair ran, how the run of a seed ended, which faults there were; AssertionError where it may not."""
    return KINDS[seed % len(KINDS)](seed, trace=trace)
