"""Messages: there and back over the wire for every class, and one clear error for each violation of their form."""

import json
from typing import Annotated

import numpy as np
import pydantic
import pytest
from flwr.app import ArrayRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given, settings
from hypothesis import strategies as st
from random_messages import OWN, SCALARS, messages

from fedkernel import RBF, Linear
from fedkernel.clients import diskpca, dkpca, fk_kmeans, landmark_base
from fedkernel.clients.admm_kpca import RowLetters
from fedkernel.clients.diskpca import DrawnRows, DrawUniformly, Total
from fedkernel.clients.dkpca import FindLocalEigenpairs, LocalSpectrum
from fedkernel.clients.landmark_base import Sketch, SquaredLengths
from fedkernel.clients.vfedpca import IterateLocally, LeadingVectors, MeasureVariance, Multiply, Product
from fedkernel.ground import ProtocolError, ShareableError
from fedkernel.numerics import RandomFeatures, SubspaceEmbedding
from fedkernel.peers import sealed_in
from fedkernel.peers.letters import OVERHEAD
from fedkernel.protocol import WIRE_VERSION, CarriesRows, Reply, Request, Shape, decode, encode


def through_flower(arrays_):
    """What Flower's protobuf makes of positional arrays."""
    sent = recorddict_to_proto(RecordDict({"arrays": ArrayRecord(arrays_)}))
    return recorddict_from_proto(type(sent).FromString(sent.SerializeToString()))["arrays"].to_numpy_ndarrays()


def test_every_message_class_is_tested():
    assert SCALARS.keys() >= OWN.keys()
    assert {kind for kind in SCALARS if kind.model_fields.keys() - kind.shapes().keys() - {"width"}} == set(OWN)


@pytest.mark.parametrize("kind", SCALARS, ids=lambda kind: kind.__name__)
@settings(max_examples=3, deadline=None)
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
    if letters := sealed_in(message):
        floats += (message.letters.size - len(letters) * OVERHEAD) // 8
    assert again.floats == message.floats == floats
    shown = {DrawnRows: lambda: again.rows.shape[0], RowLetters: lambda: message.shown}.get(kind, lambda: 0)
    assert again.disclosed == message.disclosed == shown()


@pytest.mark.parametrize("kind", [kind for kind in SCALARS if kind.narrowed()], ids=lambda kind: kind.__name__)
@settings(max_examples=2, deadline=None)
@given(st.data())
def test_on_a_wire_of_float32_each_entry_is_rounded_and_obeys_the_rules_still(kind, data):
    message = data.draw(messages(kind))
    arrays = message.arrays()
    narrowed = [np.abs(arrays[name]).max(initial=0) for name in kind.narrowed() & arrays.keys()]
    most, least = float(np.finfo(np.float32).max), 2.0**-103
    if any(largest > most or 0 < largest < least for largest in narrowed):
        with pytest.raises(ShareableError, match=r"(large|small) to be sent as float32.*allowed: wire = \"float64\""):
            encode(message, "float32")
        return
    positional, scalars = encode(message, "float32")
    again = decode(kind, through_flower(positional), scalars, "float32").arrays()
    for name, array in arrays.items():
        expected = array.astype(np.float32).astype(np.float64) if name in kind.narrowed() else array
        assert (again[name].dtype, again[name].tobytes()) == (array.dtype, expected.tobytes())


def test_arrays_travel_as_the_run_says_or_not_at_all():
    spectrum = LocalSpectrum(vectors=np.linalg.qr(np.arange(6.0).reshape(3, 2) ** 2)[0], values=np.ones(2))
    for sent, expected in (("float32", "float64"), ("float64", "float32")):
        with pytest.raises(ProtocolError, match=f"vectors:? must be (a finite|sent as) {expected}.*not (as )?{sent}"):
            decode(LocalSpectrum, *encode(spectrum, sent), expected)
    assert decode(LocalSpectrum, *encode(spectrum, "float32"), "float32").rounding > spectrum.rounding
    (vectors, values), scalars = encode(spectrum, "float32")
    with pytest.raises(ProtocolError, match="orthonormal"):
        decode(LocalSpectrum, [vectors * np.float32(1.00001), values], scalars, "float32")


def test_a_number_is_a_float_here_and_a_counted_array_on_the_wire():
    message = Total(total=np.float64(0.1))
    arrays, scalars = encode(message)
    assert [(array.dtype, array.shape, float(array[0])) for array in arrays] == [(np.float64, (1,), 0.1)]
    again = decode(Total, arrays, scalars)
    assert (type(again.total), again.total, again.floats, again.dimensions()) == (float, 0.1, 1, {})


def test_messages_are_immutable():
    message = FindLocalEigenpairs(kernel=Linear(), n_components=2)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        message.n_components = 3
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        message.unheard_of = 3
    with pytest.raises(AttributeError, match="cannot assign"):
        message.kernel.type = "rbf"


def sketch_points(columns):
    embedding = SubspaceEmbedding(RBF(gamma=1.0), 4, 10)
    return diskpca.SketchPoints(embedding=embedding, columns=columns, precision="float64")


def multiply_kernel(**fields):
    settings = {"kernel": Linear(), "precision": "float64", "tol": 0.0, "before": 0}
    return landmark_base.MultiplyKernel(**settings, **CarriesRows.of(np.ones((2, 4))), **fields)


def spectrum(**scalars):
    """A LocalSpectrum as it travels, with some of its scalars replaced."""
    positional, sent = encode(LocalSpectrum(vectors=np.eye(3, 2), values=np.array([2.0, 1.0])))
    return positional, {**sent, **scalars}


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


VALUES = np.array([2.0, 1.0])
NUMBER = "total: must be a finite float64 array of shape (1)"


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ([np.ones((3, 2), dtype=np.float32), VALUES], "not float32 (3, 2)"),
        ([np.ones((3, 2), dtype=int), VALUES], "not int64 (3, 2)"),
        ([np.ones((3, 2), dtype=object), VALUES], "not object (3, 2)"),
        ([np.ones(6), VALUES], "not float64 (6,)"),
        ([np.ones((3, 2, 1)), VALUES], "not float64 (3, 2, 1)"),
        ([np.array(1.0), VALUES], "not float64 ()"),
        ([np.array([[1, 2], [np.nan, 0], [np.inf, -np.inf]]), VALUES], "3 of its entries are not finite"),
        ([np.ones((3, 4)), VALUES], "values has 2 entries along axis 0, but D_m = 4"),
        ([np.ones(2)], f"{NUMBER} with just one entry, not (2,)"),
        ([np.empty(0)], f"{NUMBER} with just one entry, not (0,)"),
        ([np.array(1.0)], f"{NUMBER}, not float64 ()"),
        ([np.array([1])], f"{NUMBER}, not int64 (1,)"),
        ([1], f"{NUMBER}, not int"),
        ([np.array([np.inf])], f"{NUMBER}, but 1 of its entries are not finite"),
    ],
)
def test_an_array_or_number_that_is_not_as_declared_is_refused(arrays, sentence):
    good = Total(total=1.0) if len(arrays) == 1 else LocalSpectrum(vectors=np.eye(3, 2), values=VALUES)
    kind, (_, scalars) = type(good), encode(good)
    text = refused(kind, arrays, scalars)
    assert sentence in text
    assert text.startswith(f"{kind.__name__}: ")
    with pytest.raises(ValueError, match=r"vectors|values|total"):
        kind(**dict(zip(good.arrays(), arrays, strict=True)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 1}, f"wire version 1, but this version reads {WIRE_VERSION}"),
        ({"version": None}, "wire version None"),
        ({"message": "Projections"}, "expected LocalSpectrum, but the message is 'Projections'"),
        ({"message": None}, "the message is None"),
        ({"arrays": "vectors"}, "announces 1 arrays, but has 2"),
        ({"arrays": "vectors,values,more"}, "announces 3 arrays, but has 2"),
        ({"arrays": ""}, "announces 0 arrays, but has 2"),
        ({"arrays": "vectors,vectors"}, "twice"),
        ({"arrays": 1}, "arrays and fields must be texts"),
        ({"fields": 1.0}, "arrays and fields must be texts"),
        ({"arrays": "vectors,more"}, "LocalSpectrum has no array 'more'"),
        ({"fields": '{"vectors": [[1.0]]}'}, "vectors is an array, but was sent among the scalars"),
        ({"arrays": "values,vectors"}, "vectors: must be a finite float64 array of shape (N, D_m), not float64 (2,)"),
        ({"fields": '{"more": 1}'}, "more is not a known name here"),
        ({"fields": "no json"}, "invalid JSON"),
        ({"fields": "[1]"}, "input should be a"),
        ({"fields": ""}, "invalid JSON"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(change, sentence):
    assert sentence in refused(LocalSpectrum, *spectrum(**change))


def required(kind):
    return {name for name, field in kind.model_fields.items() if field.is_required()}


@pytest.mark.parametrize("kind", [kind for kind in SCALARS if kind.shapes() and required(kind) == set(kind.shapes())])
def test_a_required_array_cannot_be_missing_or_null(kind):
    first, *_ = kind.shapes()
    nulls = dict.fromkeys(kind.shapes())
    scalars = {"message": kind.__name__, "version": WIRE_VERSION, "arrays": "", "fields": json.dumps(nulls)}
    dtype = np.dtype(kind.shapes()[first].dtype)
    assert f"{first}: must be a finite {dtype} array" in refused(kind, [], scalars)
    assert f"{first} is required" in refused(kind, [], {**scalars, "fields": "{}"})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"n_components": 0}, "n_components = 0: input should be greater than or equal to 1"),
        ({"n_components": "many"}, "n_components = 'many'"),
        ({"n_components": 2, "epsilon": 0.1}, "n_components or epsilon is required"),
        ({"n_components": 2, "kernel": {"type": "rbf", "gamma": -1.0}}, "gamma = -1.0"),
        ({"n_components": 2, "kernel": {"type": "rbf", "gamma": 1.0, "sigma": 1.0}}, "give only one of them"),
        ({"n_components": 2, "kernel": {"type": "wave"}}, "'wave'"),
        ({"n_components": 2, "kernel": {"type": "linear", "gamma": 1.0}}, "gamma is not a known name here"),
    ],
)
def test_scalars_are_validated(fields, sentence):
    fields = {"kernel": {"type": "linear"}, **fields}
    scalars = {"message": "FindLocalEigenpairs", "version": WIRE_VERSION, "arrays": "", "fields": json.dumps(fields)}
    assert sentence in refused(FindLocalEigenpairs, [], scalars)
    # nor is an array taken in place of one, or quoted
    text = refused(FindLocalEigenpairs, [np.full((9, 9), 12345.0)], {**scalars, "arrays": "n_components"})
    assert text == "FindLocalEigenpairs has no array 'n_components'"


def find(k, **more):
    return FindLocalEigenpairs(kernel=Linear(), n_components=k, **more)


def pairs_of(kind, k, n=5, **more):
    return kind(vectors=np.eye(n, k), values=np.ones(k), **more)


def drawn(n):
    return DrawnRows(**CarriesRows.of(np.ones((n, 4))))


ITERATE, DIRECTIONS = {"n_components": 2, "iterations": 1}, {"directions": np.eye(5, 2)}
CAPTURED = MeasureVariance.reply_type(captured=np.ones(3), total=1.0)
NEITHER = "the reply must have exactly one of factor and upper"


@pytest.mark.parametrize(
    ("request_", "reply", "sentence"),
    [
        (IterateLocally(**ITERATE), pairs_of(LeadingVectors, 3), "vectors has 3 entries along axis 1, but k = 2"),
        (IterateLocally(**ITERATE, **DIRECTIONS), pairs_of(LeadingVectors, 2, 4), "4 entries along axis 0, but N = 5"),
        (Multiply(block=np.eye(5, 2)), Product(product=np.ones((5, 1))), "product has 1 entries along axis 1"),
        (dkpca.ProjectNewRows(vectors=np.eye(5, 2)), dkpca.Projections(products=np.ones((1, 3))), "but k = 2"),
        (MeasureVariance(**DIRECTIONS), CAPTURED, "captured has 3 entries along axis 0, but k = 2"),
        (find(2), pairs_of(LocalSpectrum, 3), "values has 3 entries, but must have at most 2"),
        (dkpca.FindLocalProducts(n_components=1), pairs_of(dkpca.LocalProducts, 2), "2 entries, but must have at"),
        (find(1, omitted=True), pairs_of(LocalSpectrum, 1), "omitted must be sent, as requested"),
        (find(1), pairs_of(LocalSpectrum, 1, omitted=0.5), "omitted must be absent unless requested"),
        (find(1, omitted=True), pairs_of(LocalSpectrum, 1, omitted=1.5), "from 0 to the last of values, 1.0"),
        (sketch_points(5), Sketch(factor=np.ones((4, 6))), "factor has 6 columns, but must have at most 5"),
        (
            fk_kmeans.MultiplyColumns(features=RandomFeatures(RBF(gamma=1.0), 4), t=1, columns=4),
            fk_kmeans.PackedGram(upper=np.array([1.0, 0.0, 1.0])),
            "upper has 3 entries, but must have 10",
        ),
        (sketch_points(5), Sketch(), NEITHER),
        (sketch_points(5), Sketch(factor=np.ones((4, 5)), upper=np.ones(10)), NEITHER),
        *(
            (multiply_kernel(sums=wanted), landmark_base.Products(upper=np.ones(3), **reply), text)
            for wanted, reply, text in [
                (True, {}, "sums must be sent, as requested"),
                (False, {"sums": np.ones(2)}, "sums must be absent unless requested"),
                (True, {"sums": np.ones(3)}, "sums has 3 entries, one for each landmark, but upper has 3"),
            ]
        ),
        (landmark_base.MeasureCaptured(kernel=Linear()), SquaredLengths(sums=np.ones(1)), "sums has 1 entries along"),
        (DrawUniformly(samples=2), drawn(3), "the reply has 3 rows, but must have from 1 to 2"),
        (DrawUniformly(samples=2), drawn(0), "the reply has 0 rows"),
    ],
)
def test_a_reply_that_is_not_what_was_asked_is_refused(request_, reply, sentence):
    with pytest.raises(ValueError, match=r"entries|omitted|the reply|factor|upper|sums") as caught:
        request_.check_reply(reply)
    assert sentence in str(caught.value)


def test_products_that_are_no_triangle_and_arrays_without_entries_are_refused_at_both_ends():
    triangle, empty = r"upper of shape \(4,\) is not allowed", "with at least one entry, not"
    for kind, arrays, text in (
        (landmark_base.Products, {"upper": np.ones(4)}, triangle),
        (Sketch, {"upper": np.ones(4)}, triangle),
        (Sketch, {"factor": np.ones((0, 3))}, empty),
        (SquaredLengths, {"sums": np.ones(0)}, empty),
        (LocalSpectrum, {"vectors": np.ones((5, 0)), "values": np.ones(0)}, empty),
    ):
        with pytest.raises(ValueError, match=text):
            kind(**arrays)


def test_complex_entries_are_finite_too():
    spectrum = Shape("n", dtype="complex128")
    np.testing.assert_array_equal(spectrum.check(np.array([1j, 2])), [1j, 2])
    with pytest.raises(ValueError, match="but 1 of its entries are not finite"):
        spectrum.check(np.array([1j, complex(0, np.nan)]))


DENSE = {"dense": np.ones((2, 3))}
CSR = {"values": np.array([1.0, 2.0]), "indices": np.array([0, 2], np.int32), "starts": np.array([0, 1, 2], np.int32)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (DENSE | {"width": 4}, "dense has 3 entries along axis 1, but width = 4"),
        (DENSE | {"width": 0}, "width = 0: input should be greater than or equal to 1"),
        (DENSE | {"dense": np.ones((2, 3), dtype=np.float32)}, "dense: must be a finite float64 array"),
        (DENSE | {"dense": np.full((2, 3), np.nan)}, "6 of its entries are not finite"),
        (DENSE | CSR, "rows are either dense or have values, indices, starts, not dense, values"),
        ({}, "rows are either dense or have values, indices, starts, not nothing"),
        ({"values": CSR["values"]}, "rows are either dense or have values, indices, starts, not values"),
        (CSR | {"values": np.array([1.0, np.inf])}, "1 of its entries are not finite"),
        (CSR | {"values": np.ones(3)}, "indices has 2 entries along axis 0, but nnz_m = 3"),
        (CSR | {"indices": np.array([0, 2])}, "indices: must be a finite int32 array of shape (nnz_m), not int64 (2,)"),
        (CSR | {"indices": np.array([0, 3], dtype=np.int32)}, "DrawnRows: "),  # as all that test_rows.py has
        (CSR | {"starts": np.array([1, 2, 2], dtype=np.int32)}, "DrawnRows: "),
        (CSR | {"starts": np.empty(0, dtype=np.int32)}, "starts must have an entry more than there are rows"),
    ],
)
def test_rows_that_are_not_whole_are_refused(change, sentence):
    fields = {"width": 3} | change
    width = fields.pop("width")
    _, scalars = encode(DrawnRows(width=3, **DENSE))
    told_fields = json.dumps({"width": width})
    text = refused(DrawnRows, list(fields.values()), {**scalars, "arrays": ",".join(fields), "fields": told_fields})
    assert sentence in text
    assert "numpy" not in text


def test_dimensions_of_one_client_are_not_settled_by_the_request():
    class Table(Reply):
        rows: Annotated[np.ndarray, Shape("n_m", "d")]

    class Ask(Request[Table]):
        sample: Annotated[np.ndarray, Shape("n_m", "d")]

    assert Ask.reply_type is Table
    assert Ask(sample=np.ones((2, 3))).known_dimensions() == {"d": 3}
    Ask(sample=np.ones((2, 3))).check_reply(Table(rows=np.ones((7, 3))))
