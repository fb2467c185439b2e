"""Messages are serialised as Flower does it, byte for byte, on whatever release is installed."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_from_proto, recorddict_to_proto
from flwr.proto.message_pb2 import Message as MessageProto
from hypothesis import given
from hypothesis import strategies as st

from fedkernel.wire import flower_internals
from fedkernel.wire.flower_internals import MAX_CACHED_CHARACTERS

NAMES = st.text(max_size=5)
ARRAYS = st.builds(
    lambda shape, dtype: Array(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from(["float64", "float32", "int32", "uint8"]),
)
LONG = st.sampled_from(["a" * size for size in (MAX_CACHED_CHARACTERS, MAX_CACHED_CHARACTERS + 1, 20_000)])
SCALARS = st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.text() | st.binary() | st.floats() | LONG
RECORDS = st.one_of(
    st.dictionaries(NAMES, ARRAYS, max_size=3).map(ArrayRecord),
    st.dictionaries(NAMES, SCALARS | st.lists(st.text(max_size=3), max_size=2), max_size=3).map(ConfigRecord),
    st.dictionaries(NAMES, st.floats() | st.lists(st.integers(0, 9)), max_size=2).map(MetricRecord),
)
CONTENTS = st.dictionaries(NAMES, RECORDS, max_size=4).map(RecordDict)


@given(CONTENTS)
def test_content(content):
    parts = flower_internals.content_to_parts(content)
    assert b"".join(parts) == recorddict_to_proto(content).SerializeToString()
    assert flower_internals.content_bytes(content) == recorddict_to_proto(content).ByteSize()
    again = flower_internals.content_from_bytes(b"".join(parts))
    assert repr(again) == repr(recorddict_from_proto(recorddict_to_proto(content)))


@given(CONTENTS)
def test_messages(content):
    flower_internals.ensure_task_identity()
    message = Message(content, 3, "train.anything", group_id="7", ttl=5.0)
    flower_internals.stamp(message)
    data = message_to_proto(message).SerializeToString()
    assert b"".join(flower_internals.to_parts(message)) == flower_internals.to_bytes(message) == data
    assert b"".join(flower_internals.to_parts(message, flower_internals.content_to_parts(content))) == data
    again, flowers = flower_internals.from_bytes(data), message_from_proto(MessageProto.FromString(data))
    assert vars(again.metadata) == vars(flowers.metadata)
    assert vars(again).keys() == vars(flowers).keys()
    reply, flowers = flower_internals.reply_to(message, content), Message(content, reply_to=message)
    varying = {"_created_at", "_ttl"}
    assert {**vars(reply.metadata), **dict.fromkeys(varying)} == {**vars(flowers.metadata), **dict.fromkeys(varying)}
    assert reply.metadata.created_at + reply.metadata.ttl == pytest.approx(message.metadata.created_at + 5.0, abs=1e-3)
    failed = Message(Error(5, "so it goes"), reply_to=message)
    assert flower_internals.to_bytes(failed) == message_to_proto(failed).SerializeToString()


def test_integers_of_more_than_64_bits_are_refused_and_arrays_not_copied():
    flower_internals.content_of([], {"least": -(2**63), "most": 2**64 - 1})
    for value in (-(2**63) - 1, 2**64):
        with pytest.raises(ValueError, match=f"^rows = {value} does not fit a message's 64 bits: "):
            flower_internals.content_of([], {"rows": value})
    array = Array(np.zeros(1000))
    content = RecordDict({"a": ArrayRecord({"b": array})})
    assert any(part is array.data for part in flower_internals.content_to_parts(content))


@pytest.mark.parametrize("size", [0, 100, 127, 128, 16383, 16384, 1 << 21, (1 << 21) + 1])
def test_lengths_of_one_to_four_bytes(size):
    content = RecordDict({"arrays": ArrayRecord({"a": Array("uint8", (size,), "numpy.ndarray", bytes(size))})})
    assert b"".join(flower_internals.content_to_parts(content)) == recorddict_to_proto(content).SerializeToString()


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3).T, np.zeros((0, 4)), np.array(["ab", "c"]), np.arange(3, dtype=">i4")]
)
def test_held_arrays_are_serialised_as_flower_does(array):
    content = flower_internals.content_of([array], {})
    assert content["arrays"]["0"].data == Array(array).data
    assert content["arrays"].object_id == ArrayRecord([array]).object_id  # by which a SuperLink knows and builds it
    assert content["arrays"]["0"].deflate() == Array(array).deflate()
    assert b"".join(flower_internals.content_to_parts(content)) == recorddict_to_proto(content).SerializeToString()
    assert flower_internals.content_bytes(content) == recorddict_to_proto(content).ByteSize()
