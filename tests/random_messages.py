"""Random messages of every class that leaves a site or comes to it, for the tests of the wire."""

import importlib
import inspect
import math
import pkgutil
from types import NoneType
from typing import get_args

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import fedkernel.clients as rooms
from fedkernel import RBF, ArcCosine, CarriesLetters, Laplacian, Linear, Polynomial, Reply, Request, Sigmoid
from fedkernel.clients import admm_kpca, diskpca, dkpca, fk_kmeans, kmeans_base, landmark_base, peer_vfedpca, vfedpca
from fedkernel.clients.cell_sums import SumCells, SumEmbeddedCells
from fedkernel.clients.centroid_kpca import FindLocalCenters
from fedkernel.kernel_width import client as settling
from fedkernel.numerics import RandomFeatures, SubspaceEmbedding, pack_symmetric
from fedkernel.numerics.random_features import MOST_FEATURES
from fedkernel.peers.letters import OVERHEAD, pack
from fedkernel.peers.sealing import Header, seal
from fedkernel.preparing import messages as preparing
from fedkernel.protocol import MAX_NUMBER, CarriesRows, Eigenvalues, Orthonormal, PackedSemidefinite, Rule, Within

positive = st.floats(1e-6, 1e6)
kernels = st.one_of(
    st.just(Linear()),
    st.builds(RBF, gamma=st.none() | positive),
    st.builds(RBF, sigma=st.floats(1e-3, 1e3)),
    st.builds(Laplacian, gamma=st.none() | positive),
    st.builds(Polynomial, degree=st.integers(1, 9), gamma=st.none() | positive, coef0=st.floats(0, 1e6)),
    st.builds(Sigmoid, gamma=st.none() | positive, coef0=st.floats(-1e6, 1e6)),
    st.builds(ArcCosine, degree=st.sampled_from([0, 1, 2])),
)
counts = st.integers(1, 10**6)
names = st.lists(st.text(min_size=1), min_size=1, max_size=3).map(tuple)
named, known = {"names": names}, {"kernel": kernels}
table = {"kernel": st.none() | kernels, "center": st.sampled_from(["columns", "rows", "none"])}
features = st.builds(
    RandomFeatures,
    kernel=st.builds(RBF, gamma=positive) | st.builds(Laplacian, gamma=positive),
    n_features=st.integers(1, MOST_FEATURES // 2).map(lambda half: 2 * half),
    form=st.sampled_from(["pairs", "cosine"]),
    seed=st.integers(0, 2**63 - 1),
    frequencies=st.sampled_from(["independent", "orthogonal", "structured"]),
)
precision = st.sampled_from(["float64", "float32"])
iteration = {"features": features, "t": counts, "precision": precision}
embedding = st.builds(
    SubspaceEmbedding,
    kernel=st.builds(RBF, gamma=positive) | st.builds(Polynomial, gamma=positive) | st.just(ArcCosine(2)),
    size=st.none() | st.integers(1, 50),
    n_features=st.integers(50, MOST_FEATURES),
    seed=st.integers(0, 2**63 - 1),
    frequencies=st.sampled_from(["independent", "orthogonal", "structured"]),
)
step = {"kernel": kernels, "precision": precision, "tol": st.floats(0, 0.999)}
handed = {**step, "before": st.integers(0, 2**62)}
exchange = {"features": st.none() | embedding, "noise": st.floats(0, 1e6)}
penalties = {"rho_self": positive, "rho_peers": positive}
clients = st.integers(0, 2**62)
place = {**table, "n_components": counts, "parent": st.none() | clients, "children": st.tuples(clients)}
merging = {**table, "rule": st.sampled_from(["eigenvalue", "average"]), "weight_scaling": st.booleans()}
local_iterations = {
    "n_components": counts,
    "iterations": st.integers(1, 10**4),
    "update": st.sampled_from(["inplace", "original"]),
    "warm_start": st.booleans(),
}
# What the fields of a class may hold, but for its arrays, which its declared shapes say.
OWN = {
    dkpca.FindLocalEigenpairs: st.one_of(
        st.fixed_dictionaries({"kernel": kernels, "n_components": counts, "omitted": st.booleans()}),
        st.fixed_dictionaries({"kernel": kernels, "epsilon": st.floats(1e-9, 0.999)}),
    ),
    dkpca.MeasureKept: {"center": st.booleans()},
    **dict.fromkeys((kmeans_base.MeasureClusters, dkpca.ComputeKernelRows, landmark_base.MeasureCaptured), known),
    kmeans_base.CountClusters: {"step": st.integers(5, 10**6)},
    kmeans_base.CompareClusters: {"run": st.text(max_size=240), "n_clusters": counts},
    peer_vfedpca.MeasureOwn: {**table, "n_components": counts},
    **dict.fromkeys((preparing.CountCells, preparing.SumSquares, preparing.CountBelow, preparing.FindExtremes), named),
    preparing.CompareColumns: {**named, "sites": counts},
    preparing.TakePreparation: {**named, "flagged": names},
    preparing.Prepared: {"rows": st.integers(0, 10**10), "columns": counts},
    settling.MeasureSquares: {"power": st.sampled_from([1, 2])},
    settling.MeasurePairs: {"pairs": st.integers(1, 5000)},
    settling.DescribeGroups: st.just({"groups": 128}),
    dkpca.FindLocalProducts: {"n_components": counts},
    vfedpca.IterateLocally: {**table, **local_iterations},
    **dict.fromkeys((vfedpca.Multiply, vfedpca.Finish, vfedpca.MeasureVariance, vfedpca.ProjectOntoDirections), table),
    kmeans_base.SolveLocally: {"n_clusters": counts},
    kmeans_base.SampleCoreset: {"samples": st.integers(0, 10**6)},
    kmeans_base.LabelNewRows: {"features": features},
    fk_kmeans.MultiplyColumns: {**iteration, "columns": counts},
    **dict.fromkeys(
        (fk_kmeans.MultiplyGram, fk_kmeans.SumFeatures, fk_kmeans.CombineFeatures, fk_kmeans.EmbedRows), iteration
    ),
    SumCells: {"least": st.integers(1, 100)},
    SumEmbeddedCells: {"least": st.integers(1, 100)},
    FindLocalCenters: {"n_centers": counts, "least": st.integers(1, 100), "counts": st.booleans()},
    diskpca.SketchPoints: {"embedding": embedding, "columns": counts, "precision": precision},
    diskpca.MultiplyPoints: {"embedding": embedding, "precision": precision},
    diskpca.DrawByLeverage: {"samples": counts, "embedding": embedding, "precision": precision},
    diskpca.DrawByDistance: {"samples": counts, **step},
    diskpca.DrawUniformly: {"samples": counts},
    **dict.fromkeys((landmark_base.TakeLandmarks, diskpca.MeasureDistances), handed),
    landmark_base.SketchKernel: {**handed, "columns": counts, "sums": st.booleans()},
    landmark_base.MultiplyKernel: {**handed, "sums": st.booleans()},
    landmark_base.TakeComponents: {"kernel": kernels, "precision": precision, "embed": st.booleans()},
    admm_kpca.ShareRows: exchange,
    admm_kpca.RowLetters: {"shown": st.integers(0, 2**62)},
    admm_kpca.StartLocally: {**exchange, "kernel": kernels, "center": st.booleans(), "record": st.booleans()},
    admm_kpca.UpdateConsensus: penalties,
    admm_kpca.UpdateDirection: {**penalties, "dual": st.booleans()},
    peer_vfedpca.IterateAmongPeers: {**merging, **local_iterations, "first": st.booleans()},
    peer_vfedpca.FinishAmongPeers: merging,
    peer_vfedpca.AddProducts: {
        **place,
        "block": st.sampled_from(["first", "kept", "delivered"]),
        "tol": st.floats(1e-300, 0.999),
        "most": st.integers(1, 10**4),
    },
    peer_vfedpca.SearchState: st.sampled_from(["searching", "converged", "unconverged"]).map(lambda s: {"state": s}),
    peer_vfedpca.TakeBlock: {**place, "last": st.booleans()},
}


def message_classes():
    """Return all concrete requests of clients, and of what comes before a protocol, and the replies to them."""
    classes = {}
    files = [importlib.import_module(name) for _, name, _ in pkgutil.iter_modules(rooms.__path__, "fedkernel.clients.")]
    for module in (*files, preparing, settling):
        for name, value in vars(module).items():
            concrete = inspect.isclass(value) and issubclass(value, Request) and value.reply_type is not Reply
            if concrete and "[" not in name and value.__module__ == module.__name__ and not derived(value):
                classes |= dict.fromkeys((value, value.reply_type))
    return classes


def derived(request):
    """Return those of the same file that a request is a base of: nobody is sent it."""
    return [other for other in request.__subclasses__() if other.__module__ == request.__module__]


def scalars_of(own):
    return st.fixed_dictionaries(own) if isinstance(own, dict) else own


SCALARS = {kind: scalars_of(OWN.get(kind, {})) for kind in message_classes()}


finite = st.floats(-MAX_NUMBER, MAX_NUMBER)
tables = arrays(np.float64, st.tuples(st.integers(0, 5), st.integers(1, 5)), elements=finite | st.just(0.0))
headers = st.builds(Header, *[st.integers(0, 2**32 - 1)] * 4)
letters = st.builds(
    lambda header, floats: seal(bytes(64), "run", header, bytes(OVERHEAD - 36 + 8 * floats)), headers, st.integers(0, 9)
)
mail = st.lists(letters, max_size=3).map(pack)
carried = tables.flatmap(lambda rows: st.sampled_from([rows, sparse.csr_array(rows)])).map(CarriesRows.of)


def obeying(rule, array):
    """Return an array of the same shape that obeys a rule, and depends on the entries."""
    seed = np.random.default_rng(abs(hash(array.tobytes())))
    if isinstance(rule, Orthonormal):
        *stacked, rows, columns = array.shape
        return np.linalg.qr(seed.standard_normal((*stacked, max(rows, columns), columns)))[0][..., :rows, :]
    if isinstance(rule, Eigenvalues):
        return np.sort(np.abs(array))[::-1].copy()
    if isinstance(rule, PackedSemidefinite):
        n = (math.isqrt(8 * array.size + 1) - 1) // 2
        factor = seed.standard_normal((n, 2))
        return pack_symmetric(factor @ factor.T)
    bounded = np.clip(array, rule.least, rule.greatest)
    return (np.floor(bounded) if rule.whole else bounded).astype(array.dtype)


def numbers_of(kind, name):
    """Return the numbers that a field without dimensions may hold."""
    bounds = [rule for rule in kind.model_fields[name].metadata if isinstance(rule, Within)]
    return finite.map(lambda number: float(obeying(bounds[0], np.array(number)))) if bounds else finite


@st.composite
def messages(draw, kind):
    if issubclass(kind, CarriesRows):  # whose arrays must fit together
        return kind(**draw(SCALARS[kind]), **draw(carried))
    filled = {d for shape in kind.shapes().values() if not shape.empty for d in shape.dimensions}
    dimensions = {d for shape in kind.shapes().values() for d in shape.dimensions}
    sizes = draw(st.fixed_dictionaries({d: st.integers(int(d in filled), 5) for d in sorted(dimensions)}))
    for shape in kind.shapes().values():  # of orthonormal columns there are no more than rows
        if shape.dimensions[-2:] in (("N", "k"), ("N", "D_m"), ("N", "b")):
            sizes["N"] = max(sizes["N"], sizes[shape.dimensions[-1]])
    if kind is landmark_base.Sketch:  # whose triangle and sums are of as many values
        sizes["packed_m"] = sizes["c"]
    sizes |= {d: size * (size + 1) // 2 for d, size in sizes.items() if d.startswith("packed")}  # a triangle
    fields = dict(draw(SCALARS[kind])) if kind in SCALARS else {}  # letters have arrays only
    if kind is preparing.CountBelow:  # which has thresholds for each column
        sizes["p"] = len(fields["names"])
    for name, shape in kind.shapes().items():
        if NoneType in get_args(kind.model_fields[name].annotation) and draw(st.booleans()):
            continue
        if name == "letters" and issubclass(kind, CarriesLetters):
            fields[name] = draw(mail)
            continue
        if not shape.dimensions:
            fields[name] = draw(numbers_of(kind, name))
            continue
        rules = [rule for rule in kind.model_fields[name].metadata if isinstance(rule, Rule)]
        entries = positive if (kind, name) == (preparing.TakePreparation, "scale") else finite
        entries = st.integers(1, 2**31 - 1) if np.dtype(shape.dtype).kind == "i" else entries
        array = draw(arrays(shape.dtype, tuple(sizes[d] for d in shape.dimensions), elements=entries))
        if rules:
            fields[name] = obeying(rules[0], array)
            continue
        layouts = [array, np.asfortranarray(array), array[::-1]] if array.ndim else [array]
        fields[name] = draw(st.sampled_from(layouts))
    return kind(**fields)
