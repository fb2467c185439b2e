"""Messages: the way over the wire and back for every class in clients/, and one clear error for each violation."""

import importlib
import inspect
import json
import pkgutil
from types import NoneType
from typing import Annotated, get_args

import numpy as np
import pydantic
import pytest
from flwr.app import ArrayRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import clients
from clients import admm_kpca, peer_vfedpca
from clients.admm_kpca import (
    CompareStarts,
    KeepComponents,
    Likeness,
    NextComponent,
    Progress,
    ShareDirection,
    ShareRows,
    Started,
    StartLocally,
    UpdateConsensus,
    UpdateDirection,
)
from clients.diskpca import (
    Captured,
    DrawByDistance,
    DrawByLeverage,
    DrawnRows,
    DrawUniformly,
    MeasureCaptured,
    MeasureDistances,
    ScoreRows,
    Sketched,
    SketchKernel,
    SketchPoints,
    TakeComponents,
    TakeLandmarks,
    Total,
)
from clients.dkpca import KernelRows, LocalEigenpairs, LocalSpectrum, NewKernelRows, Projections, ProjectNewRows
from clients.fk_kmeans import (
    CombineFeatures,
    EmbedRows,
    FeatureSums,
    FeatureValues,
    GramOfColumns,
    GramProduct,
    LabelNewRows,
    MeasureSpread,
    MultiplyGram,
    PackedGram,
    SiteMoments,
    SumFeatures,
    TakeEmbedding,
)
from clients.kmeans import (
    LabelRows,
    LocalCoreset,
    LocalCost,
    SampleCoreset,
    SolveLocally,
)
from clients.peer_vfedpca import FinishAmongPeers, IterateAmongPeers
from clients.vfedpca import CapturedVariance, Finish, LeadingVectors, MeasureVariance, Multiply, PowerIteration, Product
from fedkernel import RBF, ArcCosine, Laplacian, Linear, Polynomial, Sigmoid
from fedkernel.errors import ProtocolError
from fedkernel.letters import OVERHEAD, CarriesLetters, pack, sealed_in
from fedkernel.messages import CarriesRows, Done, Reply, Request, Shape, decode, encode
from fedkernel.sealing import Header, seal
from fedkernel.sketch import RandomFeatures, SubspaceEmbedding

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
counts = st.integers(1, 2**62)
table = {"kernel": st.none() | kernels, "center": st.sampled_from(["columns", "rows", "none"])}
features = st.builds(
    RandomFeatures,
    kernel=st.builds(RBF, gamma=positive) | st.builds(Laplacian, gamma=positive),
    n_features=st.integers(1, 2**61).map(lambda half: 2 * half),
    form=st.sampled_from(["pairs", "cosine"]),
    seed=st.integers(0, 2**63 - 1),
)
iteration = {"features": features, "t": counts}
embedding = st.builds(
    SubspaceEmbedding,
    kernel=st.builds(RBF, gamma=positive) | st.builds(Polynomial, gamma=positive) | st.just(ArcCosine(2)),
    size=st.none() | st.integers(1, 50),
    n_features=st.integers(50, 2**62),
    seed=st.integers(0, 2**63 - 1),
)
precision = st.sampled_from(["float64", "float32"])
step = {"kernel": kernels, "precision": precision, "tol": st.floats(0, 0.999)}
handed = {**step, "before": st.integers(0, 2**62)}
exchange = {"features": st.none() | embedding, "noise": st.floats(0, 1e6)}
penalties = {"rho_self": positive, "rho_peers": positive}
merging = {**table, "rule": st.sampled_from(["eigenvalue", "average"]), "weight_scaling": st.booleans()}
local_iterations = {
    "n_components": counts,
    "iterations": counts,
    "update": st.sampled_from(["inplace", "original"]),
    "warm_start": st.booleans(),
}
# What the fields of each class may hold, but for its arrays, which its declared shapes say.
SCALARS = {
    LocalEigenpairs: st.one_of(
        st.fixed_dictionaries({"kernel": kernels, "n_components": counts}),
        st.fixed_dictionaries({"kernel": kernels, "epsilon": st.floats(1e-9, 0.999)}),
    ),
    LocalSpectrum: st.just({}),
    ProjectNewRows: st.just({}),
    Projections: st.just({}),
    NewKernelRows: st.fixed_dictionaries({"kernel": kernels}),
    KernelRows: st.just({}),
    PowerIteration: st.fixed_dictionaries({**table, **local_iterations}),
    LeadingVectors: st.just({}),
    Multiply: st.fixed_dictionaries(table),
    Product: st.just({}),
    Finish: st.fixed_dictionaries(table),
    Done: st.just({}),
    MeasureVariance: st.fixed_dictionaries(table),
    CapturedVariance: st.just({}),
    MeasureSpread: st.just({}),
    SiteMoments: st.just({}),
    SolveLocally: st.fixed_dictionaries({"n_clusters": counts}),
    LocalCost: st.just({}),
    SampleCoreset: st.fixed_dictionaries({"samples": st.integers(0, 2**62)}),
    LocalCoreset: st.just({}),
    LabelRows: st.just({}),
    LabelNewRows: st.fixed_dictionaries({"features": features}),
    GramOfColumns: st.fixed_dictionaries({**iteration, "columns": counts}),
    PackedGram: st.just({}),
    MultiplyGram: st.fixed_dictionaries(iteration),
    GramProduct: st.just({}),
    SumFeatures: st.fixed_dictionaries(iteration),
    FeatureSums: st.just({}),
    CombineFeatures: st.fixed_dictionaries(iteration),
    FeatureValues: st.just({}),
    EmbedRows: st.fixed_dictionaries(iteration),
    TakeEmbedding: st.just({}),
    SketchPoints: st.fixed_dictionaries(
        {"embedding": embedding, "columns": st.none() | counts, "precision": precision}
    ),
    Sketched: st.just({}),
    ScoreRows: st.just({}),
    Total: st.just({}),
    DrawByLeverage: st.fixed_dictionaries({"samples": counts, "embedding": embedding, "precision": precision}),
    DrawByDistance: st.fixed_dictionaries({"samples": counts, **step}),
    DrawUniformly: st.fixed_dictionaries({"samples": counts}),
    DrawnRows: st.just({}),
    TakeLandmarks: st.fixed_dictionaries(handed),
    MeasureDistances: st.fixed_dictionaries(handed),
    SketchKernel: st.fixed_dictionaries({**handed, "columns": st.none() | counts}),
    TakeComponents: st.fixed_dictionaries({"kernel": kernels, "embed": st.booleans()}),
    MeasureCaptured: st.fixed_dictionaries({"kernel": kernels}),
    Captured: st.just({}),
    ShareRows: st.fixed_dictionaries(exchange),
    admm_kpca.Posted: st.fixed_dictionaries({"shown": st.integers(0, 2**62)}),
    StartLocally: st.fixed_dictionaries(
        {**exchange, "kernel": kernels, "center": st.booleans(), "record": st.booleans()}
    ),
    Started: st.just({}),
    CompareStarts: st.just({}),
    Likeness: st.just({}),
    UpdateConsensus: st.fixed_dictionaries(penalties),
    UpdateDirection: st.fixed_dictionaries({**penalties, "dual": st.booleans()}),
    Progress: st.just({}),
    ShareDirection: st.just({}),
    NextComponent: st.just({}),
    KeepComponents: st.just({}),
    IterateAmongPeers: st.fixed_dictionaries({**merging, **local_iterations, "first": st.booleans()}),
    peer_vfedpca.Posted: st.just({}),
    FinishAmongPeers: st.fixed_dictionaries(merging),
}


def message_classes():
    """All concrete requests in clients/, and the replies that answer them."""
    found = set()
    for module in pkgutil.iter_modules(clients.__path__, "clients."):
        for name, value in vars(importlib.import_module(module.name)).items():
            concrete = inspect.isclass(value) and issubclass(value, Request) and value.reply_type is not Reply
            if concrete and "[" not in name and value.__module__ == module.name:
                found |= {value, value.reply_type}
    return found


finite = st.floats(allow_nan=False, allow_infinity=False)
tables = arrays(np.float64, st.tuples(st.integers(0, 5), st.integers(1, 5)), elements=finite | st.just(0.0))
headers = st.builds(Header, *[st.integers(0, 2**32 - 1)] * 4)
letters = st.builds(
    lambda header, floats: seal(bytes(32), "run", header, bytes(OVERHEAD - 36 + 8 * floats)), headers, st.integers(0, 9)
)
mail = st.lists(letters, max_size=3).map(pack)
carried = tables.flatmap(lambda rows: st.sampled_from([rows, sparse.csr_array(rows)])).map(CarriesRows.of)


@st.composite
def messages(draw, kind):
    if issubclass(kind, CarriesRows):  # whose arrays must fit together
        return kind(**draw(SCALARS[kind]), **draw(carried))
    sizes = draw(st.fixed_dictionaries({d: st.integers(0, 5) for s in kind.shapes().values() for d in s.dimensions}))
    fields = dict(draw(SCALARS[kind]))
    for name, shape in kind.shapes().items():
        if NoneType in get_args(kind.model_fields[name].annotation) and draw(st.booleans()):
            continue
        if name == "letters" and issubclass(kind, CarriesLetters):
            fields[name] = draw(mail)
            continue
        array = draw(arrays(shape.dtype, tuple(sizes[d] for d in shape.dimensions), elements=finite))
        fields[name] = draw(st.sampled_from([array, np.asfortranarray(array), array[::-1]]))
    return kind(**fields)


def through_flower(arrays_):
    """What Flower's protobuf makes of positional arrays."""
    sent = recorddict_to_proto(RecordDict({"arrays": ArrayRecord(arrays_)}))
    return recorddict_from_proto(type(sent).FromString(sent.SerializeToString()))["arrays"].to_numpy_ndarrays()


def test_every_message_class_is_tested():
    assert set(SCALARS) == message_classes()


@pytest.mark.parametrize("kind", SCALARS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_round_trip_is_bit_exact(kind, data):
    message = data.draw(messages(kind))
    positional, scalars = encode(message)
    assert all(type(value) in (bool, bytes, float, int, str) for value in scalars.values())
    again = decode(kind, through_flower(positional), scalars)
    assert type(again) is kind
    for name in kind.model_fields:
        sent, got = getattr(message, name), getattr(again, name)
        if isinstance(sent, np.ndarray):
            assert (got.dtype, got.shape, got.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())
        else:
            assert got == sent
            assert type(got) is type(sent)
    floats = sum(array.size for array in positional if array.dtype.kind == "f")
    if found := sealed_in(message):
        floats += (message.letters.size - len(found) * OVERHEAD) // 8
    assert again.floats == message.floats == floats
    shown = {DrawnRows: lambda: again.rows.shape[0], admm_kpca.Posted: lambda: message.shown}.get(kind, lambda: 0)
    assert again.disclosed == message.disclosed == shown()


def test_floats_count_the_entries_of_the_arrays_and_nothing_else():
    assert LocalEigenpairs(kernel=RBF(gamma=0.5), n_components=7).floats == 0
    assert LocalSpectrum(vectors=np.ones((5, 2)), values=np.ones(2)).floats == 12
    assert PowerIteration(n_components=2, iterations=3).floats == 0
    assert PowerIteration(n_components=2, iterations=3, directions=np.ones((5, 2))).floats == 10


def test_floats_of_sparse_rows_are_the_entries_that_are_not_zero():
    rows = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    assert DrawnRows(**CarriesRows.of(rows)).floats == 6
    assert DrawnRows(**CarriesRows.of(sparse.csr_array(rows))).floats == 3


def test_messages_are_immutable():
    message = LocalEigenpairs(kernel=Linear(), n_components=2)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        message.n_components = 3
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        message.unheard_of = 3
    with pytest.raises(AttributeError, match="cannot assign"):
        message.kernel.type = "rbf"


# Violations. A good message of each kind, broken in one way at a time.


def sketch_points(columns):
    return SketchPoints(embedding=SubspaceEmbedding(RBF(gamma=1.0), 4, 10), columns=columns, precision="float64")


def spectrum(**scalars):
    """A LocalSpectrum as it travels, with some of its scalars replaced."""
    positional, told = encode(LocalSpectrum(vectors=np.ones((3, 2)), values=np.array([2.0, 1.0])))
    return positional, {**told, **scalars}


def refused(kind, positional, scalars):
    """The text of the ProtocolError: one sentence on one line, without pydantic's links or a chained traceback."""
    with pytest.raises(ProtocolError) as caught:
        decode(kind, positional, scalars)
    text = str(caught.value)
    assert "\n" not in text
    assert "pydantic" not in text
    assert len(text) < 250
    assert caught.value.__cause__ is None
    return text


@pytest.mark.parametrize(
    ("vectors", "told"),
    [
        (np.ones((3, 2), dtype=np.float32), "not float32 (3, 2)"),
        (np.ones((3, 2), dtype=int), "not int64 (3, 2)"),
        (np.ones((3, 2), dtype=object), "not object (3, 2)"),
        (np.ones(6), "not float64 (6,)"),
        (np.ones((3, 2, 1)), "not float64 (3, 2, 1)"),
        (np.array(1.0), "not float64 ()"),
        (np.array([[1, 2], [np.nan, 0], [np.inf, -np.inf]]), "3 of its entries are not finite"),
        (np.ones((3, 4)), "values has 2 entries along axis 0, but D_m = 4"),
    ],
)
def test_an_array_that_is_not_as_declared_is_refused(vectors, told):
    (_, values), scalars = spectrum()
    text = refused(LocalSpectrum, [vectors, values], scalars)
    assert told in text
    assert text.startswith("LocalSpectrum: ")
    with pytest.raises(ValueError, match=r"vectors|values"):
        LocalSpectrum(vectors=vectors, values=values)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "wire version 2, but this end speaks 1"),
        ({"version": None}, "wire version None"),
        ({"message": "Projections"}, "expected LocalSpectrum, but the message is 'Projections'"),
        ({"message": None}, "the message is None"),
        ({"arrays": "vectors"}, "announces 1 arrays, but 2 came"),
        ({"arrays": "vectors,values,more"}, "announces 3 arrays, but 2 came"),
        ({"arrays": ""}, "announces 0 arrays, but 2 came"),
        ({"arrays": "vectors,more"}, "values is required"),
        ({"arrays": "values,vectors"}, "vectors: must be a finite float64 array of shape (N, D_m), not float64 (2,)"),
        ({"fields": '{"more": 1}'}, "more is not a known name here"),
        ({"fields": "no json"}, "invalid JSON"),
        ({"fields": "[1]"}, "input should be a"),
        ({"fields": ""}, "invalid JSON"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(change, told):
    assert told in refused(LocalSpectrum, *spectrum(**change))


@pytest.mark.parametrize("named", ["vectors,vectors,values", "vectors,values,values", "vectors,values,extra"])
def test_an_array_too_many_is_refused(named):
    positional, scalars = spectrum(arrays=named)
    given_ = {"vectors": positional[0], "values": positional[1], "extra": positional[1]}
    text = refused(LocalSpectrum, [given_[name] for name in named.split(",")], scalars)
    assert "twice" in text or "extra is not a known name" in text


def required(kind):
    return {name for name, field in kind.model_fields.items() if field.is_required()}


@pytest.mark.parametrize("kind", [kind for kind in SCALARS if kind.shapes() and required(kind) == set(kind.shapes())])
def test_a_required_array_cannot_be_missing_or_null(kind):
    first, *_ = kind.shapes()
    nulls = dict.fromkeys(kind.shapes())
    scalars = {"message": kind.__name__, "version": 1, "arrays": "", "fields": json.dumps(nulls)}
    assert f"{first}: must be a finite float64 array" in refused(kind, [], scalars)
    assert f"{first} is required" in refused(kind, [], {**scalars, "fields": "{}"})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"n_components": 0}, "n_components = 0: input should be greater than or equal to 1"),
        ({"n_components": "many"}, "n_components = 'many'"),
        ({"n_components": 2, "epsilon": 0.1}, "give n_components or epsilon"),
        ({"n_components": 2, "kernel": {"type": "rbf", "gamma": -1.0}}, "gamma = -1.0"),
        ({"n_components": 2, "kernel": {"type": "rbf", "gamma": 1.0, "sigma": 1.0}}, "give only one of them"),
        ({"n_components": 2, "kernel": {"type": "wave"}}, "'wave'"),
        ({"n_components": 2, "kernel": {"type": "linear", "gamma": 1.0}}, "gamma is not a known name here"),
    ],
)
def test_scalars_are_validated(fields, told):
    fields = {"kernel": {"type": "linear"}, **fields}
    scalars = {"message": "LocalEigenpairs", "version": 1, "arrays": "", "fields": json.dumps(fields)}
    assert told in refused(LocalEigenpairs, [], scalars)


def test_an_array_in_place_of_a_scalar_is_refused_without_quoting_it():
    fields = json.dumps({"kernel": {"type": "linear"}})
    scalars = {"message": "LocalEigenpairs", "version": 1, "arrays": "n_components", "fields": fields}
    text = refused(LocalEigenpairs, [np.full((9, 9), 12345.0)], scalars)
    assert text == "LocalEigenpairs: n_components: input should be a valid integer, not ndarray"


# Replies against requests


@pytest.mark.parametrize(
    ("request_", "reply", "told"),
    [
        (
            PowerIteration(n_components=2, iterations=1),
            LeadingVectors(vectors=np.ones((5, 3)), values=np.ones(3)),
            "vectors has 3 entries along axis 1, but k = 2",
        ),
        (
            PowerIteration(n_components=2, iterations=1, directions=np.ones((5, 2))),
            LeadingVectors(vectors=np.ones((4, 2)), values=np.ones(2)),
            "vectors has 4 entries along axis 0, but N = 5",
        ),
        (Multiply(block=np.ones((5, 2))), Product(product=np.ones((5, 1))), "product has 1 entries along axis 1"),
        (ProjectNewRows(vectors=np.ones((5, 2))), Projections(products=np.ones((1, 3))), "but k = 2"),
        (
            MeasureVariance(directions=np.ones((5, 2))),
            CapturedVariance(captured=np.ones(2), total=np.ones(0)),
            "total has 0 entries along axis 0, but one = 1",
        ),
        (
            LocalEigenpairs(kernel=Linear(), n_components=2),
            LocalSpectrum(vectors=np.ones((5, 3)), values=np.ones(3)),
            "values has 3 entries, but 2 were asked",
        ),
        (
            LocalEigenpairs(kernel=Linear(), n_components=2),
            LocalSpectrum(vectors=np.ones((5, 2)), values=np.array([1.0, 2.0])),
            "values must be in non-increasing order",
        ),
        (sketch_points(5), Sketched(factor=np.ones((4, 6))), "factor has 6 columns, but at most 5 were asked"),
        (sketch_points(5), Sketched(upper=np.ones(10)), "the reply must hold factor, and nothing else"),
        (sketch_points(5), Sketched(), "the reply must hold factor, and nothing else"),
        (sketch_points(None), Sketched(factor=np.ones((4, 5))), "the reply must hold upper, and nothing else"),
        (
            sketch_points(None),
            Sketched(factor=np.ones((4, 5)), upper=np.ones(10)),
            "the reply must hold upper, and nothing else",
        ),
        (ScoreRows(whitening=np.ones((5, 3))), Total(total=np.ones(2)), "total has 2 entries along axis 0, but one ="),
        (MeasureCaptured(kernel=Linear()), Captured(sums=np.ones(1)), "sums has 1 entries along axis 0, but two = 2"),
        (
            DrawUniformly(samples=2),
            DrawnRows(**CarriesRows.of(np.ones((3, 4)))),
            "the reply holds 3 rows, but from 1 to 2 were asked",
        ),
        (DrawUniformly(samples=2), DrawnRows(**CarriesRows.of(np.ones((0, 4)))), "the reply holds 0 rows"),
    ],
)
def test_a_reply_that_is_not_what_was_asked_is_refused(request_, reply, told):
    with pytest.raises(ValueError, match=r"entries|order|the reply|factor") as caught:
        request_.check_reply(reply)
    assert told in str(caught.value)


DENSE = {"dense": np.ones((2, 3))}
CSR = {
    "values": np.array([1.0, 2.0]),
    "indices": np.array([0, 2], dtype=np.int32),
    "starts": np.array([0, 1, 2], dtype=np.int32),
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (DENSE | {"width": 4}, "rows of shape (2, 3) are not 4 columns wide"),
        (DENSE | {"width": 0}, "width = 0: input should be greater than or equal to 1"),
        (DENSE | {"dense": np.ones((2, 3), dtype=np.float32)}, "dense: must be a finite float64 array"),
        (DENSE | {"dense": np.full((2, 3), np.nan)}, "6 of its entries are not finite"),
        (DENSE | CSR, "rows are either dense or have values, indices, starts, not dense, values"),
        ({}, "rows are either dense or have values, indices, starts, not nothing"),
        ({"values": CSR["values"]}, "rows are either dense or have values, indices, starts, not values"),
        (CSR | {"values": np.array([1.0, np.inf])}, "1 of its entries are not finite"),
        (CSR | {"values": np.ones(3)}, "indices has 2 entries along axis 0, but nnz_m = 3"),
        (CSR | {"indices": np.array([0, 2])}, "indices: must be a finite int32 array of shape (nnz_m), not int64 (2,)"),
        (CSR | {"indices": np.array([0, 3], dtype=np.int32)}, "DrawnRows: "),
        (CSR | {"indices": np.array([0, -1], dtype=np.int32)}, "DrawnRows: "),
        (CSR | {"starts": np.array([0, 1, 3], dtype=np.int32)}, "DrawnRows: "),
        (CSR | {"starts": np.array([0, 2, 1], dtype=np.int32)}, "DrawnRows: "),
        (CSR | {"starts": np.array([1, 2, 2], dtype=np.int32)}, "DrawnRows: "),
        (CSR | {"starts": np.empty(0, dtype=np.int32)}, "starts must have an entry more than there are rows"),
    ],
)
def test_rows_that_are_not_whole_are_refused(change, told):
    fields = {"width": 3} | change
    width = fields.pop("width")
    _, scalars = encode(DrawnRows(width=3, **DENSE))
    told_fields = json.dumps({"width": width})
    text = refused(DrawnRows, list(fields.values()), {**scalars, "arrays": ",".join(fields), "fields": told_fields})
    assert told in text
    assert "numpy" not in text


def test_dimensions_of_one_client_are_not_settled_by_the_request():
    class Table(Reply):
        rows: Annotated[np.ndarray, Shape("n_m", "d")]

    class Ask(Request[Table]):
        sample: Annotated[np.ndarray, Shape("n_m", "d")]

    assert Ask.reply_type is Table
    assert Ask(sample=np.ones((2, 3))).known_dimensions() == {"d": 3}
    Ask(sample=np.ones((2, 3))).check_reply(Table(rows=np.ones((7, 3))))
