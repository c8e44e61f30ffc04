"""Texts whose words tell their labels, in all the forms that a classifier takes."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.sklearn import XMCClassifier

TOPICS = ["forest", "garden", "harbour", "kitchen", "library", "station"]


def topics(count, seed=0):
    """The topics of each document: one or two."""
    draw = np.random.default_rng(seed)
    return [sorted(draw.choice(TOPICS, draw.integers(1, 3), replace=False).tolist()) for _ in range(count)]


def texts_of(lists, seed=0):
    """Texts with the words of their topics among others."""
    draw = np.random.default_rng(seed)
    return [" ".join([*draw.choice([f"word{i}" for i in range(30)], 5), *names, *names]) for names in lists]


def indicators(lists):
    """The matrix of documents × topics."""
    return csr_matrix([[int(topic in names) for topic in TOPICS] for names in lists])


def features(lists, seed=0):
    """Features of which the first tell the topics."""
    draw = np.random.default_rng(seed)
    return np.hstack([3 * indicators(lists).toarray(), draw.random((len(lists), 4))]).astype(np.float32)


def small(**params):
    """A classifier that keeps the predicted labels whose score is high."""
    return XMCClassifier(max_labels=3, threshold=0.3, n_jobs=1, **params)


LISTS, HELD_OUT = topics(120), topics(40, seed=1)
TEXTS, TEST_TEXTS = texts_of(LISTS), texts_of(HELD_OUT, seed=1)
X, X_TEST = features(LISTS), features(HELD_OUT, seed=1)
ONE, TEST_ONE = [names[0] for names in LISTS], [names[0] for names in HELD_OUT]
