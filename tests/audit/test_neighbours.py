"""Documents that are alike, compared with a plain calculation in Python."""

import numpy as np
import pytest

from tests.fusion.made_up import documents
from xmc_tf.audit.kernels import LEAST_SIMILARITY
from xmc_tf.audit.neighbours import alike_documents
from xmc_tf.audit.pairs import LabelPairs, random_pairs


@pytest.fixture(scope="module")
def made_up():
    X, Y = documents(count=150, labels=20)
    pairs = LabelPairs.of(Y, random_pairs(Y, 1.0, 0))
    return X, Y, pairs, pairs.values(Y) > 0


def test_the_most_similar_words_come_first(made_up):
    X, Y, pairs, has = made_up
    near, _ = alike_documents(X, Y, pairs, has, most=10)
    similar = (X @ X.T).toarray()
    np.fill_diagonal(similar, -1.0)
    for row in range(X.shape[0]):
        found = near[row]
        expected = np.sort(similar[row][similar[row] >= LEAST_SIMILARITY])[::-1][:10]
        np.testing.assert_allclose(found.data, expected, rtol=1e-5)
        np.testing.assert_allclose(similar[row][found.indices], found.data, rtol=1e-5)
