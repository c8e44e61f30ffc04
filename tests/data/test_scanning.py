"""A shared scan of a matrix finds what a single process finds, for any number of parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import array_checks, load_features, load_matrix, save_matrix
from xmc_tf.data.array_checks import ALONE, check_finite, check_indices


class InParts:
    """One process that does what ``parts`` would do; the first fault stands for all."""

    def __init__(self, parts):
        self.parts, self.scans = parts, 0

    def map(self, function):
        self.scans += 1
        return [function(part, self.parts) for part in range(self.parts)]


@pytest.fixture(autouse=True)
def few_are_shared(monkeypatch):
    monkeypatch.setattr(array_checks, "FEW", 0)


def outcome(check, *args):
    try:
        return check(*args)
    except InputError as error:
        return str(error).partition("received")[0]  # how many others there are is counted within a part


@st.composite
def lines_of_indices(draw):
    lines = draw(st.lists(st.lists(st.integers(-1, 6), max_size=5), min_size=1, max_size=12))
    if draw(st.booleans()):  # mostly in order, so that one turn within a line decides
        lines = [sorted(set(line)) for line in lines]
    indptr = np.cumsum([0, *map(len, lines)])
    return indptr, np.array([index for line in lines for index in line], np.int32)


@given(lines_of_indices(), st.integers(1, 9), st.integers(5, 7))
def test_order_and_range_of_indices(lines, parts, columns):
    indptr, indices = lines
    alone, shared = (
        outcome(check_indices, indptr, indices, columns, "X", "row", scan) for scan in (ALONE, InParts(parts))
    )
    assert alone == shared


@given(
    hnp.arrays(np.float32, st.integers(0, 30), elements=st.sampled_from([0.0, 1.0, np.nan, np.inf])), st.integers(1, 9)
)
def test_values_that_are_no_numbers(values, parts):
    dense = values[:, None] * np.ones((1, 2), np.float32)
    sparse = csr_matrix((values, np.zeros(len(values), np.int32), np.arange(len(values) + 1)), (len(values), 1))
    for matrix in (dense, sparse):
        assert outcome(check_finite, matrix, "X", ALONE) == outcome(check_finite, matrix, "X", InParts(parts))


def test_files_are_the_same_matrices(tmp_path):
    rng = np.random.default_rng(0)
    X = csr_matrix(rng.random((40, 9), np.float32) * (rng.random((40, 9)) < 0.4), dtype=np.float32)
    unsorted = X.copy()
    for row in range(40):  # as they may come; sorted when loaded
        line = slice(*unsorted.indptr[row : row + 2])
        unsorted.indices[line], unsorted.data[line] = unsorted.indices[line][::-1], unsorted.data[line][::-1]
    np.savez(
        tmp_path / "X.npz", format=b"csr", shape=X.shape,
        data=unsorted.data, indices=unsorted.indices, indptr=unsorted.indptr,
    )  # fmt: skip
    save_matrix(tmp_path / "E.npy", rng.random((40, 3), np.float32))
    scan = InParts(3)
    loaded = load_matrix(tmp_path / "X.npz", scan=scan)
    assert (loaded.indices == X.indices).all()
    assert (loaded.data == X.data).all()
    assert scan.scans == 2  # indices and values
    pair = load_features([tmp_path / "X.npz", tmp_path / "E.npy"], scan=scan)
    assert pair.shape == (40, 12)
    assert scan.scans == 5
