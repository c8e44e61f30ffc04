"""Labels without training documents: probabilities learned from hidden labels, or from those of a fold alone."""

import numpy as np
from scipy.sparse import csr_matrix, diags, random, vstack

from tests.fusion.made_up import assert_calibrated, mentions_of
from xmc_tf.fusion import Fusion, hidden_labels
from xmc_tf.fusion.weighted_numbers import first_weights

LABELS, ROWS = 60, 4000
HIDDEN = np.isin(np.arange(LABELS), [3, 11, 20, 31, 42, 53])


def made_up(seed=0, weak=(), factor=1.0):
    """Return scores, mentions and labels; of weak labels, scores say less, and they are right less often."""
    rng = np.random.default_rng(seed)
    scores = random(ROWS, LABELS, 0.2, format="csr", dtype=np.float32, rng=rng)
    precision = random(ROWS, LABELS, 0.2, format="csr", dtype=np.float32, rng=rng)
    by_score = np.where(np.isin(np.arange(LABELS), weak), 1.0, 3.0)
    probability = 1 / (1 + np.exp(3 - by_score * scores.toarray() - 4 * precision.toarray()))
    probability[:, list(weak)] *= factor
    return scores, mentions_of(precision), csr_matrix((rng.random((ROWS, LABELS)) < probability).astype(np.float32))


def learned(scores, mentions, truth, elsewhere, rows=ROWS):
    """Return a fusion that knew other documents, without the hidden labels."""
    Y = csr_matrix(vstack([truth, elsewhere], format="csr"))
    return Fusion.learn(scores, mentions, truth, Y, [HIDDEN], fold_sizes=[rows])


def test_hidden_labels_teach_how_often_labels_with_nothing_but_a_name_are_right():
    hidden = np.flatnonzero(HIDDEN)
    scores, mentions, truth = made_up(weak=hidden)
    fusion = learned(scores, mentions, truth, truth)
    new = [5, 17, 29, 44]
    fusion.log_documents[new] = 0
    scores, mentions, truth = made_up(seed=1, weak=new)
    found = fusion.combine(scores, mentions, LABELS)
    for labels in (new, np.setdiff1d(np.arange(LABELS), new)):
        assert_calibrated(found, truth, (0.0, 0.2, 0.4, 1.0), 0.06, labels, 100)


def test_labels_that_nobody_uses_are_less_probable():
    """In a vocabulary with as many labels without documents, those of the fold alone are as rare, hidden ones not."""
    unused = np.setdiff1d(np.arange(20), np.flatnonzero(HIDDEN))
    used = np.ones(LABELS)
    used[unused[::2]] = 0
    scores, mentions, truth = made_up(weak=unused, factor=0.4)
    truth = csr_matrix(truth @ diags(used))
    truth.eliminate_zeros()
    elsewhere = truth.tolil()
    elsewhere[:, unused] = 0
    fusion = learned(scores, mentions, truth, elsewhere)
    fusion.log_documents[unused] = 0
    scores, mentions, truth = made_up(seed=1, weak=unused, factor=0.4)
    truth = csr_matrix(truth @ diags(used))
    assert_calibrated(fusion.combine(scores, mentions, 10), truth, (0.0, 1.0), 0.03, unused, 500)


def test_few_documents_leave_what_names_are_worth_as_it_was_elsewhere():
    scores, mentions, truth = made_up()
    few = learned(scores[:30], mentions.of_rows(0, 30), truth[:30], truth[30:], 30)
    assert np.allclose(few.new_weights[1:], first_weights()[1:], atol=0.2)


def test_a_tenth_of_the_labels_with_documents_is_hidden_in_each_fold():
    known = np.arange(200) % 2 == 0
    first, second = hidden_labels(known, 0), hidden_labels(known, 1)
    assert first.sum() == second.sum() == 10
    assert not (first & ~known).any()
    assert (first != second).any()
    assert np.array_equal(first, hidden_labels(known, 0))


def test_added_labels_have_places_after_the_others():
    scores, mentions, truth = made_up()
    fusion = learned(scores, mentions, truth, truth).with_added(2)
    precisions = csr_matrix(mentions.precisions(ROWS, LABELS))
    precisions.resize(ROWS, LABELS + 2)
    precisions = precisions.tolil()
    precisions[5, LABELS + 1] = 0.9
    found = fusion.combine(scores, mentions_of(precisions.tocsr()), LABELS)
    assert found.shape == (ROWS, LABELS + 2)
    assert found[5, LABELS + 1] > 0
    assert not found[:, LABELS].nnz
