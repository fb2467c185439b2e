"""Runs of every pair in which one site, or what it writes to its peers, says something else than it has computed.

A run ends with finite numbers, or with one sentence that names the site that lied. Whether what it says is true, no
rule can tell: docs/explanation/reliability.md.
"""

import functools
import json
import logging
import random
import re
import signal
import warnings
from collections import Counter
from dataclasses import dataclass
from unittest import mock

import numpy as np
from lost_clients import COLUMNS, DRAWN, ROWS
from networks import admm, digits
from raw_tables import CATEGORIES, frames

from fedkernel import RBF, CentroidKMeans, CentroidKPCA, FedkernelError, Linear, Polynomial, Prepare, SpectralKMeans
from fedkernel.peers import Mailbox
from fedkernel.protocol import MAX_NUMBER, KernelClient
from fedkernel.strategies import DKPCA, DisKPCA, FKKMeans, PeerVFedPCA, RFKKMeans, UniformKPCA, VFedAKPCA, VFedPCA
from fedkernel.testing import arrays_of

SECONDS = 60
"""That a run may take, which takes less than one."""

FEATURES = {"n_features": 6, "iterations": 2, "coreset_size": 9}


@dataclass(frozen=True)
class Runs:
    """A strategy, tables to run it over, and how."""

    strategy: object
    tables: object
    prepare: Prepare | None = None

    def fit(self):
        return self.strategy.fit(self.tables, prepare=self.prepare, evaluate=True)


RUNS = {
    "DKPCA": Runs(DKPCA(2, RBF(0.05), local_components=3), COLUMNS),
    "DKPCA, auto, median": Runs(DKPCA("auto", RBF(width="median"), local_components=4), COLUMNS),
    "DKPCA, polynomial, adaptive": Runs(DKPCA(2, Polynomial(2, 0.1), local_components="adaptive"), COLUMNS),
    "DKPCA, centred, certified": Runs(DKPCA(2, RBF(0.05), local_components=3, center=True, certificate=True), COLUMNS),
    "DKPCA, inner products": Runs(DKPCA(2, RBF(0.05), local_components=3, upload="inner products"), COLUMNS),
    "VFedPCA": Runs(VFedPCA(2, merge="eigenvalue", rounds=2), COLUMNS),
    "VFedPCA, warm, average": Runs(
        VFedPCA(rounds=2, warm_start=True, merge="average", weight_scaling=True, center="rows"), COLUMNS
    ),
    "VFedPCA, exact, auto": Runs(VFedPCA("auto", merge="exact", max_components=4), COLUMNS),
    "VFedAKPCA, mean": Runs(VFedAKPCA(2, merge="eigenvalue", kernel=RBF(width="mean"), rounds=2), COLUMNS),
    "VFedAKPCA, exact": Runs(VFedAKPCA(2, kernel=RBF(0.2), merge="exact"), COLUMNS),
    "PeerVFedPCA": Runs(PeerVFedPCA(2, rounds=2, merge="eigenvalue"), COLUMNS),
    "PeerVFedPCA, relays": Runs(PeerVFedPCA(graph="star", relay=True, rounds=2, merge="eigenvalue"), COLUMNS),
    "PeerVFedPCA, exact": Runs(PeerVFedPCA(2, graph="ring", rounds=4), COLUMNS),
    "FKKMeans, lanczos": Runs(FKKMeans(2, kernel=RBF(0.1), solver="lanczos", **FEATURES), ROWS),
    "FKKMeans, without CEM": Runs(FKKMeans(2, kernel=RBF(0.1), cem=False, **FEATURES), ROWS),
    "FKKMeans, gram, auto": Runs(FKKMeans("auto", kernel=RBF(0.1), solver="gram", max_clusters=3, **FEATURES), ROWS),
    "RFKKMeans, scale": Runs(RFKKMeans(2, n_features=6, coreset_size=9, kernel=RBF(width="scale")), ROWS),
    "RFKKMeans, median": Runs(RFKKMeans(2, n_features=6, clusters="lloyd", kernel=RBF(width="median")), ROWS),
    "RFKKMeans, auto, prepared": Runs(
        RFKKMeans("auto", n_features=6, coreset_size=9, kernel=RBF(0.1), max_clusters=3),
        frames(),
        Prepare(categories=CATEGORIES, scale="standard", missing="mean"),
    ),
    "CentroidKMeans": Runs(CentroidKMeans(2, RBF(0.05), n_landmarks=8, rounds=2), ROWS),
    "CentroidKMeans, local, auto": Runs(
        CentroidKMeans("auto", RBF(width="mean"), n_landmarks=8, centroids="local", max_clusters=3), ROWS
    ),
    "CentroidKPCA": Runs(CentroidKPCA(2, RBF(0.05), n_landmarks=8, rounds=2), ROWS),
    "CentroidKPCA, local": Runs(CentroidKPCA(2, RBF(0.05), n_landmarks=8, centroids="local"), ROWS),
    "DisKPCA": Runs(DisKPCA(2, RBF(0.05), **DRAWN), ROWS),
    "DisKPCA, polynomial, auto": Runs(DisKPCA("auto", Polynomial(2, 0.1), max_components=3, **DRAWN), ROWS),
    "UniformKPCA, batch": Runs(UniformKPCA(2, RBF(0.05), n_samples=8, solver="batch", share_rows=True), ROWS),
    "UniformKPCA, prepared": Runs(
        UniformKPCA(2, Linear(), n_samples=9, share_rows=True),
        frames(),
        Prepare(categories=CATEGORIES, scale="robust", missing="median"),
    ),
    "SpectralKMeans": Runs(SpectralKMeans(2, DisKPCA(2, RBF(0.05), **DRAWN), coreset_size=10), ROWS),
    "SpectralKMeans, minmax": Runs(
        SpectralKMeans(2, UniformKPCA(2, RBF(0.05), n_samples=8, share_rows=True), coreset_size=10),
        frames(),
        Prepare(categories=CATEGORIES, scale="minmax", missing="drop"),
    ),
    "ADMMKPCA": Runs(admm(iterations=3), digits(12, 4)),
    "ADMMKPCA, features, 2 components": Runs(
        admm(iterations=2, n_components=2, kernel=RBF(0.001), exchange="features", n_features=30, schedule="paper"),
        digits(12, 4),
    ),
}


def filled(number):
    """Return the lie that one entry, or all, are some number."""

    def lie(array, rng):
        if array.dtype.kind != "f":
            return None
        if rng.random() < 0.5 or not array.size:
            return np.full_like(array, number)
        lying = array.copy()
        lying.flat[rng.randrange(array.size)] = number
        return lying

    return lie


def misshapen(array, rng):
    """Return the lie that the array is of another shape."""
    kinds = [array[..., None], array.reshape(-1)[:-1], np.concatenate([array, array]), array[:0], array[:-1]]
    return rng.choice([other for other in kinds if other.shape != array.shape])


def swapped(array, rng):
    """Return the lie that one row stands where another does."""
    if len(array) < 2:
        return None
    lying, pair = array.copy(), rng.sample(range(len(array)), 2)
    lying[pair] = lying[pair[::-1]]
    return lying


LIES = {
    "1e300": filled(1e300),
    "1e150": filled(MAX_NUMBER),
    "1e149": filled(1e149),
    "-1e149": filled(-1e149),
    "1e75": filled(1e75),
    "1e20": filled(1e20),
    "NaN": filled(np.nan),
    "infinite": filled(np.inf),
    "zeros": lambda array, rng: np.zeros_like(array),
    "negated": lambda array, rng: -array if array.dtype.kind != "u" else None,
    "doubled": lambda array, rng: 2 * array,
    "1e-300": filled(1e-300),
    "times 1e-300": lambda array, rng: array * 1e-300 if array.dtype.kind == "f" else None,
    "not whole": lambda array, rng: array + 0.5 if array.dtype.kind == "f" else None,
    "misshapen": misshapen,
    "rows swapped": swapped,
}
INTEGERS = {"zeros": 0, "negated": -1, "doubled": 2, "1e300": 2**62, "1e20": 10**20, "not whole": 0.5, "NaN": None}


class Slow(BaseException):
    """A run has taken too long."""


@dataclass
class Lie:
    """A field of a reply or letter of a class, at its so-manyeth time; with no ``kind`` it only counts in ``said``."""

    site: int = -1
    kind: str = ""
    time: int = 0
    name: str = ""
    seed: int = 0
    told: str = ""

    def __post_init__(self):
        self.said, self.rng = Counter(), random.Random(self.seed)  # noqa: S311 - not secret

    def met(self, site, kind):
        self.said[site, kind] += 1
        return site == self.site and kind == self.kind and self.said[site, kind] == self.time + 1

    def of_array(self, array):
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            lying = LIES[self.name](array, self.rng)
        same = lying is None or (
            lying.shape == array.shape and lying.dtype == array.dtype and lying.tobytes() == array.tobytes()
        )
        return None if same else lying

    def in_reply(self, arrays, scalars):
        """Return a reply, of which one array or integer is replaced; the first, by chance, in which there is a lie."""
        fields = json.loads(scalars["fields"])
        names = scalars["arrays"].split(",") if arrays else []
        places = [*enumerate(names), *((None, name) for name, value in fields.items() if type(value) is int)]
        self.rng.shuffle(places)
        for place, name in places:
            if place is None and self.name in INTEGERS:
                value = INTEGERS[self.name]
                value = fields[name] * value if self.name in ("negated", "doubled") and value else value
                if value != fields[name]:
                    self.told = name
                    return arrays, scalars | {"fields": json.dumps(fields | {name: value})}
            elif place is not None and (lying := self.of_array(arrays[place])) is not None:
                self.told = name
                return [*arrays[:place], lying, *arrays[place + 1 :]], scalars
        return arrays, scalars

    def in_letter(self, letter):
        names = list(letter.arrays())
        self.rng.shuffle(names)
        for name in names:
            if (lying := self.of_array(letter.arrays()[name])) is not None and lying.ndim == letter.arrays()[name].ndim:
                self.told = name
                return letter.model_copy(update={name: lying})
        return letter


def run(name, lie):
    """Run a pair, with a lie at one site; return its result."""
    fit, write = KernelClient.fit, Mailbox.write

    def fit_or_lie(self, parameters, config):
        arrays, rows, scalars = fit(self, parameters, config)
        if lie.met(self.client, str(scalars["message"])):
            arrays, scalars = lie.in_reply(arrays, scalars)
        return arrays, rows, scalars

    def write_or_lie(self, peer, letter):
        if lie.met(self.client, f"{type(letter).__name__} (letter)"):
            letter = lie.in_letter(letter)
        write(self, peer, letter)

    with mock.patch.object(KernelClient, "fit", fit_or_lie), mock.patch.object(Mailbox, "write", write_or_lie):
        return RUNS[name].fit()


@functools.cache
def classes(name):
    """Return what every site says in a run of a pair: how often, by class."""
    honest = Lie()
    run(name, honest)
    counts = {}
    for (_, kind), count in honest.said.items():
        counts[kind] = max(count, counts.get(kind, 0))
    return counts


def not_finite(result):
    """Return in which parts of a result there are numbers that are not finite."""
    parts = {f"model.{name}": array for name, array in arrays_of(result.model).items() if array.dtype.kind == "f"}
    parts |= {f"metrics.{name}": value for name, value in result.metrics.items()}
    for number, row in enumerate(result.history):
        parts |= {f"history[{number}].{key}": value for key, value in row.get("values", {}).items()}
    for number, row in enumerate(result.ledger.to_table()):
        parts |= {f"ledger[{number}].{key}": value for key, value in dict(row).items() if isinstance(value, float)}
    for site, kept in dict(result.outputs).items():
        parts |= {f"outputs[{site}].{key}": value for key, value in kept.items()}
    floats = {name: np.asarray(part) for name, part in parts.items()}
    odd = [name for name, part in floats.items() if part.dtype.kind == "f" and not np.isfinite(part).all()]
    return odd + [text for text in result.findings if re.search(r"\b(nan|inf)\b", text)]


def verdict(text, site):
    """Return whom a sentence blames."""
    if "defect" in text or "Traceback" in text:
        return "crashed"
    named = re.findall(r"client (\d+)", text)
    if not named:
        return "nobody named"
    # who refuses a letter, or keys, says so itself, and names whose they are
    if named[0] != str(site):
        others = {client for client in named if client != named[0]}
        return "refused" if '"' in text and others == {str(site)} else "another blamed"
    return "refused"


def ending(name, kind, lie_name, seed):
    """Return how a run ends in which a site lies once: what, in words, and the lie."""
    rng = random.Random(f"{name} {kind} {lie_name} {seed}")  # noqa: S311 - not secret
    # whom the tables make the first site, the last, or one between
    sites = len(RUNS[name].tables)
    lie = Lie(rng.randrange(sites), kind, rng.randrange(classes(name)[kind]), lie_name, rng.randrange(2**32))

    def stop(signum, frame):
        raise Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            result = run(name, lie)
    except FedkernelError as error:
        told = verdict(str(error), lie.site)
        return ("not told" if not lie.told else told), lie, str(error)
    except Slow:
        return "hung", lie, ""
    except Exception as error:
        return "crashed", lie, f"{type(error).__name__}: {error}"
    finally:
        logging.disable(logging.NOTSET)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if not lie.told:
        return "not told", lie, ""
    odd = not_finite(result)
    return ("not finite" if odd else "finished"), lie, ", ".join(map(str, odd))
