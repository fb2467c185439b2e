"""The attacks: by whom, on which pairs, and what they do."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attacks import coordinator, peer, sums
from attacks.algebra import EXACT
from attacks.target import CANCER, KEY, WINE, Mode, Refused, Target
from fedkernel.site import read_outbox

Adversary = Literal[
    "honest-but-curious coordinator", "malicious coordinator", "honest-but-curious peer", "malicious peer"
]
CURIOUS: Adversary = "honest-but-curious coordinator"
MALICIOUS: Adversary = "malicious coordinator"
CURIOUS_PEER: Adversary = "honest-but-curious peer"
MALICIOUS_PEER: Adversary = "malicious peer"

OPENINGS = {"share-rows": "`--share-rows`", "min-rows": "`--min-rows {}`"}
"""Of a node's configuration, what makes it answer more than it does by default, as the operator writes it."""

LANDMARKS = ("DisKPCA", "UniformKPCA", "SpectralKMeans")
KMEANS = ("FKKMeans", "RFKKMeans")
CENTROIDS = ("CentroidKMeans", "CentroidKPCA")
HORIZONTAL = (*LANDMARKS, *CENTROIDS, *KMEANS, "ADMMKPCA")
VERTICAL = ("DKPCA", "VFedPCA", "VFedAKPCA", "PeerVFedPCA")
SERVED = ("VFedPCA", "VFedAKPCA")

KEYED: Mapping[str, Any] = {"id-key": KEY}
PINNED: Mapping[str, Any] = {"pins": {1: "0" * 32}}
SHARING: Mapping[str, Any] = {"share-rows": "true"}


@dataclass(frozen=True)
class Attack:
    """One attack.

    - `function`: carries it out on a target, and returns the relative error of what it recovers.
    - `pairs`: the strategies whose clients answer it; it is tried on each.
    - `what`: what it does and recovers, in a sentence.
    - `below`: the bound of the error at an unguarded site; the function's docstring says why.
    - `table`, `ids`: the site's rows (n, d), and whether it knows them by ids.
    - `operator`, `guard`: what the site's operator has decided beside the defaults, and that of a guarded site.
    - `planned`: whether a malicious adversary keeps to the approved study's plan, so that this does not stop it.
    - `study`: parameters of that study, in place of those in `attacks.target.STUDIES`.
    """

    function: Callable[[Target], float]
    adversary: Adversary
    pairs: tuple[str, ...]
    what: str = ""
    below: float = EXACT
    table: Any = field(default_factory=lambda: WINE)
    ids: bool = False
    operator: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)
    planned: bool = False
    study: Mapping[str, Any] = field(default_factory=dict)

    def does(self, what: str) -> "Attack":
        return replace(self, what=what)

    @property
    def openings(self) -> list[str]:
        """What the operator has opened for it, as options; empty: it succeeds at a site's defaults."""
        return [text.format(self.operator[key]) for key, text in OPENINGS.items() if key in self.operator]

    def try_on(self, folder: Path, pair: str, *, guarded: bool) -> "Outcome":
        """Carry it out on a site.

        A guarded one has the defaults, and what its operator has approved: of a malicious adversary another study of
        the pair, of an honest-but-curious one just this.
        """
        curious: Mode = "approved" if self.adversary in (CURIOUS, CURIOUS_PEER) else "honest study"
        mode, operator = (curious, self.guard) if guarded else ("unguarded", self.operator)
        try:
            error = self.function(Target(folder, pair, self.table, self.ids, operator, mode, self.study))
        except Refused:
            error = 1.0
        refused = [line for line in read_outbox(folder / "out").departures if line.refused]
        return Outcome(error, tuple(dict.fromkeys(line.rule or _rule_of(line.refused) for line in refused)))


def _rule_of(refused: str) -> str:
    """Return the name of what refuses beside the policy's rules and the plan."""
    if guard := re.search(r"\((guard: \w+)\)", refused):
        return guard[1]
    return next(rule for rule, words in OTHERS.items() if words in refused)


OTHERS = {"consent to rows": "unchanged; allowed only with join --share-rows", "pins": "is pinned"}


class Outcome(NamedTuple):
    """The relative error of what was recovered, 1 for nothing, and by which rules the site refused."""

    error: float
    rules: tuple[str, ...]


ATTACKS: Mapping[str, Attack] = {
    "all rows drawn": Attack(coordinator.draw_all, MALICIOUS, LANDMARKS, operator=SHARING).does(
        "asks for as many landmarks as there are rows"
    ),
    "a row of its choice": Attack(coordinator.draw_one_row, MALICIOUS, ("UniformKPCA",), operator=SHARING).does(
        "tries seeds until one draws the row that it is after",
    ),
    "cells of one row": Attack(coordinator.thin_cells, MALICIOUS, CENTROIDS, planned=True).does(
        "asks for sums by centres so close that a row is alone at one",
    ),
    "landmarks": Attack(coordinator.landmarks, CURIOUS, LANDMARKS, operator=SHARING).does(
        "reads the landmarks, which are rows",
    ),
    "sketches under many seeds": Attack(coordinator.sketch_again, MALICIOUS, LANDMARKS).does(
        "solves for the rows by linear sketches under six seeds"
    ),
    "second moments": Attack(coordinator.second_moments, MALICIOUS, LANDMARKS).does(
        "asks for linear products: X^T X, and no row",
    ),
    "cells and products": Attack(sums.cells_and_products, CURIOUS, ("CentroidKPCA",), table=WINE[::4], below=0.75).does(
        "searches for 45 rows; the means of their cells are off by 0.7",
    ),
    "products at the axes": Attack(
        coordinator.products_at_axes,
        CURIOUS,
        ("CentroidKPCA",),
        study={"kernel": {"type": "linear"}, "centroids": "axes", "n_landmarks": 13},
    ).does(
        'reads X^T X, and no row, with `centroids = "axes"`',
    ),
    "narrow width": Attack(coordinator.narrow_width, MALICIOUS, (*LANDMARKS, *CENTROIDS), below=1e-3).does(
        "knows rows but for one attribute, and finds it by landmarks of its own"
    ),
    "rows as their own embedding": Attack(coordinator.embed_and_sample, MALICIOUS, ("SpectralKMeans",)).does(
        "asks for a coreset of all rows by components that leave them as they are"
    ),
    "coreset of flat features": Attack(coordinator.flat_coreset, MALICIOUS, KMEANS, table=CANCER).does(
        "asks for a coreset of all rows by features of a very wide kernel"
    ),
    "the method's own coreset": Attack(coordinator.honest_coreset, CURIOUS, ("RFKKMeans",)).does(
        "inverts the 200 features of each point, with `coreset_size = 1000`",
    ),
    "features by unit vectors": Attack(coordinator.combine_unit_vectors, MALICIOUS, KMEANS, table=CANCER).does(
        "asks for single features of every row, of a very wide kernel"
    ),
    "sums that weigh one row": Attack(coordinator.weigh_one_row, MALICIOUS, KMEANS).does(
        "asks for sums of features whose weights single out a row"
    ),
    "products of features": Attack(sums.products_of_features, CURIOUS, ("FKKMeans",), table=WINE[::4]).does(
        "searches for 45 rows by products of 50 features in 4 iterations"
    ),
    "pooled products of features": Attack(
        sums.pooled_products_of_features, CURIOUS, ("FKKMeans",), table=WINE[::9]
    ).does("searches for 60 rows of three sites by the sums of these"),
    "products of few features": Attack(sums.products_of_few_features, CURIOUS, ("FKKMeans",), below=0.7).does(
        "searches for 178 rows by 20 features in 3 iterations; rows of the same covariance are off by 0.7",
    ),
    "products of an embedding": Attack(sums.products_of_an_embedding, CURIOUS, ("DisKPCA",), table=WINE[::6]).does(
        "searches for 30 rows by products of their 50 coordinates"
    ),
    "means of features": Attack(sums.means_of_features, CURIOUS, ("RFKKMeans",), below=0.5).does(
        'searches for a group\'s 44 rows by the mean of their 200 features (`clusters = "lloyd"`)'
    ),
    "means of features and known rows": Attack(sums.means_of_features_and_known_rows, CURIOUS, ("RFKKMeans",)).does(
        "knows 35 of these, and searches for the other 9"
    ),
    "one row at a time": Attack(
        coordinator.align_to_one, MALICIOUS, KMEANS, table=WINE[::4], ids=True, operator={"min-rows": "1"}, guard=KEYED
    ).does("says that one row alone is common to all sites, and asks for its sum"),
    "differences": Attack(coordinator.differences, MALICIOUS, KMEANS, table=WINE[::4], ids=True, guard=KEYED).does(
        "says that 21 rows are common, then 20 of them, and subtracts the sums",
    ),
    "scatter around points of its choice": Attack(coordinator.scatter_of_means, MALICIOUS, KMEANS, table=WINE + 1).does(
        "asks for the scatter around d + 1 points, which gives the mean",
    ),
    "all inner products": Attack(sums.multiply_identity, MALICIOUS, SERVED).does(
        "asks for them, and knows one row more than there are columns"
    ),
    "products over three beginnings": Attack(sums.multiply_over_beginnings, MALICIOUS, ("VFedPCA",)).does(
        "begins the run three times with other vectors"
    ),
    "products of an honest run": Attack(sums.products_of_a_run, CURIOUS, ("VFedPCA",), table=CANCER[:, :6]).does(
        "knows 7 rows of 6 columns",
    ),
    "RBF products of an honest run": Attack(
        sums.products_of_a_run, CURIOUS, ("VFedAKPCA",), table=CANCER[:, :4], below=0.01
    ).does(
        "knows 8 rows of 4 columns",
    ),
    "products with vectors of its own": Attack(
        sums.products_of_own_blocks, MALICIOUS, ("VFedPCA",), table=CANCER, planned=True
    ).does("sends random vectors until they span 30 columns, and knows 31 rows"),
    "local vectors from directions of its own": Attack(
        sums.vectors_from_own_directions,
        MALICIOUS,
        ("VFedPCA",),
        table=CANCER,
        planned=True,
        study={"n_components": 4, "merge": "eigenvalue"},
    ).does(
        'does the same with `merge = "eigenvalue"`',
    ),
    "leading vectors of a narrow table": Attack(
        coordinator.leading_vectors, CURIOUS, ("DKPCA", *SERVED), table=WINE[:, :4]
    ).does("knows 8 rows of 4 columns, and reads 5 vectors"),
    "leading directions": Attack(
        coordinator.leading_vectors, CURIOUS, ("DKPCA", *SERVED), table=CANCER, below=0.5
    ).does(
        "knows 60 rows of 30 columns, and reads 10 vectors",
    ),
    "RBF kernel by inner products": Attack(
        coordinator.products_of_few_columns, CURIOUS, ("DKPCA",), table=WINE[:, :4]
    ).does("knows 5 rows of 4 columns, and reads 4 eigenpairs of inner products"),
    "RBF spectrum": Attack(coordinator.rbf_spectrum, CURIOUS, ("DKPCA",), table=WINE[:, :4], below=0.05).does(
        "knows 8 rows of 4 columns, and reads the eigenpairs above 0.0005",
    ),
    "whole RBF spectrum": Attack(coordinator.whole_spectrum, MALICIOUS, ("DKPCA",), table=WINE[:, :4]).does(
        "does the same, but asks for all eigenpairs"
    ),
    "guessed ids": Attack(coordinator.guess_ids, CURIOUS, VERTICAL, ids=True, guard=KEYED).does(
        "hashes likely ids, and sees who is in the table"
    ),
    "guessed ids, without need": Attack(coordinator.guess_ids, MALICIOUS, HORIZONTAL, ids=True, guard=KEYED).does(
        "asks for hashes of ids that the method does not need"
    ),
    "claimed ids": Attack(peer.claimed_ids, MALICIOUS_PEER, VERTICAL, ids=True, operator=KEYED, guard=KEYED).does(
        "claims likely ids, and is told which rows are common"
    ),
    "an invented peer gets rows": Attack(peer.rows_to_a_peer, MALICIOUS, ("ADMMKPCA",), operator=SHARING).does(
        "hands out a key of its own as a neighbour's",
    ),
    "averaged noise": Attack(
        peer.averaged_noise, MALICIOUS, ("ADMMKPCA",), below=1.1 * peer.NOISE / peer.RUNS**0.5, operator=SHARING
    ).does(
        "takes the mean of the noisy rows of 25 beginnings of the run",
    ),
    "a neighbour's rows": Attack(peer.rows_to_a_peer, CURIOUS_PEER, ("ADMMKPCA",), operator=SHARING).does(
        "keeps the rows that the method writes to it"
    ),
    "a neighbour's features": Attack(peer.inverted_features, CURIOUS_PEER, ("ADMMKPCA",)).does(
        "inverts the 2000 features of each row",
    ),
    "an invented peer gets all vectors": Attack(
        peer.letters_of_all_vectors, MALICIOUS, ("PeerVFedPCA",), guard=PINNED
    ).does(
        "poses as a neighbour, and reads as many vectors as columns",
    ),
    "a neighbour's vectors of a narrow table": Attack(
        peer.letters_of_leading_vectors, CURIOUS_PEER, ("PeerVFedPCA",), table=WINE[:, :4]
    ).does("knows 8 rows of 4 columns, and reads 5 vectors"),
    "a neighbour's leading directions": Attack(
        peer.letters_of_leading_vectors, CURIOUS_PEER, ("PeerVFedPCA",), table=CANCER, below=0.5
    ).does("knows 60 rows of 30 columns, and reads 10 vectors"),
    "a leaf's products": Attack(peer.products_of_a_leaf, CURIOUS_PEER, ("PeerVFedPCA",), table=WINE[:, :4]).does(
        "knows 8 rows of 4 columns, and reads the product with 5 vectors",
    ),
    "replays": Attack(coordinator.replays, MALICIOUS, (*HORIZONTAL, *VERTICAL)).does(
        f"sends {coordinator.REPLAYS} further requests; recovered is the share not answered"
    ),
}

CASES = [(name, pair) for name, attack in ATTACKS.items() for pair in attack.pairs]
"""Every attack on every pair that answers it."""
