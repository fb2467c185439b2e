"""Messages that cannot be right are refused in a sentence, by whoever reads them; benchmarks/fuzz.py tries more."""

import random
import time

import numpy as np
import pytest
from allocation import peak_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from fuzzing import CONSTANT, DECODERS, SECONDS, RefusedMessage, corpus

from fedkernel.ground import ProtocolError
from fedkernel.wire import flower_internals
from fedkernel.wire.parse_limits import ENTRIES, MAX_OVERHEAD_BYTES, MOST_FIELDS, SMALL, check_overhead


@pytest.fixture(scope="module")
def valid():
    return corpus(examples=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_what_cannot_be_right_is_refused_in_a_sentence(name, valid):
    rng, refused = random.Random(1), 0  # noqa: S311 - not secret
    generate, decode = DECODERS[name](valid)
    for _ in range(100):
        sent, _ = generate(rng)
        began = time.thread_time()
        try:
            decode(sent)
        except RefusedMessage:
            refused += 1
        assert time.thread_time() - began < SECONDS
    assert refused > 33


def message_of(content):
    flower_internals.ensure_task_identity()
    message = Message(content, 1, MessageType.TRAIN, group_id="1")
    flower_internals.stamp(message)
    return flower_internals.to_bytes(message)


def empty(count):
    return ArrayRecord({str(place): Array("f", (1,), "n", b"") for place in range(count)})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda: {"config": ConfigRecord({"x": "x" * MAX_OVERHEAD_BYTES})}, "bytes besides array entries"),
        (lambda: {"config": ConfigRecord({"x": [0] * 2 * MAX_OVERHEAD_BYTES})}, "bytes besides array entries"),
        (lambda: {"arrays": empty(MOST_FIELDS // 4)}, f"it has too many parts; allowed are {MOST_FIELDS:,}"),
    ],
)
def test_what_a_parser_would_make_much_of_is_refused_before_it_is_parsed(content, sentence):
    data = message_of(RecordDict(content()))

    def refused():
        with pytest.raises(ProtocolError, match=sentence):
            flower_internals.from_bytes(data)

    assert peak_of(refused)[0] < 100_000


def test_fields_of_fixed_length_are_passed_over():
    """Of 8 bytes and of 4, before the content."""
    data = bytes(2 * SMALL)
    for number in reversed(ENTRIES):
        length, size = len(data), b""
        while length > 127:
            length, size = length >> 7, size + bytes([length & 127 | 128])
        data = bytes([number << 3 | 2]) + size + bytes([length]) + data
    check_overhead(bytes([3 << 3 | 1, *[255] * 8, 4 << 3 | 5, *[255] * 4]) + data)


def test_a_large_message_takes_twice_its_bytes_at_most_and_is_refused_where_it_is_cut_off():
    data = message_of(RecordDict({"arrays": ArrayRecord([np.ones(2**20)]), "config": ConfigRecord({"x": 1})}))
    peak, (array,) = peak_of(
        lambda: flower_internals.read_arrays(flower_internals.from_bytes(data).content.array_records["arrays"])
    )
    assert len(array) == 2**20
    assert peak < 2 * len(data) + CONSTANT / 100
    for cut in (1, 2, 5, 40, -1):
        with pytest.raises(ProtocolError, match="it is not a Flower message"):
            flower_internals.from_bytes(data[:cut])
