"""Messages: the way over the wire and back for every class, and what they count."""

import numpy as np
import pydantic
import pytest
from flwr.app import ArrayRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given, settings
from hypothesis import strategies as st
from random_messages import OWN, SCALARS, messages

from fedkernel import Linear
from fedkernel.clients.admm_kpca import RowLetters
from fedkernel.clients.diskpca import DrawnRows, Total
from fedkernel.clients.dkpca import FindLocalEigenpairs, LocalSpectrum
from fedkernel.ground import ProtocolError, ShareableError
from fedkernel.peers import sealed_in
from fedkernel.peers.letters import OVERHEAD
from fedkernel.protocol import decode, encode


def through_flower(arrays_):
    """What Flower's protobuf makes of positional arrays."""
    sent = recorddict_to_proto(RecordDict({"arrays": ArrayRecord(arrays_)}))
    return recorddict_from_proto(type(sent).FromString(sent.SerializeToString()))["arrays"].to_numpy_ndarrays()


def test_every_message_class_is_tested():
    assert SCALARS.keys() >= OWN.keys()
    assert {kind for kind in SCALARS if kind.model_fields.keys() - kind.shapes().keys() - {"width"}} == set(OWN)


@pytest.mark.parametrize("kind", SCALARS, ids=lambda kind: kind.__name__)
@settings(max_examples=5, deadline=None)
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
@settings(max_examples=3, deadline=None)
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
    with pytest.raises(ProtocolError, match="orthonormal"):
        decode(
            LocalSpectrum,
            [spectrum.vectors.astype(np.float32) * 1.00001, *encode(spectrum, "float32")[0][1:]],
            encode(spectrum)[1],
            "float32",
        )


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
