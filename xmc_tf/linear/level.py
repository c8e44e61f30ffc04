"""One level of rankers: its weights and its part of the tree."""

from dataclasses import dataclass

from scipy.sparse import csc_matrix

from xmc_tf.params import LinearLevelPredParams


@dataclass(frozen=True, eq=False)
class Level:
    """One level of rankers.

    Args:
        weights: (features, then the bias if there is one) × nodes, CSC.
        clusters: nodes × parents, CSC.
        bias: value of the constant feature; 0 for none.
        pred_params: default prediction parameters.
    """

    weights: csc_matrix
    clusters: csc_matrix
    bias: float
    pred_params: LinearLevelPredParams

    @property
    def nr_features(self) -> int:
        """Number of features of a document; the bias is not one of them."""
        return int(self.weights.shape[0]) - (self.bias > 0)

    def __repr__(self) -> str:
        nodes, parents = self.clusters.shape
        return f"Level({nodes:,} nodes of {parents:,} parents, {self.weights.nnz:,} weights)"
