"""A gathered problem contains exactly the entries of its rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.linear.cases import sparse_rows, with_private
from xmc_tf.rankers.kernels.gather import gather


def gathered(X, rows, bias=0.0, dense_square=None):
    slot = np.zeros(X.shape[1], np.int32)
    square = np.zeros(0, np.float32) if dense_square is None else dense_square
    problem = gather(X.indptr.astype(np.int64), X.indices, X.data, np.array(rows, np.int32), slot, square, bias)
    assert not slot.any()  # the scratch is shared by all tasks of a thread
    return problem


def rebuilt(problem, shape):
    """Return the full-matrix rows of a problem, from its shared and private entries."""
    shared = csr_matrix((problem.values, problem.names[problem.features], problem.indptr), shape=shape).toarray()
    private = csr_matrix((problem.private_values, problem.private_names, problem.private_indptr), shape=shape).toarray()
    return shared, private


@given(data=st.data())
def test_gathered_rows_equal_the_matrix_rows(data):
    X = with_private(sparse_rows(12, 15, seed=data.draw(st.integers(0, 50))))
    rows = sorted(data.draw(st.sets(st.integers(0, 11))))
    problem = gathered(X, rows)
    shared, private = rebuilt(problem, (len(rows), X.shape[1]))
    full = X[rows].toarray()
    np.testing.assert_array_equal(shared + private, full)
    counts = (full != 0).sum(0)
    assert not shared[:, counts == 1].any()
    assert not private[:, counts > 1].any()
    assert private.any() == (counts == 1).any()
    np.testing.assert_allclose(problem.own, (private**2).sum(1), rtol=1e-6)
    np.testing.assert_allclose(problem.square, (full**2).sum(1), rtol=1e-5)
    used = counts[problem.names]
    assert np.array_equal(used, np.sort(used)[::-1])  # the most frequent first
    assert len(set(problem.names)) == len(problem.names) == (counts > 1).sum()


def test_bias_and_dense_part_are_in_the_norm():
    X = sparse_rows(6, 10)
    dense_square = np.arange(6, dtype=np.float32)
    problem = gathered(X, [1, 4], bias=3.0, dense_square=dense_square)
    np.testing.assert_allclose(problem.square, X[[1, 4]].power(2).sum(1).A1 + 9 + [1, 4], rtol=1e-6)
