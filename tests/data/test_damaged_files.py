"""Damaged matrix files are loaded or rejected with a message, whichever bytes change."""

import io

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import tried
from xmc_tf.data import load_matrix


def written(write) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


MATRIX = sp.random(20, 10, 0.2, format="csr", dtype=np.float32, random_state=0)
FILES = {
    "stored": written(lambda file: sp.save_npz(file, MATRIX, compressed=False)),
    "compressed": written(lambda file: sp.save_npz(file, MATRIX, compressed=True)),
    "coo": written(lambda file: sp.save_npz(file, MATRIX.tocoo(), compressed=False)),
    "npy": written(lambda file: np.save(file, MATRIX.toarray())),
}


@pytest.mark.parametrize("kind", FILES)
@given(data=st.data(), mmap=st.booleans())
def test_damaged_bytes(tmp_path_factory, outcomes, kind, data, mmap):
    content = bytearray(FILES[kind])
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path_factory.mktemp("damaged") / "X"
    path.write_bytes(content)
    matrix = tried(outcomes, "/X", load_matrix, path, mmap=mmap)
    if matrix is not None:
        assert np.isfinite(matrix if isinstance(matrix, np.ndarray) else matrix.data).all()
