"""The data of a training of rankers, and its levels: their labels, costs, clusters and parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.sparse import spmatrix

from xmc_tf.data import Features
from xmc_tf.params import LinearLevelParams, RankerParams, per_level
from xmc_tf.rankers.modes import trained_levels, whole_chain
from xmc_tf.rankers.problems import (
    LevelProblem,
    cost_chain,
    label_chain,
    matched_documents,
    sorted_csc,
    user_matching,
)
from xmc_tf.tree import LabelTree


class Levels:
    """The training problems of a tree's levels, the top first.

    Args:
        Y: (documents × labels).
        chain: cluster matrices of the tree, as in ``train_rankers``.
        R: relevance of the positives, or None.
        params: training parameters; they also choose the levels that are trained.
        user_negatives: see :func:`~xmc_tf.rankers.problems.user_matching`.
    """

    def __init__(
        self,
        Y: spmatrix,
        chain: Sequence[spmatrix] | None,
        R: spmatrix | None,
        params: RankerParams,
        user_negatives: Mapping[int, spmatrix] | None,
    ) -> None:
        tree = whole_chain(chain, Y.shape[1], params)
        part = trained_levels(params, len(tree))
        self.labels = label_chain(Y, tree)[part]
        self.costs = cost_chain(Y, R, tree, params.rel_mode, params.rel_norm)[part]
        self.users = user_matching(user_negatives, tree)[part]
        self.clusters = tree[part]
        self.params: Sequence[LinearLevelParams] = per_level(params.hlm_args.model_chain, self.depth, "model_chain")
        self.schemes: Sequence[str] = per_level(params.hlm_args.neg_mining_chain, self.depth, "neg_mining_chain")

    @property
    def depth(self) -> int:
        """Number of levels that are trained."""
        return len(self.clusters)

    def waits(self, t: int) -> bool:
        """Return whether level ``t`` learns from mistakes of the levels above, which are then trained first."""
        return t > 0 and "man" in self.schemes[t]

    def runs(self) -> list[range]:
        """Return the levels as runs of neighbours that can be trained at the same time."""
        starts = [t for t in range(self.depth) if t == 0 or self.waits(t)]
        return [range(a, b) for a, b in zip(starts, [*starts[1:], self.depth], strict=True)]

    def problem(self, t: int, predicted: spmatrix | None = None) -> LevelProblem:
        """Return the training problem of level ``t``.

        Args:
            t: the level.
            predicted: predictions of the levels above, if level ``t`` waits for them.
        """
        matched = None
        if self.clusters[t].shape[1] > 1:
            # The first level of a ranker has several parents, but no level above with their labels.
            teacher = self.labels[t - 1] if t > 0 else sorted_csc(self.labels[0] @ self.clusters[0])
            matched = matched_documents(self.schemes[t], teacher, predicted, self.users[t])
        covered = matched is None or "tfn" in self.schemes[t]
        return LevelProblem(self.labels[t], self.clusters[t], matched, self.costs[t], covered, self.params[t])


@dataclass(frozen=True, eq=False)
class RankerData:
    """The documents, labels and trees that rankers are trained on.

    Args:
        X: documents × features, the same on all ranks; best memory-mapped from the same files.
        Y: documents × labels; an entry makes the label positive.
        trees: trees over the labels.
        R: relevance of the positives, for cost-sensitive training. Only rank 0's is read.
        user_negatives: see :func:`~xmc_tf.rankers.problems.user_matching`. Only rank 0's are read.
    """

    X: Features
    Y: spmatrix
    trees: Sequence[LabelTree]
    R: spmatrix | None = None
    user_negatives: Mapping[int, spmatrix] | None = None

    def levels(self, params: RankerParams) -> list[Levels]:
        """Return the training problems of the levels of each tree."""
        return [Levels(self.Y, tree.to_chain(), self.R, params, self.user_negatives) for tree in self.trees]
