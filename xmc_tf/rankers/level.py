"""One level of rankers: its weights and its part of the tree."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.sparse import csc_matrix

from xmc_tf.params import LinearLevelPredParams


@dataclass(frozen=True)
class UnreadWeights:
    """Weights on disk that are read only when they are needed. A search in the stored layout does not need them."""

    shape: tuple[int, int]
    nnz: int
    read: Callable[[], csc_matrix]


@dataclass(frozen=True, eq=False)
class Level:
    """The rankers of one level of a tree, and the assignment of its nodes to parents."""

    stored: csc_matrix | UnreadWeights  # features, then the bias if there is one, × nodes
    clusters: csc_matrix  # nodes × parents
    bias: float  # value of the constant feature; 0 for none
    pred_params: LinearLevelPredParams  # the default ones

    @cached_property
    def weights(self) -> csc_matrix:
        """The weights of the level, read from disk on first use."""
        return self.stored.read() if isinstance(self.stored, UnreadWeights) else self.stored

    @property
    def nr_features(self) -> int:
        """Number of features of a document, excluding the bias."""
        return int(self.stored.shape[0]) - (self.bias > 0)

    @property
    def nr_weights(self) -> int:
        return int(self.stored.nnz)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the weights themselves, so that their file is not needed for loading."""
        return type(self), (self.weights, self.clusters, self.bias, self.pred_params)

    def __repr__(self) -> str:
        nodes, parents = self.clusters.shape
        return f"Level({nodes:,} nodes of {parents:,} parents, {self.nr_weights:,} weights)"
