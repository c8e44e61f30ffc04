"""Contributions add up to the scores that the search computes."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.linear.cases import features, random_chain, random_model
from xmc_tf.rankers.contributions import contributions


@pytest.mark.parametrize(
    ("kind", "post"), [("sparse", "l3-hinge"), ("dense", "sigmoid"), ("both", "log-sigmoid"), ("both", "noop")]
)
def test_the_sum_is_the_score_before_the_post_processor(kind, post):
    X = features(kind, 4)
    ranker = random_model(random_chain(23, (3, 7)), X.nr_sparse, X.nr_dense, posts=post)
    everything = csr_matrix(np.ones((4, 23), np.float32))
    raw = ranker.predict_selected(X, everything, post_processor="noop").toarray()
    scores = ranker.predict_selected(X, everything).toarray()
    for row in range(4):
        document = X.rows(slice(row, row + 1))
        for label in range(23):
            path = contributions(ranker, document, label)
            last = path[-1]
            assert last.node == label
            assert last.weights @ last.values + last.dense + last.bias == pytest.approx(last.raw)
            assert last.raw == pytest.approx(raw[row, label], abs=1e-5)
            assert last.score == pytest.approx(scores[row, label], rel=1e-4, abs=1e-6)
            assert last.dense == 0 or X.nr_dense > 0
