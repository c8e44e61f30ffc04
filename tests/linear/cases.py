"""Small training sets, trees and models for the tests of the rankers."""

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix, hstack, identity

from xmc_tf.data import Features, as_features
from xmc_tf.params import LinearLevelParams, LinearLevelPredParams, RankerParams, RankerPredParams
from xmc_tf.rankers import Level, XLinear
from xmc_tf.rankers.fit import train_rankers


def sparse_rows(rows, columns=30, density=0.2, seed=0):
    """Return random rows of unit length; some features are much more frequent than others, the third row is empty."""
    rng = np.random.default_rng(seed)
    share = np.minimum(1.0, density * columns / np.arange(1, columns + 1) ** 0.7)
    full = np.where(rng.random((rows, columns)) < share, rng.normal(size=(rows, columns)), 0)
    full[2:3] = 0
    full /= np.maximum(np.linalg.norm(full, axis=1, keepdims=True), 1e-9)
    return csr_matrix(full.astype(np.float32))


def with_private(X, seed=0):
    """Return the rows with additional features that only one row has."""
    values = np.random.default_rng(seed).random(X.shape[0]).astype(np.float32)
    own = identity(X.shape[0], np.float32, "csr")[:, ::2].multiply(values[:, None])
    both = csr_matrix(hstack([X, own]), dtype=np.float32)
    both.sort_indices()
    both.eliminate_zeros()
    return both


def dense_rows(rows, columns=7, seed=0):
    full = np.random.default_rng(seed).normal(size=(rows, columns))
    return (full / np.linalg.norm(full, axis=1, keepdims=True)).astype(np.float32)


def features(kind, rows, seed=0):
    """Return features of one of four kinds."""
    X = sparse_rows(rows, seed=seed)
    return {
        "sparse": lambda: as_features(X),
        "private": lambda: as_features(with_private(X, seed)),
        "dense": lambda: as_features(dense_rows(rows, seed=seed)),
        "both": lambda: Features(with_private(X, seed), dense_rows(rows, 6, seed)),
    }[kind]()


def full_matrix(X):
    """Return features as one dense matrix in double precision."""
    parts = [] if X.sparse is None else [X.sparse.toarray()]
    return np.hstack(parts + ([] if X.dense is None else [X.dense])).astype(np.float64)


def label_matrix(rows, labels, per_row=2.0, seed=0):
    """Return random labels; the first has no positives, the second (of three or more) no negatives."""
    rng = np.random.default_rng(seed + 1)
    full = rng.random((rows, labels)) < min(0.5, per_row / labels)
    full[:, 0] = labels == 1
    if labels > 2:
        full[:, 1] = True
        full[np.arange(rows), rng.integers(2, labels, rows)] = True
    return csc_matrix(full.astype(np.float32))


def random_chain(nr_labels, widths, seed=0):
    """Return random cluster matrices from the root down; the children's order is random, and nodes may have none."""
    rng = np.random.default_rng(seed + 2)
    chain, above = [], 1
    for width in [*widths, nr_labels]:
        parents = rng.integers(0, above, width)
        parents[: min(above, width)] = rng.permutation(above)[: min(above, width)]
        ones = np.ones(width, np.float32)
        chain.append(csc_matrix((ones, (np.arange(width), rng.permutation(parents))), shape=(width, above)))
        above = width
    return chain


def ranker_params(schemes="tfn", rel_mode="disable", rel_norm="no-norm", mode="full-model", ranker_level=1, **level):
    """Return ranker parameters; further keywords are for every level."""
    return RankerParams.from_json({
        "mode": mode,
        "ranker_level": ranker_level,
        "rel_mode": rel_mode,
        "rel_norm": rel_norm,
        "hlm_args": {
            "neg_mining_chain": schemes,
            "model_chain": LinearLevelParams(**level).to_json(),
        },
    })  # fmt: skip


def pred_params(post_processor="l3-hinge", only_topk=20):
    return RankerPredParams.from_json(
        {"hlm_args": {"model_chain": {"only_topk": only_topk, "post_processor": post_processor}}}
    )


def small_model(kind="both", rows=40, labels=23, widths=(3, 7), seed=0, **level):
    """Return a trained model over a random tree, with its features and labels."""
    X, Y, chain = features(kind, rows, seed), label_matrix(rows, labels, seed=seed), random_chain(labels, widths, seed)
    return train_rankers(X, Y, chain, params=ranker_params(**level), threads=1), X, Y


def random_model(chain, nr_sparse, nr_dense=0, bias=1.0, density=0.3, posts="l3-hinge", seed=0):
    """Return a model of random weights, some of them for features that no sibling has."""
    rng = np.random.default_rng(seed + 3)
    posts = [posts] * len(chain) if isinstance(posts, str) else posts
    levels = []
    for clusters, post in zip(chain, posts, strict=True):
        shape = (nr_sparse + nr_dense + (bias > 0), clusters.shape[0])
        full = np.where(rng.random(shape) < density, rng.normal(size=shape), 0)
        levels.append(Level(csc_matrix(full.astype(np.float32)), clusters, bias, LinearLevelPredParams(20, post)))
    return XLinear(levels, nr_sparse, nr_dense)


@st.composite
def chains(draw, max_labels=40):
    """Random trees of depth 1 to 4."""
    labels = draw(st.integers(1, max_labels))
    widths = draw(st.lists(st.integers(1, 9), max_size=3))
    return random_chain(labels, widths, draw(st.integers(0, 2**20)))
