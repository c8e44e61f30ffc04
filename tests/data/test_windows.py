"""Documents as windows: where each begins and ends, and one embedding or score from theirs."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from xmc_tf.data.windows import WindowEmbeddings, max_over_windows, window_bounds


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (4, [(0, 4)]),  # exactly full
        (5, [(0, 2), (2, 5)]),  # one token more
        (8, [(0, 4), (4, 8)]),
        (12, [(0, 4), (4, 8), (8, 12)]),
        (13, [(0, 4), (4, 8), (8, 12)]),  # the most windows: the rest is ignored
        (10**9, [(0, 4), (4, 8), (8, 12)]),
    ],
)
def test_windows_have_equal_lengths(tokens, expected):
    assert window_bounds(tokens, limit=4, max_windows=3) == expected


def test_every_token_is_in_one_window_that_is_not_too_long():
    for tokens in range(1, 200):
        bounds = window_bounds(tokens, limit=7, max_windows=100)
        lengths = [high - low for low, high in bounds]
        assert [at for low, high in bounds for at in range(low, high)] == list(range(tokens))
        assert max(lengths) <= 7
        assert max(lengths) - min(lengths) <= 1
        assert len(bounds) == -(-tokens // 7)


def test_windows_become_one_embedding():
    vectors = np.array([[1, 5], [3, 1], [2, 2], [9, 9]], np.float32)
    windows = WindowEmbeddings(vectors, np.array([0, 2, 3, 4]))
    assert windows.of_documents("mean").tolist() == [[2, 3], [2, 2], [9, 9]]
    assert windows.of_documents("max").tolist() == [[3, 5], [2, 2], [9, 9]]
    assert WindowEmbeddings(vectors[:0], np.array([0])).of_documents("mean").shape == (0, 2)


def best_of(dense, k):
    """Return the columns and scores of the k best of each row; equal scores are in the order of the columns."""
    columns = np.argsort(-dense, axis=1, kind="stable")[:, :k]
    return columns, np.take_along_axis(dense, columns, axis=1)


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("longest", [1, 5])
def test_the_best_of_each_window_have_the_best_of_the_document(k, longest):
    rng = np.random.default_rng(k)
    splits = np.concatenate([[0], np.cumsum(rng.integers(1, longest + 1, 30))])
    # Few different numbers, so that many are equal; negative ones too.
    scores = rng.integers(-4, 5, (splits[-1], 20)).astype(np.float32)
    columns, values = best_of(scores, k)
    of_windows = csr_matrix((values.ravel(), columns.ravel(), np.arange(len(scores) + 1) * k), shape=scores.shape)
    found = max_over_windows(of_windows, splits, k)
    columns, values = best_of(np.maximum.reduceat(scores, splits[:-1]), k)
    assert found.shape == (30, 20)
    np.testing.assert_array_equal(found.indptr, np.arange(31) * k)
    np.testing.assert_array_equal(found.indices.reshape(30, k), columns)
    np.testing.assert_array_equal(found.data.reshape(30, k), values)


def test_documents_without_scores_stay_empty():
    scores = csr_matrix(([0.5, 0.9], [1, 1], [0, 0, 1, 2, 2]), shape=(4, 3), dtype=np.float32)
    found = max_over_windows(scores, np.array([0, 1, 3, 4]), 2)
    assert (found.indptr.tolist(), found.indices.tolist(), found.data.tolist()) == (
        [0, 0, 1, 1],
        [1],
        [np.float32(0.9)],
    )
    assert max_over_windows(csr_matrix((0, 3)), np.array([0]), 2).shape == (0, 3)
