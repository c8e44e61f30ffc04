"""Tests of the wire format: values arrive unchanged, and damaged bytes only raise its error."""

import pickle
import re
import struct
import subprocess
import sys
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.sparse import csc_matrix, csr_matrix

import xmc_tf
from xmc_tf.common.serialization import MOST_LEVELS, WireFormatError, pack, register, unpack


def message(body: bytes, arrays: bytes = b"") -> bytes:
    """Return the bytes of a msgpack value and of the arrays behind it."""
    return struct.pack("<Q", len(body)) + body + arrays


def extension(kind: int, content: object) -> bytes:
    """Return the msgpack value of an extension."""
    return msgpack.packb(msgpack.ExtType(kind, content if isinstance(content, bytes) else msgpack.packb(content)))


@register
class Pair(NamedTuple):
    left: object
    right: object = 0


@register
@dataclass(frozen=True)
class Box:
    content: object
    name: str = "box"

    def __post_init__(self):
        if self.name == "bad":
            raise RuntimeError("a class that refuses its fields")


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


def test_a_sparse_matrix_with_indices_out_of_range_is_refused():
    """Compiled code relies on the indices."""
    for name, wrong in (("indices", [9, 1]), ("indices", [-1, 1]), ("indptr", [0, 99, 2]), ("indptr", [0, 2, 1])):
        matrix = csr_matrix(np.array([[0, 1.0, 0], [0, 2, 0]]))
        setattr(matrix, name, np.array(wrong, np.int32))
        with pytest.raises(WireFormatError):
            unpack(pack(matrix))


@pytest.mark.parametrize(
    "value",
    [
        object(), Stranger(1), OrderedDict(a=1), Counter("ab"), print, np.array([None]), np.zeros(2, "i4,f4"),
        Ellipsis, [1, {"a": Stranger(2)}], 2**64, -(2**63) - 1, 1j, type,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_unsupported_values_are_named(value):
    with pytest.raises(WireFormatError, match="be sent"):
        pack(value)


def test_a_class_that_is_not_registered_is_named_with_the_fix():
    with pytest.raises(WireFormatError, match=r"type tests.common.test_wire_format.Stranger .* register its dataclass"):
        pack([Stranger(1)])
    for wrong in (int, type("Plain", (), {})):
        with pytest.raises(TypeError, match="only dataclasses and named tuples"):
            register(wrong)

    @dataclass
    class Derived:
        a: int = field(init=False)

    with pytest.raises(TypeError, match="__init__ does not take"):
        register(Derived)


def test_depth_is_limited_on_both_sides():
    value = ()
    for _ in range(MOST_LEVELS - 1):
        value = (value,)
    assert unpack(pack(value)) == value
    with pytest.raises(WireFormatError, match="nested"):
        pack(((value,),))
    circle = []
    circle.append(circle)
    with pytest.raises(WireFormatError, match="nested"):
        pack(circle)
    data = msgpack.packb([])
    for _ in range(200):
        data = extension(0, data)
    with pytest.raises(WireFormatError, match="nested"):
        unpack(message(data))
    for lists in (2000, 2_000_000):
        with pytest.raises(WireFormatError):
            unpack(message(b"\x91" * lists + b"\xc0"))


# Damaged and hostile bytes.


def only_its_own_error(data):
    try:
        unpack(data)
    except WireFormatError:
        return


@given(values, st.data())
@settings(deadline=None, max_examples=100)
def test_damage_raises_the_formats_own_error_only(value, data):
    packed = bytearray(pack(value))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    only_its_own_error(bytes(packed[: data.draw(st.integers(0, len(packed)))]))
    only_its_own_error(bytes(packed) + data.draw(st.binary(max_size=9)))


contents = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats() | st.binary(max_size=9)
    | st.sampled_from(["<f4", "<U2", "bfloat16", "|b1", "x", "tests.common.test_wire_format.Pair"]),
    lambda inner: st.lists(inner, max_size=5) | st.builds(extension, st.sampled_from(range(20)), inner)
    | st.builds(lambda kind, data: msgpack.ExtType(kind, data), st.sampled_from(range(20)), st.binary(max_size=9)),
    max_leaves=9,
)  # fmt: skip


@given(st.sampled_from(range(20)), contents, st.binary(max_size=64))
@settings(deadline=None, max_examples=150)
def test_extensions_of_any_content_raise_its_own_error_only(kind, content, arrays):
    only_its_own_error(message(extension(kind, content), arrays))
    only_its_own_error(message(msgpack.packb(content), arrays))


@pytest.mark.parametrize("count", [2**31, 2**40, 2**62, 2**63, 2**64 - 1])
def test_a_length_beyond_the_end_allocates_nothing(count):
    with pytest.raises(WireFormatError, match="should follow"):
        unpack(struct.pack("<Q", count) + b"\xc0")
    for shape in ([count], [3, 0, count, count], [count, count]):
        for name in ("<f4", "<U4"):
            array = extension(6, [name, False, shape])
            sparse = extension(8, [1, count, *([msgpack.ExtType(6, msgpack.packb([name, False, shape]))] * 3)])
            for data in (array, sparse):
                with pytest.raises(WireFormatError):
                    unpack(message(data, b"arrays"))


def test_hostile_bytes_stay_small_in_memory():
    """A process with a memory limit reads all kinds of invalid lengths."""
    code = (
        "import resource, struct\n"
        "from scipy.sparse import csr_matrix\n"
        "from xmc_tf.common.serialization import unpack, WireFormatError\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (64 << 20),) * 2)\n"
        "for tag in range(256):\n"
        "    for count in (1 << 28, 1 << 33, 1 << 50):\n"
        "        for length in ('>H', '>I', '>Q'):\n"
        "            body = bytes([tag]) + struct.pack(length, count % 256 ** struct.calcsize(length)) + bytes([tag])\n"
        "            try:\n"
        "                unpack(struct.pack('<Q', len(body)) + body)\n"
        "            except WireFormatError:\n"
        "                pass\n"
        "print('done')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout == "done\n", run.stderr


def test_no_name_in_the_data_is_looked_up_anywhere_but_in_the_table(monkeypatch):
    """Code that a pickle would run is not even imported."""

    class Bomb:
        def __reduce__(self):
            return pytest.fail, ("the code in the data was run",)

    only_its_own_error(pickle.dumps(Bomb()))
    for name in ("os.system", "builtins.eval", "antigravity.fly", "tests.common.test_wire_format.Stranger"):
        with pytest.raises(WireFormatError, match="is not registered"):
            unpack(message(extension(10, [name, [None]])))
    assert "antigravity" not in sys.modules


def test_a_class_that_refuses_its_fields_is_the_formats_error():
    packed = pack(Box(1, "bat"))
    with pytest.raises(WireFormatError, match="refuses its fields"):
        unpack(packed.replace(b"bat", b"bad"))
    with pytest.raises(WireFormatError, match="1 values for 2 fields"):
        unpack(message(extension(10, ["tests.common.test_wire_format.Pair", ["one"]])))


@pytest.mark.parametrize(
    "data",
    [
        pack({"a": 1, "b": 2}).replace(b"b", b"a"),
        pack({"a", "b"}).replace(b"b", b"a"),
        message(extension(1, [[1], "b"])),
        message(extension(3, [0, 3, 0])),
        pack(np.array([True])).replace(b"\1", b"\2"),
        pack(np.array(["a"])).replace(b"a\0\0\0", b"\xff\xff\xff\xff"),
        pack("aa").replace(b"aa", b"\xff\xff"),
        pack(1) + b"N",
        message(msgpack.packb(1) + b"N"),
        message(msgpack.packb({1: 2})[:-1]),
        b"",
    ],
    ids=["key twice", "member twice", "list in set", "step 0", "bool 2", "no character", "no UTF-8", "more", "behind",
         "half", "nothing"],
)  # fmt: skip
def test_impossible_values_are_refused(data):
    with pytest.raises(WireFormatError):
        unpack(data)


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
        r"|allow_pickle=True|(?:broadcast|allgather)_object|trust_remote_code"
        r"|(?:COMM_WORLD|_world|comm)\.(?:i?send|i?recv|bcast|gather|scatter|allgather|alltoall|reduce|allreduce)\(",
        re.MULTILINE,
    )
    package = Path(xmc_tf.__file__).parent
    found = {str(path): match[0] for path in package.rglob("*.py") if (match := forbidden.search(path.read_text()))}
    # A reader with a list of harmless instructions and names.
    assert set(found) == {str(package / "data" / "torch_file.py")}
