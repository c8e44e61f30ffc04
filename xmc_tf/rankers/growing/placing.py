"""The place of further labels in a label tree."""

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.tree import LabelTree


def place_labels(tree: LabelTree, X: csr_matrix, Y: csr_matrix, embeddings: csr_matrix) -> LabelTree:
    """Return a tree with further labels, each in the leaf cluster with the most similar documents.

    The similarity of a label to a cluster is the mean over the cluster's documents. Labels without an embedding are
    spread evenly.

    Args:
        tree: the label tree; its clusters stay as they are, and no level is added.
        X: features of the documents.
        Y: labels of the documents: documents × labels of ``tree``.
        embeddings: embeddings of the further labels, labels × features; their numbers follow those of ``tree``.
    """
    leaves, count = tree.splits[-1], embeddings.shape[0]
    cluster_of = np.repeat(np.arange(leaves.size - 1), np.diff(leaves))
    members = csc_matrix(
        (np.ones(tree.nr_labels, np.float32), tree.labels, leaves), shape=(tree.nr_labels, leaves.size - 1)
    )
    matched = csr_matrix(Y @ members)
    matched.data[:] = 1.0
    documents = np.maximum(np.bincount(matched.indices, minlength=leaves.size - 1), 1)
    similarity = np.asarray((matched.T @ (X @ embeddings.T.tocsc())).todense()).T / documents
    chosen = similarity.argmax(axis=1)
    empty = np.diff(embeddings.indptr) == 0
    chosen[empty] = np.arange(int(empty.sum())) % (leaves.size - 1)
    labels = np.concatenate([tree.labels, np.arange(tree.nr_labels, tree.nr_labels + count)])
    return regrouped(tree, labels, np.concatenate([cluster_of, chosen]))


def regrouped(tree: LabelTree, labels: np.ndarray, clusters: np.ndarray) -> LabelTree:
    """Return a tree with the same clusters, but other labels in them.

    Args:
        tree: the tree.
        labels: numbers of the labels, each of 0 … n - 1 once.
        clusters: the leaf cluster of each.
    """
    order = np.lexsort((labels, clusters))
    splits = np.searchsorted(clusters[order], np.arange(tree.splits[-1].size))
    return LabelTree((*tree.splits[:-1], splits), labels[order], tree.node_order)
