"""The attacks: by whom, on which pairs, what they do, what stops them today, and what remains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from attacks import coordinator, peer
from attacks.algebra import EXACT
from attacks.target import CANCER, KEY, WINE, Refused, Target

Adversary = Literal[
    "honest-but-curious coordinator", "malicious coordinator", "honest-but-curious peer", "malicious peer"
]
CURIOUS: Adversary = "honest-but-curious coordinator"
MALICIOUS: Adversary = "malicious coordinator"
CURIOUS_PEER: Adversary = "honest-but-curious peer"
MALICIOUS_PEER: Adversary = "malicious peer"

OPENINGS = {"share-rows": "`--share-rows`", "min-rows": "`--min-rows {}`"}
"""Of a node's configuration, what makes it answer more than it does by default, as the operator writes it."""

NOTHING = "nothing yet"

LANDMARKS = ("DisKPCA", "UniformKPCA", "SpectralKMeans")
KMEANS = ("FKKMeans", "RFKKMeans")
HORIZONTAL = (*LANDMARKS, *KMEANS, "ADMMKPCA")
VERTICAL = ("DKPCA", "VFedPCA", "VFedAKPCA", "PeerVFedPCA")
SERVED = ("VFedPCA", "VFedAKPCA")

KEYED: Mapping[str, Any] = {"id-key": KEY}
PINNED: Mapping[str, Any] = {"pins": {1: "0" * 32}}
SHARING: Mapping[str, Any] = {"share-rows": "true"}


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes
    ----------
    function : callable
        Carries it out on a target, and returns the relative error of what it recovers.
    adversary : str
    pairs : tuple of str
        The strategies whose clients answer it; it is tried on each.
    what : str
        What it does and recovers, in a sentence.
    stops : str
        What stops it at a site.
    remains : str
        What is left to the adversary where that holds.
    below : float
        The bound of the error at an unguarded site; the function's docstring says why.
    table : ndarray of shape (n, d)
    ids : bool
        Whether the site knows its rows by ids.
    operator : mapping
        What the site's operator has decided beside the defaults.
    guard : mapping, optional
        What the operator decides in place of that where it is stopped; None: there is nothing.
    """

    function: Callable[[Target], float]
    adversary: Adversary
    pairs: tuple[str, ...]
    what: str
    stops: str
    remains: str
    below: float = EXACT
    table: Any = field(default_factory=lambda: WINE)
    ids: bool = False
    operator: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] | None = None

    @property
    def openings(self) -> list[str]:
        """What the operator has opened for it, as options; empty: it succeeds at a site's defaults."""
        return [text.format(self.operator[key]) for key, text in OPENINGS.items() if key in self.operator]

    def error(self, folder: Path, pair: str, operator: Mapping[str, Any]) -> float:
        """Carry it out on a site whose operator has decided this; 1 where the site refuses: nothing is recovered."""
        try:
            return self.function(Target(folder, pair, self.table, self.ids, operator))
        except Refused:
            return 1.0


NO_KNOWN = "with no known row, the table up to an affine map; rows that are alike are seen to be"

ATTACKS: Mapping[str, Attack] = {
    "all rows drawn": Attack(
        coordinator.draw_all,
        MALICIOUS,
        LANDMARKS,
        "asks for as many landmarks as the site has rows",
        "share_rows: without it no landmark leaves",
        "a site that lets landmarks go lets all rows go: their number is the coordinator's",
        operator=SHARING,
        guard={},
    ),
    "landmarks": Attack(
        coordinator.landmarks,
        CURIOUS,
        LANDMARKS,
        "reads the landmarks, which are rows",
        "share_rows: without it no landmark leaves, and there is no run",
        "the coordinator and every site have the landmarks: the method has no other form",
        operator=SHARING,
        guard={},
    ),
    "sketches under many seeds": Attack(
        coordinator.sketch_again,
        MALICIOUS,
        LANDMARKS,
        "asks for sketches of linearly embedded rows under six seeds, and solves for the rows",
        NOTHING,
        "all",
    ),
    "second moments": Attack(
        coordinator.second_moments,
        MALICIOUS,
        LANDMARKS,
        "asks for the products of linearly embedded rows: the site's X^T X, and no row",
        NOTHING,
        "all; what the method asks for itself are products of random features",
    ),
    "narrow width": Attack(
        coordinator.narrow_width,
        MALICIOUS,
        LANDMARKS,
        "finds an attribute of rows whose others it knows, by landmarks of its own and a kernel narrow enough",
        NOTHING,
        "all",
        below=1e-3,
    ),
    "rows as their own embedding": Attack(
        coordinator.embed_and_sample,
        MALICIOUS,
        ("SpectralKMeans",),
        "hands over components by which coordinates are the rows, and asks for a coreset of all",
        NOTHING,
        "all",
    ),
    "coreset of flat features": Attack(
        coordinator.flat_coreset,
        MALICIOUS,
        KMEANS,
        "has rows embedded by features of a very wide kernel, asks for a coreset of all, and inverts it",
        NOTHING,
        "all",
        table=CANCER,
    ),
    "the method's own coreset": Attack(
        coordinator.honest_coreset,
        CURIOUS,
        ("RFKKMeans",),
        "inverts the 200 features of each point of the coreset, which at the default size is the whole table",
        NOTHING,
        "all; a smaller coreset leaves out the rows that are not drawn",
    ),
    "features by unit vectors": Attack(
        coordinator.combine_unit_vectors,
        MALICIOUS,
        KMEANS,
        "asks for single features of every row, of a very wide kernel",
        NOTHING,
        "all",
        table=CANCER,
    ),
    "sums that weigh one row": Attack(
        coordinator.weigh_one_row,
        MALICIOUS,
        KMEANS,
        "asks for sums of features with weights that single out one row after the other",
        NOTHING,
        "all",
    ),
    "products of features": Attack(
        coordinator.products_of_features,
        CURIOUS,
        ("FKKMeans",),
        "finds 20 rows by a non-linear search from the products of 50 features with the vectors of one iteration",
        NOTHING,
        "all; more rows need more of the 50 iterations, and a longer search",
        table=WINE[:20],
    ),
    "one row at a time": Attack(
        coordinator.align_to_one,
        MALICIOUS,
        KMEANS,
        "aligns the site to one row and asks for its sum, every row",
        "min_rows",
        "differences, below",
        ids=True,
        operator={"min-rows": "1"},
        guard={},
    ),
    "differences": Attack(
        coordinator.differences,
        MALICIOUS,
        KMEANS,
        "aligns the site to 21 rows and to 20 of them, and subtracts the sums, every row",
        NOTHING,
        "all, where rows have ids",
        ids=True,
    ),
    "scatter around points of its choice": Attack(
        coordinator.scatter_of_means,
        MALICIOUS,
        KMEANS,
        "asks for the scatter around d + 1 points, from which the site's mean follows",
        NOTHING,
        "all; the method itself asks for the site's sum",
        table=WINE + 1,
    ),
    "all inner products": Attack(
        coordinator.multiply_identity,
        MALICIOUS,
        SERVED,
        "asks for the products of all rows; known rows, one more than columns, give the others",
        NOTHING,
        NO_KNOWN,
    ),
    "leading vectors of a narrow table": Attack(
        coordinator.leading_vectors,
        CURIOUS,
        SERVED,
        "knows 8 rows of a site with 4 columns, whose 5 leading vectors give the others",
        NOTHING,
        "all where a site has no more columns than there are components; with more, their leading directions",
        table=WINE[:, :4],
    ),
    "linear spectrum of a narrow table": Attack(
        coordinator.linear_spectrum,
        CURIOUS,
        ("DKPCA",),
        "knows 8 rows of a site with 4 columns, whose 5 eigenpairs give the others",
        NOTHING,
        "all where a site has no more columns than there are components; with more, their leading directions",
        table=WINE[:, :4],
    ),
    "RBF spectrum": Attack(
        coordinator.rbf_spectrum,
        CURIOUS,
        ("DKPCA",),
        "knows 8 rows of a site with 4 columns, and finds the others by the eigenpairs above 0.0005",
        NOTHING,
        "fewer eigenpairs leave less of it",
        table=WINE[:, :4],
        below=0.05,
    ),
    "whole RBF spectrum": Attack(
        coordinator.whole_spectrum,
        MALICIOUS,
        ("DKPCA",),
        "does the same having asked for all eigenpairs",
        NOTHING,
        NO_KNOWN,
        table=WINE[:, :4],
    ),
    "guessed ids": Attack(
        coordinator.guess_ids,
        CURIOUS,
        VERTICAL,
        "hashes likely ids, and sees who is in the table",
        "id-key",
        "how many rows there are, and which are at which sites",
        ids=True,
        guard=KEYED,
    ),
    "guessed ids, without need": Attack(
        coordinator.guess_ids,
        MALICIOUS,
        HORIZONTAL,
        "asks for ids that the method does not need, and does the same",
        "id-key; a file without a column of ids",
        "how many rows there are",
        ids=True,
        guard=KEYED,
    ),
    "claimed ids": Attack(
        peer.claimed_ids,
        MALICIOUS_PEER,
        VERTICAL,
        "claims likely ids, and is told which rows are common",
        NOTHING,
        "all; a peer has the sites' key",
        ids=True,
        operator=KEYED,
    ),
    "an invented peer gets rows": Attack(
        peer.rows_to_a_peer,
        MALICIOUS,
        ("ADMMKPCA",),
        "hands out keys of its own as a neighbour's, and reads the rows written to that",
        "pins; and share_rows",
        "with pins, what a pinned neighbour gets",
        operator=SHARING,
        guard={},
    ),
    "an invented peer gets linear features": Attack(
        peer.linear_features,
        MALICIOUS,
        ("ADMMKPCA",),
        "does the same, asking for features of a linear kernel, which are the rows",
        "pins",
        "with pins, a pinned neighbour gets the rows, whatever share_rows says",
        guard=PINNED,
    ),
    "averaged noise": Attack(
        peer.averaged_noise,
        MALICIOUS,
        ("ADMMKPCA",),
        "begins the run 25 times, and takes the mean of the rows with their noise",
        "pins; and share_rows",
        "noise is the operating system's and cannot be subtracted, but new in every run",
        below=1.1 * peer.NOISE / peer.RUNS**0.5,
        operator=SHARING,
        guard={},
    ),
    "a neighbour's rows": Attack(
        peer.rows_to_a_peer,
        CURIOUS_PEER,
        ("ADMMKPCA",),
        "keeps the rows that the method writes to it",
        "share_rows; features in their place",
        "the features, below",
        operator=SHARING,
        guard={},
    ),
    "a neighbour's features": Attack(
        peer.inverted_features,
        CURIOUS_PEER,
        ("ADMMKPCA",),
        "inverts the 2000 features of each row that the method writes to it",
        NOTHING,
        "all; noise on them leaves its part",
    ),
    "an invented peer gets all vectors": Attack(
        peer.letters_of_all_vectors,
        MALICIOUS,
        ("PeerVFedPCA",),
        "reads as a neighbour as many vectors as there are columns; known rows, one more, give the others",
        "pins",
        "with pins, a pinned neighbour gets them",
        guard=PINNED,
    ),
    "a neighbour's vectors of a narrow table": Attack(
        peer.letters_of_leading_vectors,
        CURIOUS_PEER,
        ("PeerVFedPCA",),
        "knows 8 rows of a site with 4 columns, whose 5 vectors give the others",
        NOTHING,
        "all where a site has no more columns than there are components; with more, their leading directions",
        table=WINE[:, :4],
    ),
    "replays": Attack(
        coordinator.replays,
        MALICIOUS,
        (*HORIZONTAL, *VERTICAL),
        f"sends {coordinator.REPLAYS} further requests with other parameters; the share that is not answered",
        NOTHING,
        "all",
    ),
}

CASES = [(name, pair) for name, attack in ATTACKS.items() for pair in attack.pairs]
"""Every attack on every pair that answers it."""
