"""The attacks: by whom, on which pairs, what they do, and what remains where a site is guarded."""

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
    - `what`, `remains`: what it does and recovers, in a sentence; what is left to the adversary at a guarded site.
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
    remains: str = ""
    below: float = EXACT
    table: Any = field(default_factory=lambda: WINE)
    ids: bool = False
    operator: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)
    planned: bool = False
    study: Mapping[str, Any] = field(default_factory=dict)

    def does(self, what: str, remains: str) -> "Attack":
        return replace(self, what=what, remains=remains)

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


FEWER = "nothing is proven below half"
DIRECTIONS = "half the directions"
SAID = "such a study, if it is approved"
NO_KNOWN = "without known rows, the table up to an affine map"

ATTACKS: Mapping[str, Attack] = {
    "all rows drawn": Attack(coordinator.draw_all, MALICIOUS, LANDMARKS, operator=SHARING).does(
        "asks for as many landmarks as the site has rows", "as many as the study says, where rows may leave"
    ),
    "a row of its choice": Attack(coordinator.draw_one_row, MALICIOUS, ("UniformKPCA",), operator=SHARING).does(
        "tries seeds until one draws the row that it is after among the study's 20",
        "rows drawn by a seed that all sites draw together",
    ),
    "cells of one row": Attack(coordinator.thin_cells, MALICIOUS, CENTROIDS, planned=True).does(
        "asks for sums of rows by centres of its own, so close that one row is alone in a cell",
        "means of groups of 5 rows and more, the same for all centres and runs",
    ),
    "landmarks": Attack(coordinator.landmarks, CURIOUS, LANDMARKS, operator=SHARING).does(
        "reads the landmarks, which are rows",
        "where rows may leave, coordinator and all sites have the landmarks",
    ),
    "sketches under many seeds": Attack(coordinator.sketch_again, MALICIOUS, LANDMARKS).does(
        "asks for sketches of linearly embedded rows under six seeds, and solves for the rows", SAID
    ),
    "second moments": Attack(coordinator.second_moments, MALICIOUS, LANDMARKS).does(
        "asks for the products of linearly embedded rows: the site's X^T X, and no row",
        "products of random features",
    ),
    "cells and products": Attack(sums.cells_and_products, CURIOUS, ("CentroidKPCA",), table=WINE[::4], below=0.75).does(
        "searches for 45 rows by their squares, last cells and products; the means of their cells are off by 0.7",
        "these means",
    ),
    "products at the axes": Attack(
        coordinator.products_at_axes,
        CURIOUS,
        ("CentroidKPCA",),
        study={"kernel": {"type": "linear"}, "centroids": "axes", "n_landmarks": 13},
    ).does(
        'reads the products of a run with `centroids = "axes"`: the site\'s X^T X, and no row',
        "the same; with masks, X^T X of all sites together",
    ),
    "narrow width": Attack(coordinator.narrow_width, MALICIOUS, (*LANDMARKS, *CENTROIDS), below=1e-3).does(
        "finds an attribute of rows whose others it knows, by landmarks of its own and a narrow kernel", SAID
    ),
    "rows as their own embedding": Attack(coordinator.embed_and_sample, MALICIOUS, ("SpectralKMeans",)).does(
        "hands over components by which coordinates are the rows, and asks for a coreset of all", SAID
    ),
    "coreset of flat features": Attack(coordinator.flat_coreset, MALICIOUS, KMEANS, table=CANCER).does(
        "asks for a coreset of all rows by features of a very wide kernel, and inverts it", SAID
    ),
    "the method's own coreset": Attack(coordinator.honest_coreset, CURIOUS, ("RFKKMeans",)).does(
        "inverts the 200 features of each point of a coreset of the whole table (coreset_size = 1000)",
        "a coreset that gives a quarter of the rows",
    ),
    "features by unit vectors": Attack(coordinator.combine_unit_vectors, MALICIOUS, KMEANS, table=CANCER).does(
        "asks for single features of every row, of a very wide kernel", SAID
    ),
    "sums that weigh one row": Attack(coordinator.weigh_one_row, MALICIOUS, KMEANS).does(
        "asks for sums of features with weights that single out each row in turn", SAID
    ),
    "products of features": Attack(sums.products_of_features, CURIOUS, ("FKKMeans",), table=WINE[::4]).does(
        "finds 45 rows by a search from a site's products of 50 features in 4 iterations", FEWER
    ),
    "pooled products of features": Attack(
        sums.pooled_products_of_features, CURIOUS, ("FKKMeans",), table=WINE[::9]
    ).does("finds the 60 rows of three sites from nothing but the sums of these products", FEWER),
    "products of few features": Attack(sums.products_of_few_features, CURIOUS, ("FKKMeans",), below=0.7).does(
        "searches for 178 rows by products of 20 features in 3 iterations; rows of the same covariance are off by 0.7",
        "the same: no row is found to within a tenth of the rows' length",
    ),
    "products of an embedding": Attack(sums.products_of_an_embedding, CURIOUS, ("DisKPCA",), table=WINE[::6]).does(
        "finds 30 rows from the products of the 50 coordinates that they are embedded to", FEWER
    ),
    "means of features": Attack(sums.means_of_features, CURIOUS, ("RFKKMeans",), below=0.5).does(
        'searches for the 44 rows of a group by the mean of their 200 features (`clusters = "lloyd"`)', FEWER
    ),
    "means of features and known rows": Attack(sums.means_of_features_and_known_rows, CURIOUS, ("RFKKMeans",)).does(
        "knows 35 of these 44 rows, and finds the other 9", "rows of a group that is known but for a few rows"
    ),
    "one row at a time": Attack(
        coordinator.align_to_one, MALICIOUS, KMEANS, table=WINE[::4], ids=True, operator={"min-rows": "1"}, guard=KEYED
    ).does("says that one row alone is common to all sites, and asks for its sum; every row so", "differences, below"),
    "differences": Attack(coordinator.differences, MALICIOUS, KMEANS, table=WINE[::4], ids=True, guard=KEYED).does(
        "says that 21 rows are common, then 20 of them, and subtracts the sums; then so for every row",
        "combinations of three or more runs on rows `table.rows_apart` apart",
    ),
    "scatter around points of its choice": Attack(coordinator.scatter_of_means, MALICIOUS, KMEANS, table=WINE + 1).does(
        "asks for the scatter around d + 1 points, from which the site's mean follows",
        "the method itself asks for the site's sum",
    ),
    "all inner products": Attack(sums.multiply_identity, MALICIOUS, SERVED).does(
        "asks for the products of all rows; one more known row than there are columns gives the others", NO_KNOWN
    ),
    "products over three beginnings": Attack(sums.multiply_over_beginnings, MALICIOUS, ("VFedPCA",)).does(
        "begins the run three times with other vectors, and so has the products of all rows", DIRECTIONS
    ),
    "products of an honest run": Attack(sums.products_of_a_run, CURIOUS, ("VFedPCA",), table=CANCER[:, :6]).does(
        "computes a site's inner products from an honest run's products; 7 known rows of 6 columns give the others",
        DIRECTIONS,
    ),
    "RBF products of an honest run": Attack(
        sums.products_of_a_run, CURIOUS, ("VFedAKPCA",), table=CANCER[:, :4], below=0.01
    ).does(
        "computes the distances of rows of 4 columns from an honest run's products; 8 known rows give the others",
        DIRECTIONS,
    ),
    "products with vectors of its own": Attack(
        sums.products_of_own_blocks, MALICIOUS, ("VFedPCA",), table=CANCER, planned=True
    ).does("sends random vectors in place of the search's until they span 30 columns, and knows 31 rows", DIRECTIONS),
    "local vectors from directions of its own": Attack(
        sums.vectors_from_own_directions,
        MALICIOUS,
        ("VFedPCA",),
        table=CANCER,
        planned=True,
        study={"n_components": 4, "merge": "eigenvalue"},
    ).does(
        'does the same in place of merged directions, with `merge = "eigenvalue"`',
        DIRECTIONS,
    ),
    "leading vectors of a narrow table": Attack(
        coordinator.leading_vectors, CURIOUS, ("DKPCA", *SERVED), table=WINE[:, :4]
    ).does("knows 8 rows of a site with 4 columns, whose 5 leading vectors give the others", DIRECTIONS),
    "leading directions": Attack(
        coordinator.leading_vectors, CURIOUS, ("DKPCA", *SERVED), table=CANCER, below=0.5
    ).does(
        "knows 60 rows of a site with 30 columns, whose 10 leading vectors give the others' parts along these",
        DIRECTIONS,
    ),
    "RBF kernel by inner products": Attack(
        coordinator.products_of_few_columns, CURIOUS, ("DKPCA",), table=WINE[:, :4]
    ).does("knows 5 rows of a site with 4 columns, whose 4 eigenpairs of inner products give the others", DIRECTIONS),
    "RBF spectrum": Attack(coordinator.rbf_spectrum, CURIOUS, ("DKPCA",), table=WINE[:, :4], below=0.05).does(
        "knows 8 rows of a site with 4 columns, and finds the others by the eigenpairs above 0.0005",
        "eigenpairs, half as many as there are columns",
    ),
    "whole RBF spectrum": Attack(coordinator.whole_spectrum, MALICIOUS, ("DKPCA",), table=WINE[:, :4]).does(
        "does the same, but asks for all eigenpairs first", NO_KNOWN
    ),
    "guessed ids": Attack(coordinator.guess_ids, CURIOUS, VERTICAL, ids=True, guard=KEYED).does(
        "hashes likely ids, and sees who is in the table", "how many rows there are, and which are at which sites"
    ),
    "guessed ids, without need": Attack(coordinator.guess_ids, MALICIOUS, HORIZONTAL, ids=True, guard=KEYED).does(
        "asks for ids' hashes that the method does not need", "how many rows there are"
    ),
    "claimed ids": Attack(peer.claimed_ids, MALICIOUS_PEER, VERTICAL, ids=True, operator=KEYED, guard=KEYED).does(
        "claims likely ids, and is told which rows are common", "all of it, since a peer has the sites' key"
    ),
    "an invented peer gets rows": Attack(peer.rows_to_a_peer, MALICIOUS, ("ADMMKPCA",), operator=SHARING).does(
        "hands out a key of its own as a neighbour's, and reads the rows written to this neighbour",
        "with pins, only a pinned neighbour gets rows",
    ),
    "averaged noise": Attack(
        peer.averaged_noise, MALICIOUS, ("ADMMKPCA",), below=1.1 * peer.NOISE / peer.RUNS**0.5, operator=SHARING
    ).does(
        "begins the run 25 times, and takes the mean of the rows with their noise",
        "the rows with their noise, the same whenever the run begins",
    ),
    "a neighbour's rows": Attack(peer.rows_to_a_peer, CURIOUS_PEER, ("ADMMKPCA",), operator=SHARING).does(
        "keeps the rows that the method writes to it", "features of the rows (next line)"
    ),
    "a neighbour's features": Attack(peer.inverted_features, CURIOUS_PEER, ("ADMMKPCA",)).does(
        "inverts the 2000 features of each row that the method writes to it",
        "half as many features of each row as there are columns; noise on the features blurs the rows",
    ),
    "an invented peer gets all vectors": Attack(
        peer.letters_of_all_vectors, MALICIOUS, ("PeerVFedPCA",), guard=PINNED
    ).does(
        "poses as a neighbour, and reads as many vectors as columns; one more known row gives the others",
        "with pins, only a pinned neighbour gets them",
    ),
    "a neighbour's vectors of a narrow table": Attack(
        peer.letters_of_leading_vectors, CURIOUS_PEER, ("PeerVFedPCA",), table=WINE[:, :4]
    ).does("knows 8 rows of a site with 4 columns, whose 5 vectors give the others", DIRECTIONS),
    "a neighbour's leading directions": Attack(
        peer.letters_of_leading_vectors, CURIOUS_PEER, ("PeerVFedPCA",), table=CANCER, below=0.5
    ).does("knows 60 rows of a site with 30 columns, whose 10 vectors give the others' parts along these", DIRECTIONS),
    "a leaf's products": Attack(peer.products_of_a_leaf, CURIOUS_PEER, ("PeerVFedPCA",), table=WINE[:, :4]).does(
        "knows 8 rows of a leaf with 4 columns, and as its parent has the rest from its product with 5 vectors",
        "of a leaf, half the directions; of others, sums over a subtree",
    ),
    "replays": Attack(coordinator.replays, MALICIOUS, (*HORIZONTAL, *VERTICAL)).does(
        f"sends {coordinator.REPLAYS} further requests with other parameters; recovered is the share not answered", SAID
    ),
}

CASES = [(name, pair) for name, attack in ATTACKS.items() for pair in attack.pairs]
"""Every attack on every pair that answers it."""
