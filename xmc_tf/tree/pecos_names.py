"""The two names with which scripts of PECOS build label trees; `label_embedding` and `build_tree` do the work."""

from typing import Any

import numpy as np
from scipy.sparse import csc_matrix, sparray, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import Matrix, label_embedding

_KMEANS = "hierarchicalkmeans"


class LabelEmbeddingFactory:
    """Label embeddings, with the signature of PECOS."""

    @staticmethod
    def create(
        Y: spmatrix | sparray, X: spmatrix | sparray | np.ndarray | None = None, method: str = "pifa", threads: int = -1
    ) -> Matrix:
        """Return a matrix of labels × features with one embedding per label.

        Args:
            Y: matrix of documents × labels.
            X: matrix of documents × features; "pii" needs none.
            method: "pifa", the sum of the features of a label's documents, or "pii", the documents themselves.
            threads: number of threads, which does not change the result; -1: one per core.
        """
        return label_embedding(method, X, Y, threads)


class Indexer:
    """Label trees, with the signature of PECOS."""

    @staticmethod
    def gen(feat_mat: spmatrix | sparray | np.ndarray, indexer_type: str = _KMEANS, **params: Any) -> list[csc_matrix]:
        """Return the cluster matrices of a label tree, from the top level down to the labels.

        Example:
            >>> Z = LabelEmbeddingFactory.create(Y, method="pii")
            >>> C = Indexer.gen(Z, nr_splits=4, max_leaf_size=2)
            >>> tree = LabelTree.from_chain(C)

        Args:
            feat_mat: label embeddings, one row per label.
            indexer_type: "hierarchicalkmeans".
            **params: the fields of `HierarchicalKMeansParams`, such as ``nr_splits`` and ``max_leaf_size``.
        """
        if indexer_type.lower() != _KMEANS:
            raise InputError(
                "indexer_type is unknown", expected=f'"{_KMEANS}"', received=repr(indexer_type), fix="leave it out"
            )
        return build_tree(feat_mat, HierarchicalKMeansParams.from_json(params)).to_chain()
