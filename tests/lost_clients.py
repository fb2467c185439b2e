"""docs/explanation/reliability.md: runs whose client is lost. ``cd tests && python -m lost_clients`` writes it."""

from pathlib import Path
from unittest import mock

import numpy as np
from marked_pages import filled
from networks import admm, digits
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from fedkernel import RBF, CentroidKMeans, CentroidKPCA, KernelClient, ProtocolError, SpectralKMeans
from fedkernel.strategies import DKPCA, DisKPCA, FKKMeans, PeerVFedPCA, RFKKMeans, UniformKPCA, VFedAKPCA, VFedPCA
from fedkernel.testing import Pair, arrays_of, bits_of
from fedkernel.wire.quorum import OF_ALL_TABLES, OF_REMAINING_CLIENTS

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "reliability.md"
MEANINGS = (OF_ALL_TABLES, OF_REMAINING_CLIENTS)
WINE = scale(load_wine().data)[::3]
ROWS, COLUMNS = np.array_split(WINE, 4), np.array_split(WINE, 4, axis=1)
DRAWN = {"n_adaptive": 8, "embedding_size": 6, "n_random_features": 50, "share_rows": True}
PAIRS = {
    "DKPCA": Pair(DKPCA(2, RBF(0.05), local_components=3), COLUMNS),
    "VFedPCA": Pair(VFedPCA(2, merge="eigenvalue", rounds=2), COLUMNS),
    "VFedAKPCA": Pair(VFedAKPCA(2, kernel=RBF(0.2), merge="exact"), COLUMNS),
    "PeerVFedPCA": Pair(PeerVFedPCA(rounds=2), COLUMNS),
    "FKKMeans": Pair(FKKMeans(2, 2, 4, iterations=1, kernel=RBF(0.1), solver="lanczos", coreset_size=10), ROWS),
    "RFKKMeans": Pair(RFKKMeans(2, n_features=4, kernel=RBF(0.1), coreset_size=10), ROWS),
    "CentroidKMeans": Pair(CentroidKMeans(2, RBF(0.05), n_landmarks=8, rounds=2), ROWS),
    "CentroidKPCA": Pair(CentroidKPCA(2, RBF(0.05), n_landmarks=8, rounds=2), ROWS),
    "DisKPCA": Pair(DisKPCA(2, RBF(0.05), **DRAWN), ROWS),
    "UniformKPCA": Pair(UniformKPCA(2, RBF(0.05), n_samples=8, share_rows=True), ROWS),
    "SpectralKMeans": Pair(SpectralKMeans(2, DisKPCA(2, RBF(0.05), **DRAWN), coreset_size=10), ROWS),
    "ADMMKPCA": Pair(admm(kernel=RBF(0.001), iterations=2), digits(12, 4)),
}


class LostError(Exception):
    """A client is no more."""


def losing(pair, place):
    """Run a pair, of whose clients the last is lost in the round of that place, with a quorum of all others."""
    respond, last, asked = KernelClient._respond, len(pair.tables) - 1, []

    def respond_or_not(self, answer, request, config):
        if self.client == last:
            asked.append(request)
            if len(asked) == place + 1:
                raise LostError
        return respond(self, answer, request, config)

    with mock.patch.object(KernelClient, "_respond", respond_or_not):
        result = pair.fit(pair.tables, seed=0, quorum=last)
    assert len(asked) == place + 1, "whoever is lost is not asked any more"
    return result


def outcome(pair, place, phase):
    """Return what becomes of such a run, compared with those of all clients and of the others."""
    try:
        result = losing(pair, place)
    except ProtocolError as error:
        sentence = str(error)
    else:
        return goes_on_with(pair, result, f"round {place + 1} ({phase})")
    assert f"({phase}), client {len(pair.tables) - 1}: " in sentence
    assert sentence.endswith("3 of 4 clients are left, but all are needed in this round, whatever quorum = 3 asks for")
    return "ends"


def goes_on_with(pair, result, where):
    """Return what the answer is of a run that went on, as it says of itself, and as the runs of others prove."""
    (loss,) = (text for text in result.findings if "was lost" in text)
    answer = bits_of(arrays_of(result.model))
    others = pair.fit(pair.tables[:-1], seed=0)
    for meaning, reference in zip(MEANINGS, (pair.recording.result, others), strict=True):
        if answer == bits_of(arrays_of(reference.model)):
            assert loss.endswith(f"was lost in {where}: the result is {meaning}")
            return meaning
    raise AssertionError(f"{pair}, {where}: another answer than that of all or of those that remain")


def outcomes(pair):
    """Return what becomes of a run by where a client is lost: each phase, the first time and the next ones."""
    phases = [type(exchange.request).__name__ for exchange in pair.recording.exchanges[len(pair.tables) - 1]]
    told = {}
    for place, phase in enumerate(phases):
        where = f"`{phase}`" if phase not in phases[:place] else f"`{phase}` again"
        if where not in told:
            told[where] = outcome(pair, place, phase)
    return told


def table():
    """Return the table: for each pair the phases in which its run goes on, by the meaning of the answer."""
    lines = ["| pair | goes on as a run of all | goes on as a run of the others |", "|---|---|---|"]
    for name, pair in PAIRS.items():
        told = outcomes(pair).items()
        cells = (", ".join(where for where, what in told if what == answer) for answer in MEANINGS)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page():
    return filled(PAGE.read_text(), policy=table())


if __name__ == "__main__":
    PAGE.write_text(page())
