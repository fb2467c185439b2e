"""How much of a table its numbers give back, by numbers for each entry as the guard `table_share` counts them.

``OPENBLAS_NUM_THREADS=1 python benchmarks/what_sums_tell.py [--seconds 25]`` writes docs/results/what-sums-tell.md in
about eight minutes; a search has so many seconds at most. The three tables:

1. Rows found by the products Z_t^T Z_t of D random features in T iterations: *exactly* if off by less than 0.01 of the
   rows' mean length, *nearly* by less than 0.1. *Drawn*: the error of random rows with the table's covariance.
2. Relative error of one site's d columns in VFedPCA: of the inner products (*Gram*), and of the other rows if d + 1,
   2 d or 4 d are known. Vectors, k in a round and as many independent ones as *rank*, are an honest search's, or
   random: a malicious coordinator's *own blocks*, or *own directions* with ``merge = "eigenvalue"``.
3. Relative error of a site's rows in honest runs at the defaults, on wine and made-up tables of ten clusters: by d + 1
   known rows (2 d with an RBF kernel), or by a search, not tried above 100,000 entries.
"""

import argparse
import logging
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attacks import algebra
from attacks.honest import rounds_of
from attacks.target import Refused

from fedkernel import RBF
from fedkernel.clients.fk_kmeans import EmbedRows, MultiplyColumns
from fedkernel.clients.kmeans_base import LocalCoreset
from fedkernel.clients.vfedpca import Finish, IterateLocally, Multiply, VFedPCAClient
from fedkernel.numerics import RandomFeatures, unpack_symmetric
from fedkernel.strategies import DKPCA, DisKPCA, FKKMeans, RFKKMeans, SpectralKMeans, UniformKPCA, VFedAKPCA, VFedPCA

OUT = Path(__file__).parents[1] / "docs" / "results" / "what-sums-tell.md"
LINES: list[str] = []
SEARCHED = {
    ("wine", 60): ((20, 2), (20, 4), (50, 1)),
    ("wine", 178): ((20, 1), (20, 3), (20, 6), (50, 1), (20, 11), (50, 2), (20, 20), (50, 4), (50, 10)),
    ("breast cancer", 100): ((50, 1), (50, 3), (50, 6)),
    ("breast cancer", 300): ((50, 8),),
    ("digits", 60): ((50, 2), (50, 3), (50, 6)),
    ("digits", 200): ((100, 5),),
}
"""By table and rows, D and T."""

SITES = (("wine", 6, 1), ("wine", 6, 3), ("breast cancer", 10, 3), ("breast cancer", 20, 3), ("digits", 40, 5))
"""Table, columns of the site, and k."""

SHARES = (0.25, 0.5, 1.0, 2.0)
"""Numbers for each entry, up to which the rounds of the second table are read."""


def tables():
    """Return the tables, shuffled and standardised, without columns that are constant."""
    shuffled = {}
    for name, load in (("wine", load_wine), ("breast cancer", load_breast_cancer), ("digits", load_digits)):
        X = load().data[np.random.default_rng(1).permutation(len(load().data))]
        X = X[:, X.std(axis=0) > 0]
        shuffled[name] = (X - X.mean(axis=0)) / X.std(axis=0)
    return shuffled


SHAPES = ((178, 13), (4000, 16), (20000, 784))
"""Rows and columns of the third table, each at 3 and at 20 sites."""


def line(*cells):
    LINES.append(f"| {' | '.join(f'{cell:.2g}' if isinstance(cell, float) else str(cell) for cell in cells)} |")
    print(LINES[-1], flush=True)


def made_up(n, d):
    """Return a table of ten clusters with correlated columns, standardised."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n, min(d, 60))) * 0.9 ** np.arange(min(d, 60))
    X = factors @ rng.standard_normal((min(d, 60), d)) + 0.3 * rng.standard_normal((n, d))
    X += rng.standard_normal((10, d))[rng.integers(0, 10, n)]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def found(X, rows):
    """Return the shares of rows that are found exactly and nearly, and the median error."""
    errors = np.linalg.norm(algebra.in_order_of(X, rows) - X, axis=1) / np.linalg.norm(X, axis=1).mean()
    return f"{np.mean(errors < 0.01):.0%}", f"{np.mean(errors < 0.1):.0%}", float(np.median(errors))


def search(name, X, D, T, seconds):
    """Print how many rows a search finds."""
    (n, d), began = X.shape, time.process_time()
    features, draws = RandomFeatures(RBF(1 / (2 * d)), D, "pairs", 0, "orthogonal"), range(1, T + 1)
    products = [(Z := features.map(d, t)(X)).T @ Z for t in draws]
    cosines = [algebra.cosines_of(features, d, t) for t in draws]
    rows = algebra.rows_of_products(products, cosines, np.sqrt(2) * np.eye(D), n, seconds)
    drawn = multivariate_normal(np.zeros(d), np.cov(X.T), allow_singular=True, seed=0).rvs(n)
    spent = round(time.process_time() - began)
    line(name, n, d, D, T, T * D * (D + 1) / 2 / (n * d), *found(X, rows), found(X, drawn)[-1], spent)


def sent(adversary, columns, d, k):
    """Yield the requests that a site with the first d columns is asked, and its replies."""
    X = columns[:, :d]
    if adversary == "honest":
        run = asked(VFedPCAClient, VFedPCA(k), [X, *np.array_split(columns[:, d:], 2, axis=1)])
        yield from (pair for pair in run if not isinstance(pair[0], Finish))
        return
    site = site_of(VFedPCAClient, X)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((len(X), 2 * d // k * k)))[0]
    for block in np.split(Q, Q.shape[1] // k, axis=1):
        own = np.ascontiguousarray(block)
        update = IterateLocally(n_components=k, iterations=10, directions=own)
        request = Multiply(block=own) if adversary == "own blocks" else update
        yield request, site.ask(request)


def solve(name, columns, d, k, adversary):
    """Print how far off the rows of a site are, after as many rounds as there are numbers."""
    X, replied = columns[:, :d], [*sent(adversary, columns, d, k)]
    shares = np.cumsum([reply.floats for _, reply in replied]) / X.size
    for rounds in dict.fromkeys(int(np.searchsorted(shares, share, side="right")) for share in SHARES):
        if rounds == 0:
            continue
        images = [reply.product if isinstance(ask, Multiply) else reply.vectors for ask, reply in replied[:rounds]]
        U, lengths, _ = np.linalg.svd(np.hstack([V / np.linalg.norm(V, axis=0) for V in images]), full_matrices=False)
        span = U[:, : min(d, int((lengths > 1e-9).sum()))]
        pairs = [(ask.block, reply.product) for ask, reply in replied[:rounds] if isinstance(ask, Multiply)]
        gram: float | str = "-"
        if pairs:
            C = algebra.coordinates_of_products(*map(np.hstack, zip(*pairs, strict=True)), d)
            centred = X - X.mean(axis=0)
            gram = algebra.relative(C @ C.T, centred @ centred.T)
        errors = [algebra.unknown_error(span, X, known) for known in (d + 1, 2 * d, 4 * d)]
        line(name, len(X), d, k, adversary, rounds, float(shares[rounds - 1]), span.shape[1], gram, *errors)


def at_defaults(X, sites, seconds):
    """Print what follows from honest runs with nothing set, of the first of some sites."""
    shape, d = f"{len(X):,} x {X.shape[1]}", X.shape[1]
    tables = np.array_split(X, min(sites, d), axis=1)
    for strategy in (DKPCA(2), VFedPCA(2), VFedAKPCA(2, kernel=RBF(1 / (2 * d)))):
        name, own = type(strategy).__name__, tables[0]
        if name == "VFedAKPCA" and len(X) > 4000:
            line(name, shape, sites, own.shape[1], "-", "not tried", "-")
            continue
        replied = [*asked(strategy.client, strategy, tables)]
        share = sum(reply.floats for _, reply in replied) / own.size
        line(name, shape, sites, own.shape[1], share, others_error(replied, own, strategy), "-")
    line("PeerVFedPCA", shape, sites, tables[0].shape[1], "as VFedPCA", "as VFedPCA, at a leaf's parent", "-")
    tables, kernel = np.array_split(X, sites), RBF(1 / (2 * d))
    drawn = multivariate_normal(np.zeros(d), np.cov(X.T), allow_singular=True, seed=0).rvs(len(tables[0]))
    for strategy in (FKKMeans(3, kernel=kernel), DisKPCA(3, kernel, share_rows=True), RFKKMeans(3, kernel=kernel)):
        own, error = tables[0], "not tried"
        share = strategy.fit(tables, seed=0).ledger.of_client(0).floats_up / own.size
        if own.size <= 100_000:
            error = rows_error([*asked(strategy.client, strategy, tables, share_rows=True)], own, seconds)
        line(type(strategy).__name__, shape, sites, d, share, error, found(own, drawn)[-1])
    for strategy in (UniformKPCA(3, share_rows=True, kernel=kernel), SpectralKMeans(3, {"share_rows": True})):
        ledger = strategy.fit(tables, seed=0).ledger.of_client(0)
        part = f"{ledger.rows_up} of {len(tables[0]):,} rows as they are"
        line(type(strategy).__name__, shape, sites, d, ledger.floats_up / tables[0].size, part, "-")
    line("ADMMKPCA", shape, sites, d, "above 2", "all rows as they are, to neighbours", "-")


def others_error(replied, own, strategy):
    """Return the relative error of a site's other rows, where one more than columns is known; twice as many of RBF."""
    d = own.shape[1]
    pairs = [(ask.block, reply.product) for ask, reply in replied if isinstance(ask, Multiply)]
    if isinstance(strategy, VFedAKPCA):
        C = algebra.coordinates_of_products(*map(np.hstack, zip(*pairs, strict=True)), len(own))
        squares = np.square(C).sum(axis=1)
        K = np.clip(1 - (squares[:, None] + squares - 2 * C @ C.T) / 2, 1e-12, 1)
        points = algebra.coordinates_of_distances(-np.log(K) / strategy.kernel.gamma, d)
        return algebra.unknown_error(points, own, 2 * d)
    images = [product for _, product in pairs] + [reply.vectors for _, reply in replied if hasattr(reply, "vectors")]
    U, lengths, _ = np.linalg.svd(np.hstack([V / np.linalg.norm(V, axis=0) for V in images]), full_matrices=False)
    return algebra.unknown_error(U[:, : min(d, int((lengths > 1e-9).sum()))], own, d + 1)


def rows_error(replied, own, seconds):
    """Return the median error of the rows that a search finds from products, or that features of a coreset give."""
    d = own.shape[1]
    grams = [(ask, reply) for ask, reply in replied if isinstance(ask, MultiplyColumns)]
    if not grams and (coresets := [reply for _, reply in replied if isinstance(reply, LocalCoreset)]):
        features = next(ask for ask, _ in replied if isinstance(ask, EmbedRows)).features
        points = coresets[0].points * np.sqrt(features.n_features)
        rows = algebra.rows_of_features(points, features.map(d), d, features.kernel.gamma)
        nearest = np.linalg.norm(own[:, None] - rows[None], axis=2).min(axis=1) / np.linalg.norm(own, axis=1).mean()
        return f"{np.mean(nearest < 0.01):.0%} of the rows exactly"
    if grams:
        D = grams[0][0].features.n_features
        cosines, mix = [algebra.cosines_of(ask.features, d, ask.t) for ask, _ in grams], np.sqrt(2) * np.eye(D)
        products = [unpack_symmetric(reply.upper)[:D, :D] for _, reply in grams]
    else:
        e, upper = replied[0][0].embedding, replied[0][1].upper
        m = -(-e.n_features // e.size) * e.size
        features = RandomFeatures(e.kernel, m, "cosine", e.seed, e.frequencies)
        mix = np.sqrt(2 / m) * np.repeat(np.eye(e.size), m // e.size, axis=0)
        cosines = [algebra.cosines_of(features, d)]
        products = [unpack_symmetric(upper)]
    return found(own, algebra.rows_of_products(products, cosines, mix, len(own), seconds))[-1]


def asked(kind, strategy, tables, **own):
    """Yield what an honest run asks of the first of some sites, and its replies."""
    for request, (reply, *_) in rounds_of(site_of(kind, tables[0], **own), strategy, tables[1:]):
        yield request, reply


def site_of(kind, X, **own):
    """Return a site without guards, as attacks ask it."""
    client = kind(X, client=0, seed=0, **own)

    def ask(request):
        if request is None:  # of a round that asks others: what follows is not needed
            raise Refused
        return getattr(client, kind.handlers[type(request).__name__][1])(request)

    return SimpleNamespace(X=X, seed=0, ask=ask)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="of processor time, for each search")
    arguments, of = parser.parse_args(), tables()
    logging.disable()
    first = ("table", "rows", "columns", "D", "T", "numbers per entry", "exactly", "nearly", "median error", "drawn")
    line(*first, "seconds")
    line(*["---"] * 11)
    for (name, n), widths in SEARCHED.items():
        for D, T in widths:
            search(name, of[name][:n], D, T, arguments.seconds)
    LINES.append("")
    line("table", "rows", "d", "k", "vectors", "rounds", "numbers per entry", "rank", "Gram", "d + 1", "2 d", "4 d")
    line(*["---"] * 12)
    for adversary in ("honest", "own blocks", "own directions"):
        for name, d, k in SITES:
            solve(name, of[name], d, k, adversary)
    LINES.append("")
    line("pair", "table", "sites", "columns of the site", "numbers per entry", "error", "of drawn rows")
    line(*["---"] * 7)
    for n, d in SHAPES:
        for sites in (3, 20):
            at_defaults(of["wine"] if n == 178 else made_up(n, d), sites, arguments.seconds)
    lead = ["# Tables recovered from numbers", "", (__doc__ or "").strip(), ""]
    OUT.write_text("\n".join([*lead, *LINES]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
