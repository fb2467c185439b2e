"""Runs in which things go wrong by a seed, and how they may end.

Every history ends as the run without faults does, to the bit; or, with a quorum, as that of the sites that remain; or
with one sentence that names a site, and the round, by the round's deadline.
"""

import contextlib
import functools
import logging
import random
import re

import numpy as np
from faulty import World
from flwr.app import MessageType
from networks import admm, digits
from sites import app_over
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from fedkernel import DKPCA, RBF, DisKPCA, FKKMeans, ProtocolError
from fedkernel.run import CHECK_SECONDS, RunSettings
from fedkernel.testing import Pair, arrays_of, bits_of

DEADLINE = 60.0
CAUSES = (
    *("no longer connected", "no answer within", "did not answer in", "restarted", "quorum =", "were connected"),
    *("the request that must come before this one is missing", "sealed with other keys or in a different run"),
)
"""What failures say that a network may bring about."""
WINE = scale(load_wine().data)[::6]
ROWS, COLUMNS = np.array_split(WINE, 3), np.array_split(WINE, 3, axis=1)
PAIRS = {
    "DKPCA": Pair(DKPCA(2, RBF(0.05), local_components=3), COLUMNS),
    "DKPCA, quorum": Pair(DKPCA(2, RBF(0.05), local_components=3), COLUMNS),
    "FKKMeans": Pair(FKKMeans(2, n_features=4, iterations=1, coreset_size=6, solver="lanczos"), ROWS),
    "ADMMKPCA": Pair(admm(iterations=1), digits(8, 3)),
    "DisKPCA": Pair(DisKPCA(2, RBF(0.05), n_adaptive=6, embedding_size=5, n_random_features=20, share_rows=True), ROWS),
}
QUORUM = {"DKPCA, quorum": 2}
RATE, RATES = 0.06, {"FKKMeans": 0.015, "ADMMKPCA": 0.015, "DisKPCA": 0.015}  # of frames, of which these have many
WEIGHTS = (20, 20, 1, 1, 2)
NAMED = re.compile(r"(site '[abc]'|client [012])")


@functools.cache
def expected(name, sites=(0, 1, 2)):
    pair = PAIRS[name]
    result = pair.fit([pair.tables[site] for site in sites], seed=0)
    outputs_of = {site: bits_of(result.outputs[place]) for place, site in enumerate(sites)}
    return bits_of(arrays_of(result.model)), outputs_of, result


def any_pair(rng, weights=WEIGHTS):
    """Return the name of a pair, its client app, and what its sites will keep."""
    name, outputs = rng.choices(list(PAIRS), weights)[0], {}
    pair, keep = PAIRS[name], lambda number: outputs.setdefault(number, {}).update
    return name, app_over(pair.strategy.client, pair.tables, keep, share_rows=True), outputs


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def ending_of(name, outputs, carry_out, world=None):
    """Return how a run ended; AssertionError where it may not. In no world, nothing has gone wrong on the way."""
    try:
        result = carry_out()
    except ProtocolError as error:
        text = str(error)
        assert world is not None, text
        assert NAMED.search(text), f"unnamed: {text}"
        began, kind = world.questions[-1]
        assert "round " in text or kind.startswith(MessageType.QUERY), f"no round, though the sites had joined: {text}"
        assert world.now <= began + DEADLINE + CHECK_SECONDS, f"late: {text}"
        return cause_of(text)
    assert world is None or world.now <= world.questions[-1][0] + DEADLINE + CHECK_SECONDS
    lost_sites = [int(text.split()[1]) for text in result.findings if " was lost in " in text]
    remaining = tuple(site for site in range(3) if site not in lost_sites)
    assert not lost_sites or name in QUORUM, result.findings
    model, outputs_of, reference = expected(name, remaining)
    assert bits_of(arrays_of(result.model)) == model, f"other numbers, without {lost_sites}"
    if lost_sites:
        return "those of who remain"
    assert all(bits_of(outputs.get(site, {})) == arrays for site, arrays in outputs_of.items()), "a site keeps others"
    assert result.ledger == reference.ledger, "another account"
    return "identical, resumed" if any("and resumed at " in text for text in result.findings) else "identical"


def history(seed, *, trace=None):
    """Return what pair ran, how the run of a seed ended, which faults there were; AssertionError where it may not."""
    name, app, outputs = any_pair(random.Random(-1 - seed))  # noqa: S311 - not secret
    with quiet():
        world = World(seed, app, rate=RATES.get(name, RATE), trace=trace)
        settings = RunSettings(clients=3, deadline=DEADLINE, quorum=QUORUM.get(name))
        ending = ending_of(name, outputs, lambda: PAIRS[name].strategy.run(world.hub, settings), world)
    return name, ending, world.faults


def cause_of(text):
    """Return the kind of a failure; AssertionError for one that no network may bring about."""
    kind = next((kind for kind in CAUSES if kind in text), "")
    assert kind, f"an unknown failure: {text}"
    return f"named: {kind}"
