"""Arrays as they travel: read as numpy would, and what is none is refused before memory is taken for it."""

import io

import numpy as np
import pytest
from allocation import peak_of
from flwr.app import Array

from fedkernel.ground import ProtocolError, read_only
from fedkernel.wire import flower_internals

ARRAYS = [
    np.arange(6.0).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(4, dtype=np.int32),
    np.array(3.5),
    np.ones((0, 4)),
    np.frombuffer(b"letters", np.uint8),
    np.array(["a", "bc"]),
    np.array([True, False]),
    np.arange(3, dtype=">f8"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_an_array_is_read_as_numpy_reads_it(array):
    packed = Array(array)
    values, expected = flower_internals.read_array(packed), packed.numpy()
    np.testing.assert_array_equal(values, expected)
    assert values.dtype == expected.dtype
    for flag in ("f_contiguous", "c_contiguous"):
        assert getattr(values.flags, flag) == getattr(expected.flags, flag)
    assert values.flags.writeable
    assert values.flags.owndata or values.base.flags.owndata


def with_header(text, entries=b"", version=(1, 0)):
    header = text.encode() + b"\n"
    size = len(header).to_bytes(2 if version == (1, 0) else 4, "little")
    return Array("float64", (1,), "numpy.ndarray", b"\x93NUMPY" + bytes(version) + size + header + entries)


def announcing(kind, shape, entries=0):
    """Return an array of so many bytes of entries, which announces something else."""
    return with_header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}", bytes(entries))


NO_HEADER = "has no header of an .npy file"


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (announcing("<f8", "(1000000000000,)"), "(1000000000000,), but"),
        (announcing("<f8", "(2,)", 8), "(2,), but has 8 bytes"),
        (announcing("<f8", "()", 9), "(), but has 9 bytes"),
        (announcing("<f8", "(-1, -1)", 8), "(-1, -1), but has 8"),
        (announcing("|O", "(1,)", 8), "announces object (1,)"),
        # entries of no size: as many as are announced would be allocated
        (announcing("<U0", "(400000000,)"), "announces <U0 (400000000,)"),
        (announcing("|V0", "(400000000,)"), "announces |V0 (400000000,)"),
        (announcing("<f8", f"(0, {10**30})"), "invalid array header"),
        (announcing("<f8", (0,) * 100), "invalid array header"),
        # numpy would warn of a whole number of Python 2's, on standard error
        (announcing("<f8", "(1L,)", 8), NO_HEADER),
        (with_header("{'descr': '<f8', 'shape': (1,), }", bytes(8)), f"{NO_HEADER} (ValueError)"),
        (with_header("(" * 5000), NO_HEADER),
        (with_header("__import__('os').abort()"), NO_HEADER),
        (Array("float64", (1,), "numpy.ndarray", b""), f"{NO_HEADER} (ValueError)"),
        (Array("float64", (1,), "numpy.ndarray", b"\x80\x04pickled"), f"{NO_HEADER} (ValueError)"),
    ],
)
def test_an_array_that_is_none_is_refused(array, sentence):
    def read():
        with pytest.raises(ProtocolError) as caught:
            flower_internals.read_array(array)
        return str(caught.value)

    peak, message = peak_of(read)
    assert sentence in message
    assert len(message) < 300
    assert peak < 5_000_000


def test_later_forms_of_the_header_are_read():
    stream = io.BytesIO()
    np.lib.format.write_array(stream, ARRAYS[0], version=(2, 0))
    packed = Array("float64", (2, 3), "numpy.ndarray", stream.getvalue())
    np.testing.assert_array_equal(flower_internals.read_array(packed), ARRAYS[0])


def test_what_stands_in_bytes_is_held_and_read_as_it_is_and_all_else_copied():
    letters, own = np.frombuffer(b"letters", np.uint8), np.ones(3)
    assert flower_internals.read_array(flower_internals.HeldArray(letters)) is letters
    assert not letters.flags.writeable
    held = flower_internals.HeldArray(own).values
    assert not np.shares_memory(held, own)
    assert not np.shares_memory(flower_internals.read_array(flower_internals.HeldArray(held)), held)
    table = read_only(np.ones((3, 2)))
    assert flower_internals.HeldArray(table).values is table
    for other in (table[:2], read_only(np.ones((2, 3)).T.copy(order="F"))):  # another's entries, another order
        assert not np.shares_memory(flower_internals.HeldArray(other).values, other)
