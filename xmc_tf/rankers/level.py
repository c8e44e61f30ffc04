"""One level of rankers: its weights and its part of the tree."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.sparse import csc_matrix

from xmc_tf.params import LinearLevelPredParams


@dataclass(frozen=True)
class UnreadWeights:
    """Weights on disk that are read when they are needed; a search in the stored layout does not need them."""

    shape: tuple[int, int]
    nnz: int
    read: Callable[[], csc_matrix]


@dataclass(frozen=True, eq=False)
class Level:
    """One level of rankers."""

    stored: csc_matrix | UnreadWeights  # features, then the bias if there is one, × nodes
    clusters: csc_matrix  # nodes × parents
    bias: float  # value of the constant feature; 0 for none
    pred_params: LinearLevelPredParams  # the default ones

    @cached_property
    def weights(self) -> csc_matrix:
        """The weights, read from disk if they are not in memory yet."""
        return self.stored.read() if isinstance(self.stored, UnreadWeights) else self.stored

    @property
    def nr_features(self) -> int:
        """Number of features of a document, without the bias."""
        return int(self.stored.shape[0]) - (self.bias > 0)

    @property
    def nr_weights(self) -> int:
        return int(self.stored.nnz)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the weights, so that their file is not needed."""
        return type(self), (self.weights, self.clusters, self.bias, self.pred_params)

    def __repr__(self) -> str:
        nodes, parents = self.clusters.shape
        return f"Level({nodes:,} nodes of {parents:,} parents, {self.nr_weights:,} weights)"
