"""The levels of one training: their labels, costs, clusters and parameters, made once, problem by problem."""

from collections.abc import Mapping, Sequence

from scipy.sparse import spmatrix

from xmc_tf.linear.modes import trained_levels, whole_chain
from xmc_tf.linear.problems import (
    LevelProblem,
    cost_chain,
    label_chain,
    matched_instances,
    sorted_csc,
    user_matching,
)
from xmc_tf.params import LinearLevelParams, RankerParams, per_level


class Levels:
    """What the levels of a tree are trained on, the top first.

    Args:
        Y: (documents × labels).
        chain: cluster matrices of the tree, as ``train_rankers`` takes them.
        R: relevance of the positives, or None.
        params: how the levels are trained, and which of them.
        user_negatives: see :func:`~xmc_tf.linear.problems.user_matching`.
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
        """How many levels are trained."""
        return len(self.clusters)

    def waits(self, t: int) -> bool:
        """Whether level ``t`` learns from the mistakes of those above, which have to be trained first."""
        return t > 0 and "man" in self.schemes[t]

    def together(self) -> list[range]:
        """The levels in runs that can be trained at the same time."""
        starts = [t for t in range(self.depth) if t == 0 or self.waits(t)]
        return [range(a, b) for a, b in zip(starts, [*starts[1:], self.depth], strict=True)]

    def problem(self, t: int, predicted: spmatrix | None = None) -> LevelProblem:
        """What level ``t`` is trained on.

        Args:
            t: the level.
            predicted: what the levels above it predict, where it waits for them.
        """
        matched = None
        if self.clusters[t].shape[1] > 1:
            # The first level of a ranker has several parents, and no labels of theirs yet.
            teacher = self.labels[t - 1] if t > 0 else sorted_csc(self.labels[0] @ self.clusters[0])
            matched = matched_instances(self.schemes[t], teacher, predicted, self.users[t])
        covered = matched is None or "tfn" in self.schemes[t]
        return LevelProblem(self.labels[t], self.clusters[t], matched, self.costs[t], covered, self.params[t])
