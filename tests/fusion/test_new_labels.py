"""Labels without training documents: their features, their own weights, and calibrated probabilities."""

import numpy as np
from scipy.sparse import csr_matrix, random

from xmc_tf.fusion import Fusion
from xmc_tf.fusion.candidates import join_candidates
from xmc_tf.fusion.features import NAMES, candidate_features, features_if_new


def made_up(hidden=(), rows=4000, labels=30, seed=0):
    """Return scores, evidence, evidence if labels were new, and labels that follow scores and names."""
    rng = np.random.default_rng(seed)
    scores = random(rows, labels, 0.2, format="csr", dtype=np.float32, rng=rng)
    worth = random(rows, labels, 0.2, format="csr", dtype=np.float32, rng=rng)
    raw = 3 * scores.toarray() + 4 * worth.toarray() - 3
    truth = (rng.random((rows, labels)) < 1 / (1 + np.exp(-raw))).astype(np.float32)
    known = truth.copy()
    known[:, list(hidden)] = 0
    if_new = worth.tolil()
    if_new[:, list(hidden)] = 0
    return scores, worth, csr_matrix(if_new), csr_matrix(known), csr_matrix(truth)


def test_new_labels_have_fair_probabilities():
    hidden = [3, 11, 20]
    scores, worth, if_new, Y, _ = made_up(hidden)
    fusion = Fusion.learn(scores, worth, Y, Y, if_new)
    scores, worth, _, _, truth = made_up(hidden, seed=1)
    found = fusion.combine(scores, worth, 30)
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    right = np.asarray(truth[rows, found.indices]).ravel()
    new = np.isin(found.indices, hidden)
    assert new.sum() > 1000
    for low, high in ((0.0, 0.2), (0.2, 0.4), (0.4, 1.0)):
        some = new & (found.data >= low) & (found.data < high)
        assert abs(found.data[some].mean() - right[some].mean()) < 0.06, (low, high)


def test_other_labels_keep_their_probabilities():
    hidden = [3, 11, 20]
    scores, worth, if_new, Y, _ = made_up(hidden)
    with_names, without = worth.copy(), worth.tolil()
    without[:, hidden] = 0
    fusion = Fusion.learn(scores, with_names, Y, Y, if_new)
    others = np.setdiff1d(np.arange(30), hidden)
    first = fusion.combine(scores, with_names, 30).toarray()
    second = fusion.combine(scores, csr_matrix(without), 30).toarray()
    assert np.array_equal(first[:, others], second[:, others])
    # A score of a label without documents is an accident of its place in the tree.
    assert not second[:, hidden].any()


def test_the_score_of_the_label_itself_does_not_count():
    scores = csr_matrix(np.array([[0.8, 0.3, 0.1], [0.6, 0.6, 0.0]], np.float32))
    worth = csr_matrix(np.array([[0.2, 0.2, 0.0], [0.2, 0.0, 0.2]], np.float32))
    features = features_if_new(join_candidates(scores, worth))
    best, total = (
        features[:, NAMES.index("best score of the text")],
        features[:, NAMES.index("sum of scores of the text")],
    )
    assert np.allclose(1 / (1 + np.exp(-best)), [0.3, 0.8, 0.8, 0.6, 0.6, 0.6], atol=1e-6)
    assert np.allclose(np.exp(total) - 0.1, [0.4, 0.9, 1.1, 0.6, 0.6, 1.2], atol=1e-6)
    assert not features[:, NAMES.index("score")].any()
    assert features[:, NAMES.index("no ranker")].all()


def test_it_is_as_if_the_label_had_never_had_a_score():
    scores, worth, if_new, _, _ = made_up(rows=50)
    named = join_candidates(scores, if_new)
    features = features_if_new(named)
    for label in (0, 7):
        ranked = np.arange(30) != label
        alone = join_candidates(scores, if_new, ranked)
        without = candidate_features(alone, np.zeros(30))
        here, there = (named.labels == label) & (named.worth > 0), alone.labels == label
        assert here.any()
        assert np.allclose(features[here], without[there], atol=1e-6)
    assert worth.nnz


def test_added_labels_have_places_after_the_others():
    scores, worth, if_new, Y, _ = made_up(rows=300)
    fusion = Fusion.learn(scores, worth, Y, Y, if_new).with_added(2)
    named = csr_matrix((worth.data, worth.indices, worth.indptr), shape=(300, 32)).tolil()
    named[5, 31] = 0.9
    found = fusion.combine(scores, csr_matrix(named), 40)
    assert found.shape == (300, 32)
    assert found[5, 31] > 0
    assert not found[:, 30].nnz
