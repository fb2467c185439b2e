"""Random messages of every class that leaves a site or comes to it, for the tests of the wire."""

import math
from types import NoneType
from typing import get_args

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from clients import admm_kpca, dkpca
from clients.admm_kpca import (
    CompareStarts,
    KeepComponents,
    Likeness,
    PenaltyBound,
    Progress,
    RowLetters,
    ShareDirection,
    ShareRows,
    StartLocally,
    StartNextComponent,
    UpdateConsensus,
    UpdateDirection,
)
from clients.diskpca import (
    DrawByDistance,
    DrawByLeverage,
    DrawnRows,
    DrawUniformly,
    MeasureCaptured,
    MeasureDistances,
    MultiplyKernel,
    MultiplyPoints,
    Products,
    ScoreRows,
    Sketch,
    SketchKernel,
    SketchPoints,
    SquaredLengths,
    TakeComponents,
    TakeLandmarks,
    Total,
)
from clients.dkpca import (
    ComputeKernelRows,
    FindLocalEigenpairs,
    FindLocalProducts,
    KernelRows,
    LocalProducts,
    LocalSpectrum,
    Projections,
    ProjectNewRows,
)
from clients.fk_kmeans import (
    CombineFeatures,
    EmbedRows,
    FeatureSums,
    FeatureValues,
    GramProduct,
    MultiplyColumns,
    MultiplyGram,
    PackedGram,
    SumFeatures,
    TakeEmbedding,
)
from clients.kmeans import (
    ClusterSizes,
    ClusterSums,
    CompareClusters,
    CountClusters,
    LabelNewRows,
    LabelRows,
    LocalCoreset,
    LocalCost,
    MeasureClusters,
    SampleCoreset,
    SharedRows,
    SolveLocally,
)
from clients.new_rows import TakeCoordinates
from clients.peer_vfedpca import (
    AddProducts,
    FinishAmongPeers,
    ForwardVectors,
    IterateAmongPeers,
    MeasureOwn,
    SearchState,
    TakeBlock,
)
from clients.vfedpca import (
    CapturedVariance,
    DirectionProducts,
    Finish,
    Finished,
    IterateLocally,
    LeadingVectors,
    MeasureVariance,
    Multiply,
    Product,
    ProjectOntoDirections,
)
from clients.width_grid import (
    EmbedAtWidths,
    LabelAtWidth,
    LocalCoresets,
    LocalCosts,
    SampleAtWidths,
    SolveAtWidths,
)
from fedkernel import RBF, ArcCosine, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.numerics.linalg import pack_symmetric
from fedkernel.numerics.sketch import MOST_FEATURES, RandomFeatures, SubspaceEmbedding
from fedkernel.peers.letters import OVERHEAD, CarriesLetters, Letters, pack
from fedkernel.peers.sealing import Header, seal
from fedkernel.preparing import messages as preparing
from fedkernel.protocol import Eigenvalues, Orthonormal, PackedSemidefinite, Rule, Within
from fedkernel.protocol.messages import LARGEST, CarriesRows, Receipt
from fedkernel.settling import client as settling

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
named = {"names": names}
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
# What the fields of each class may hold, but for its arrays, which its declared shapes say.
SCALARS = {
    FindLocalEigenpairs: st.one_of(
        st.fixed_dictionaries({"kernel": kernels, "n_components": counts, "omitted": st.booleans()}),
        st.fixed_dictionaries({"kernel": kernels, "epsilon": st.floats(1e-9, 0.999)}),
    ),
    LocalSpectrum: st.just({}),
    dkpca.MeasureKept: st.fixed_dictionaries({"center": st.booleans()}),
    dkpca.KeptVariance: st.just({}),
    admm_kpca.MeasureKept: st.just({}),
    admm_kpca.KeptVariance: st.just({}),
    MeasureClusters: st.fixed_dictionaries({"kernel": kernels}),
    ClusterSums: st.just({}),
    CountClusters: st.fixed_dictionaries({"step": st.integers(5, 10**6)}),
    ClusterSizes: st.just({}),
    CompareClusters: st.fixed_dictionaries({"run": st.text(max_size=240), "n_clusters": counts}),
    SharedRows: st.just({}),
    EmbedAtWidths: st.fixed_dictionaries({"features": features, "factors": st.just((0.5, 1.0, 2.0))}),
    SolveAtWidths: st.fixed_dictionaries({"n_clusters": counts}),
    LocalCosts: st.just({}),
    SampleAtWidths: st.lists(st.integers(0, 1000), min_size=1, max_size=4).map(
        lambda each: {"samples": sum(each), "each": tuple(each)}
    ),
    LocalCoresets: st.just({}),
    LabelAtWidth: st.fixed_dictionaries({"chosen": st.integers(0, 2**62)}),
    MeasureOwn: st.fixed_dictionaries({**table, "n_components": counts}),
    preparing.CountCells: st.fixed_dictionaries(named),
    preparing.Cells: st.just({}),
    preparing.SumSquares: st.fixed_dictionaries(named),
    preparing.Squares: st.just({}),
    preparing.CompareColumns: st.fixed_dictionaries({**named, "sites": counts}),
    preparing.Differences: st.just({}),
    preparing.CountBelow: st.fixed_dictionaries(named),
    preparing.CellsBelow: st.just({}),
    preparing.FindExtremes: st.fixed_dictionaries(named),
    preparing.Extremes: st.just({}),
    preparing.TakePreparation: st.fixed_dictionaries({**named, "flagged": names}),
    preparing.PrepareOwn: st.just({}),
    preparing.Prepared: st.fixed_dictionaries({"rows": st.integers(0, 10**10), "columns": counts}),
    settling.SumColumns: st.just({}),
    settling.ColumnSums: st.just({}),
    settling.MeasureSquares: st.fixed_dictionaries({"power": st.sampled_from([1, 2])}),
    settling.Squares: st.just({}),
    settling.SumEntries: st.just({}),
    settling.EntrySum: st.just({}),
    settling.MeasureEntries: st.just({}),
    settling.EntrySquares: st.just({}),
    settling.MeasurePairs: st.fixed_dictionaries({"pairs": st.integers(1, 5000)}),
    settling.PairSquares: st.just({}),
    settling.DescribeGroups: st.just({"groups": 128}),
    settling.RowGroups: st.just({}),
    FindLocalProducts: st.fixed_dictionaries({"n_components": counts}),
    LocalProducts: st.just({}),
    ProjectNewRows: st.just({}),
    TakeCoordinates: st.just({}),
    Projections: st.just({}),
    ComputeKernelRows: st.fixed_dictionaries({"kernel": kernels}),
    KernelRows: st.just({}),
    IterateLocally: st.fixed_dictionaries({**table, **local_iterations}),
    LeadingVectors: st.just({}),
    Multiply: st.fixed_dictionaries(table),
    Product: st.just({}),
    Finish: st.fixed_dictionaries(table),
    Finished: st.just({}),
    Receipt: st.just({}),
    MeasureVariance: st.fixed_dictionaries(table),
    CapturedVariance: st.just({}),
    ProjectOntoDirections: st.fixed_dictionaries(table),
    DirectionProducts: st.just({}),
    SolveLocally: st.fixed_dictionaries({"n_clusters": counts}),
    LocalCost: st.just({}),
    SampleCoreset: st.fixed_dictionaries({"samples": st.integers(0, 10**6)}),
    LocalCoreset: st.just({}),
    LabelRows: st.just({}),
    LabelNewRows: st.fixed_dictionaries({"features": features}),
    MultiplyColumns: st.fixed_dictionaries({**iteration, "columns": counts}),
    PackedGram: st.just({}),
    MultiplyGram: st.fixed_dictionaries(iteration),
    GramProduct: st.just({}),
    SumFeatures: st.fixed_dictionaries(iteration),
    FeatureSums: st.just({}),
    CombineFeatures: st.fixed_dictionaries(iteration),
    FeatureValues: st.just({}),
    EmbedRows: st.fixed_dictionaries(iteration),
    TakeEmbedding: st.just({}),
    SketchPoints: st.fixed_dictionaries({"embedding": embedding, "columns": counts, "precision": precision}),
    MultiplyPoints: st.fixed_dictionaries({"embedding": embedding, "precision": precision}),
    Products: st.just({}),
    Sketch: st.just({}),
    ScoreRows: st.just({}),
    Total: st.just({}),
    DrawByLeverage: st.fixed_dictionaries({"samples": counts, "embedding": embedding, "precision": precision}),
    DrawByDistance: st.fixed_dictionaries({"samples": counts, **step}),
    DrawUniformly: st.fixed_dictionaries({"samples": counts}),
    DrawnRows: st.just({}),
    TakeLandmarks: st.fixed_dictionaries(handed),
    MeasureDistances: st.fixed_dictionaries(handed),
    SketchKernel: st.fixed_dictionaries({**handed, "columns": counts, "sums": st.booleans()}),
    MultiplyKernel: st.fixed_dictionaries({**handed, "sums": st.booleans()}),
    TakeComponents: st.fixed_dictionaries({"kernel": kernels, "precision": precision, "embed": st.booleans()}),
    MeasureCaptured: st.fixed_dictionaries({"kernel": kernels}),
    SquaredLengths: st.just({}),
    ShareRows: st.fixed_dictionaries(exchange),
    RowLetters: st.fixed_dictionaries({"shown": st.integers(0, 2**62)}),
    StartLocally: st.fixed_dictionaries(
        {**exchange, "kernel": kernels, "center": st.booleans(), "record": st.booleans()}
    ),
    PenaltyBound: st.just({}),
    CompareStarts: st.just({}),
    Likeness: st.just({}),
    UpdateConsensus: st.fixed_dictionaries(penalties),
    UpdateDirection: st.fixed_dictionaries({**penalties, "dual": st.booleans()}),
    Progress: st.just({}),
    ShareDirection: st.just({}),
    StartNextComponent: st.just({}),
    KeepComponents: st.just({}),
    Letters: st.just({}),
    IterateAmongPeers: st.fixed_dictionaries({**merging, **local_iterations, "first": st.booleans()}),
    ForwardVectors: st.just({}),
    FinishAmongPeers: st.fixed_dictionaries(merging),
    AddProducts: st.fixed_dictionaries(
        {
            **place,
            "block": st.sampled_from(["first", "kept", "delivered"]),
            "tol": st.floats(1e-300, 0.999),
            "most": st.integers(1, 10**4),
        }
    ),
    SearchState: st.fixed_dictionaries({"state": st.sampled_from(["searching", "converged", "unconverged"])}),
    TakeBlock: st.fixed_dictionaries({**place, "last": st.booleans()}),
}


finite = st.floats(-LARGEST, LARGEST)
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
    sizes |= {d: size * (size + 1) // 2 for d, size in sizes.items() if d.startswith("packed")}  # a triangle
    fields = dict(draw(SCALARS[kind])) if kind in SCALARS else {}  # letters have arrays only
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
