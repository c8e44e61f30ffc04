"""Documents that are alike, compared with a plain calculation in Python."""

import numpy as np
import pytest

from tests.fusion.made_up import documents
from xmc_tf.audit.kernels import LEAST_SIMILARITY, SHARPNESS
from xmc_tf.audit.neighbours import ALIKE, alike_documents
from xmc_tf.audit.pairs import LabelPairs, random_pairs


@pytest.fixture(scope="module")
def made_up():
    X, Y = documents(count=150, labels=20)
    pairs = LabelPairs.of(Y, random_pairs(Y, 1.0, 0))
    return X, Y, pairs, pairs.values(Y) > 0


def _cosine(a, b):
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / lengths if lengths > 1e-6 else 0.0


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


def test_evidence_is_that_of_the_documents_without_the_label_in_question(made_up):
    X, Y, pairs, has = made_up
    _, evidence = alike_documents(X, Y, pairs, has, most=100)  # so that no document is left out
    words, labels = X.toarray().astype(float), Y.toarray().astype(float)
    weighted = labels * np.log(len(labels) / labels.sum(axis=0))
    for pair in range(0, len(has), 7):
        row, label = pairs.rows[pair], pairs.labels[pair]
        hidden = weighted.copy()
        hidden[:, label] = 0.0
        others = np.delete(np.arange(len(labels)), row)
        # Documents without the label keep all their labels, and so does this one beside them if it does not have it.
        by_words = np.array([_cosine(words[row], words[one]) for one in others])
        by_labels = np.array([_cosine(hidden[row], hidden[one]) for one in others])
        alike, member = by_words + by_labels, labels[others, label] > 0
        best = np.sort(np.concatenate([alike[member], [0.0, 0.0]]))[::-1]
        votes = [np.exp(one * alike) - 1.0 for one in SHARPNESS]
        expected = [
            best[0], best[1], by_labels[member].max(initial=0.0), by_words[member].max(initial=0.0),
            best[0] - alike[~member].max(), *(one[member].sum() / (one.sum() + 1.0) for one in votes),
        ]  # fmt: skip
        np.testing.assert_allclose(evidence[pair], expected, atol=1e-5, err_msg=str(ALIKE))
