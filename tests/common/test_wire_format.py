"""Tests of the wire format: values arrive unchanged."""

import re
import struct
import subprocess
import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.sparse import csc_matrix, csr_matrix

import xmc_tf
from xmc_tf.common.serialization import pack, register, unpack


@register
class Pair(NamedTuple):
    left: object
    right: object = 0


@register
@dataclass(frozen=True)
class Box:
    content: object
    name: str = "box"


class Stranger(NamedTuple):
    left: int


numbers = st.integers(-(2**63), 2**64 - 1) | st.integers(-5, 5) | st.floats() | st.booleans()
dtypes = (
    npst.scalar_dtypes() | npst.unicode_string_dtypes(max_len=5) | npst.byte_string_dtypes(max_len=5)
).filter(lambda dtype: dtype.kind in "biufcSUmM")  # fmt: skip
arrays = dtypes.flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4)))
leaves = (
    st.none() | numbers | st.text() | st.binary() | arrays | dtypes | st.builds(Path, st.just("/a/b") | st.just("c"))
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-2, -1, 1, 3]))
    | arrays.filter(lambda array: array.size and array.dtype.kind not in "SU").map(lambda array: array.reshape(-1)[0])
    | st.lists(st.integers(-(2**63), 2**63 - 1)) | st.lists(st.floats())
    | st.frozensets(st.integers(-9, 2**63) | st.text())
)  # fmt: skip
whole = st.integers(-(2**63), 2**64 - 1)
keys = st.none() | whole | st.text() | st.tuples(whole, st.text())
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(keys, inner, max_size=4) | st.builds(Pair, inner, inner) | st.builds(Box, inner),
    max_leaves=12,
)  # fmt: skip


def same(one, other):
    """Return whether type and bits are equal: NaN equals itself, and 0.0 is not -0.0."""
    assert type(one) is type(other), (one, other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides) or one.size == 0
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, np.generic):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, float):
        assert struct.pack("d", one) == struct.pack("d", other)
    elif isinstance(one, dict):
        same(list(one.items()), list(other.items()))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)
    elif isinstance(one, Box):
        same((one.content, one.name), (other.content, other.name))
    else:
        assert one == other


@given(values)
@settings(deadline=None, max_examples=100)
def test_values_arrive_unchanged(value):
    same(unpack(pack(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        [1, True], [1.0, 1], [2**63, 0], [-(2**63)], "\ud800", Path("/x y/\udcff"), np.array(5), np.longdouble(1) / 3,
        np.datetime64("2020-01-01"), np.arange(6, dtype=">i4"), np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_that_are_rarely_drawn(value):
    same(unpack(pack(value)), value)


def test_views_with_gaps_arrive_as_writable_copies():
    whole = np.arange(24.0).reshape(4, 6)
    for view in (whole[::2, ::-1], whole.T[1:], np.broadcast_to(3, (2, 2))):
        received = unpack(pack(view))
        np.testing.assert_array_equal(received, view)
        received += 1


def test_bfloat16_keeps_its_name():
    ml_dtypes = pytest.importorskip("ml_dtypes")  # comes with TensorFlow
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    received = unpack(pack([array, array[2], array.dtype]))
    assert received[2] == received[0].dtype == ml_dtypes.bfloat16
    assert received[0].tobytes() == array.tobytes()
    assert received[1] == 2


@pytest.mark.parametrize("make", [csr_matrix, csc_matrix])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(3, 4), (0, 5), (5, 0), (2, 2**40)])
def test_sparse_matrices_keep_their_arrays(make, index, shape):
    if make is csc_matrix:
        shape = shape[::-1]
    places = ([1], [1]) if min(shape) > 0 else ([], [])
    matrix = make((np.full(len(places[0]), 7, np.float32), places), shape=shape)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    received = unpack(pack(matrix))
    assert type(received) is make
    assert received.shape == shape
    for name in ("data", "indices", "indptr"):
        same(getattr(received, name), getattr(matrix, name))


@pytest.mark.parametrize(
    "value",
    [
        object(), Stranger(1), OrderedDict(a=1), Counter("ab"), print, np.array([None]), np.zeros(2, "i4,f4"),
        Ellipsis, [1, {"a": Stranger(2)}], 1j, type,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_unsupported_values_are_named(value):
    with pytest.raises(TypeError, match="be sent"):
        pack(value)


def test_a_class_that_is_not_registered_is_named_with_the_fix():
    with pytest.raises(TypeError, match=r"type tests.common.test_wire_format.Stranger .* register its dataclass"):
        pack([Stranger(1)])
    with pytest.raises(TypeError, match="dataclass"):
        register(int)


def test_an_array_is_copied_as_often_as_by_pickle():
    """One copy on each side, measured as the peak memory of a new process."""
    code = (
        "import resource\n"
        "import numpy as np\n"
        "from xmc_tf.common.serialization import pack, unpack\n"
        "array = np.ones(16 << 20, np.float32)\n"
        "unpack(pack(array[:9]))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data = pack(array)\n"
        "received = unpack(np.frombuffer(data, np.uint8).data)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    size = 64 << 10  # KiB
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert int(run.stdout) < 2.3 * size, run.stderr


def test_nothing_in_the_package_unpickles():
    """Neither directly nor through functions of mpi4py and Horovod that pickle their arguments."""
    forbidden = re.compile(
        r"^\s*(?:import|from) (?:pickle|_pickle|marshal|shelve|joblib|dill|cloudpickle)\b"
        r"|allow_pickle=True|(?:broadcast|allgather)_object|trust_remote_code="
        r"|(?:COMM_WORLD|_world|comm)\.(?:i?send|i?recv|bcast|gather|scatter|allgather|alltoall|reduce|allreduce)\(",
        re.MULTILINE,
    )
    package = Path(xmc_tf.__file__).parent
    found = {str(path): match[0] for path in package.rglob("*.py") if (match := forbidden.search(path.read_text()))}
    # A reader with a list of harmless instructions and names.
    assert set(found) == {str(package / "data" / "torch_file.py")}
