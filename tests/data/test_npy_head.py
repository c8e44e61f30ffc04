"""The heads of .npy files: as numpy reads them, by any thread, and never trusted."""

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from xmc_tf.common.errors import InputError
from xmc_tf.store.arrays import read_head


def file_of(text: str, version=b"\x01\x00"):
    width = 2 if version == b"\x01\x00" else 4
    return io.BytesIO(b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode() + b"data")


@given(
    npst.arrays(
        st.one_of(npst.scalar_dtypes(), npst.byte_string_dtypes(), npst.unicode_string_dtypes()),
        npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=3),
    ),
    st.booleans(),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
def test_heads_that_numpy_writes(array, fortran, version):
    array = np.asfortranarray(array) if fortran else array
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    file.seek(0)
    head = read_head(file, "it")
    assert (head.shape, head.dtype) == (array.shape, array.dtype)
    assert head.fortran == (array.flags.f_contiguous and not array.flags.c_contiguous)
    assert head.nbytes == array.nbytes
    assert file.tell() == head.length == len(file.getvalue()) - array.nbytes


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,4)}",
        "{'shape':(3L, 4L),'fortran_order':False,'descr':'<f4'}\n",
    ],
)
def test_heads_that_others_write(text):
    head = read_head(file_of(text), "it")
    assert (head.shape, head.fortran, head.dtype) == ((3, 4), False, np.float32)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'descr': '<f8'}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
        "{'descr': '<f4,<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '(2,)f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (3,)}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'1, ' * 33})}}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9999999999999999999)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 60000,
    ],
)
def test_heads_that_are_refused(text):
    with pytest.raises(InputError, match="it is damaged") as refused:
        read_head(file_of(text), "it")
    assert len(str(refused.value)) < 1000


@given(st.lists(st.integers(0, 1 << 63), max_size=40), st.sampled_from("fiubScmM?V"), st.integers(0, 20))
def test_what_is_taken_can_be_made(shape, kind, size):
    """A head without data gives an array or a message, whatever its numbers are."""
    text = f"{{'descr': '<{kind}{size}', 'fortran_order': False, 'shape': {tuple(shape)}}}"
    try:
        head = read_head(file_of(text), "it")
    except InputError:
        return
    if math.prod(shape) == 0:
        assert np.empty(head.shape, head.dtype).nbytes == 0
