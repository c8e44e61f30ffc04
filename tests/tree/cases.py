"""Small label embeddings and trees for the tests, and hypothesis's strategies for them."""

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_sparse

from xmc_tf.data.features import Features
from xmc_tf.tree import LabelTree


def sparse(rows, columns=40, density=0.15, seed=0):
    """Return random rows with sorted indices; with that density some are empty."""
    rng = np.random.default_rng(seed)
    matrix = csr_matrix(random_sparse(rows, columns, density, "csr", np.float32, rng))
    matrix.sort_indices()
    return matrix


def dense(rows, columns=6, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def embeddings(kind, rows, seed=0):
    """Embeddings of one of the three kinds."""
    if kind == "sparse":
        return sparse(rows, seed=seed)
    return dense(rows, seed=seed) if kind == "dense" else Features(sparse(rows, seed=seed), dense(rows, seed=seed))


@st.composite
def trees(draw, max_labels=40):
    """Any valid tree: one to four levels of splits, clusters without children included."""
    nr_labels = draw(st.integers(1, max_labels))
    sizes = draw(st.lists(st.integers(1, 8), max_size=3))
    levels = [1, *sizes]
    splits = []
    for nodes, below in zip(levels, [*levels[1:], nr_labels], strict=True):
        inner = draw(st.lists(st.integers(0, below), min_size=nodes - 1, max_size=nodes - 1))
        splits.append(np.array([0, *sorted(inner), below]))
    labels = np.array(draw(st.permutations(range(nr_labels))))
    for low, high in zip(splits[-1][:-1], splits[-1][1:], strict=True):
        labels[low:high].sort()
    return LabelTree(splits=tuple(splits), labels=labels)
