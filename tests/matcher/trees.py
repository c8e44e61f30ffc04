"""Random trees, labels and matched parents for the tests of levels, candidates and batches."""

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from xmc_tf.data import TokenStore
from xmc_tf.tree import LabelTree


def random_tree(seed, depth=3, largest=6, empty=True):
    """Return a random tree of this depth; a node has up to ``largest`` children, and with ``empty`` perhaps none."""
    chance = np.random.default_rng(seed)
    nodes, splits = 1, []
    for _ in range(depth):
        counts = chance.integers(0 if empty else 1, largest + 1, nodes)
        counts[0] = max(counts[0], 1)
        splits.append(np.concatenate([[0], np.cumsum(counts)]))
        nodes = int(splits[-1][-1])
    labels = chance.permutation(nodes)
    for first, last in zip(splits[-1][:-1], splits[-1][1:], strict=True):
        labels[first:last].sort()
    return LabelTree(splits=tuple(splits), labels=labels)


def random_matrix(seed, rows, columns, density):
    """Return a random matrix with entries from 0.5 to 2.5; many rows are empty."""
    chance = np.random.default_rng(seed)
    dense = chance.choice([0.5, 1.0, 1.5, 2.5], (rows, columns)) * (chance.random((rows, columns)) < density)
    return csr_matrix(dense.astype(np.float32))


worlds = st.tuples(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([0.0, 0.05, 0.3, 0.9]))


def store_of(folder, count, seed=0):
    """Return documents of random lengths; all token ids of document ``row`` are ``10 + row``."""
    chance = np.random.default_rng(seed)
    with TokenStore.create(folder) as writer:
        writer.write([np.full(chance.integers(1, 12), 10 + row) for row in range(count)])
    return TokenStore.open(folder)
