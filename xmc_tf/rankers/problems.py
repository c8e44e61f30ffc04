"""Training problems of rankers: all levels of a tree, the levels above a cut (matcher), or those below it (ranker).

For a tree with cluster matrices C_0 … C_D and labels Y (all CSC), the training problem of level t has

* labels Y_t = Y_{t+1} C_{t+1}: a document is a positive of a node if it is a positive of one of the node's labels,
* matched documents M_t: Y_{t-1} (tfn), predictions of the upper levels (man), user-supplied negatives (usn), or a sum,
* costs of positives R_t = R_{t+1} C_{t+1}, scaled per document (ranker-only: for labels, not clusters; disable: none).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, spmatrix

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features
from xmc_tf.params import (
    LinearChainPredParams,
    LinearLevelParams,
    PredictionOptions,
    RankerParams,
    RankerPredParams,
    override_levels,
    per_level,
)
from xmc_tf.rankers.kernels.gather import Positives
from xmc_tf.tree import LabelTree
from xmc_tf.tree.label_tree import cluster_matrix, upper_splits


@dataclass(frozen=True, eq=False)
class LevelProblem:
    """The training problem of one level: the labels, matched documents and costs that its rankers are trained with."""

    labels: csc_matrix  # documents × nodes of the level; the values of the entries are ignored
    clusters: csc_matrix  # nodes of the level × parents
    matched: csc_matrix | None  # documents × parents: negatives of a parent's children; None: all documents, one parent
    costs: csc_matrix | None  # cost of each positive, with the entries of ``labels``; None: all are 1
    covered: bool  # whether every positive is among its parent's matched documents
    params: LinearLevelParams

    @property
    def bias(self) -> float:
        """Value of the constant feature; 0 means that there is none."""
        return max(self.params.bias, 0.0)

    @cached_property
    def positives(self) -> Positives:
        indptr, documents = kernel_view(self.labels.indptr, np.int64), kernel_view(self.labels.indices, np.int32)
        costs = np.zeros(0, np.float32) if self.costs is None else kernel_view(self.costs.data, np.float32)
        return Positives(indptr, documents, costs)


def label_chain(Y: spmatrix, chain: Sequence[csc_matrix]) -> list[csc_matrix]:
    """Return the positives of each level as a sorted matrix of documents × nodes without zeros, the top level first."""
    below = sorted_csc(Y)
    levels = [below]
    for clusters in reversed(chain[1:]):
        below = sorted_csc(below @ clusters)
        levels.insert(0, below)
    return levels


def cost_chain(
    Y: spmatrix, R: spmatrix | None, chain: Sequence[csc_matrix], mode: str, norm: str
) -> list[csc_matrix | None]:
    """Return the costs of each level's positives, top level first (None: all 1). Without ``R``, each label costs 1."""
    if mode == "disable" or (mode == "ranker-only" and R is None):
        return [None] * len(chain)
    below = sorted_csc(Y if R is None else R).astype(np.float32, copy=True)
    if R is None:
        below.data[:] = 1.0
    check_relevance(below, sorted_csc(Y))
    costs: list[csc_matrix | None] = [_scaled(below, norm)]
    for clusters in reversed(chain[1:]):
        below = sorted_csc(below @ clusters)
        costs.insert(0, _scaled(below, norm) if mode == "induce" else None)
    return costs


def matched_documents(
    scheme: str, teacher: csc_matrix, predicted: spmatrix | None, user: spmatrix | None
) -> csc_matrix:
    """Return the documents matched to each parent, as a matrix of documents × parents. ``scheme`` is a sum such as
    "tfn+man" of tfn (``teacher``), man (``predicted``) and usn (``user``).
    """
    if scheme == "tfn":  # the most frequent scheme: the pattern of the labels
        pattern = sorted_csc(teacher)
        ones = csc_matrix((np.ones(pattern.nnz, np.float32), pattern.indices, pattern.indptr), pattern.shape)
        ones.has_canonical_format = True
        return ones
    total = csr_matrix(teacher.shape, dtype=np.float32)
    for part in scheme.split("+"):
        matrix = {"tfn": teacher, "man": predicted, "usn": user}[part]
        if matrix is not None:
            ones = matrix.tocsr().astype(np.float32, copy=True)
            ones.data[:] = 1.0
            total = total + ones
    return sorted_csc(total)


def user_matching(user: Mapping[int, spmatrix] | None, chain: Sequence[csc_matrix]) -> list[csc_matrix | None]:
    """Return the user-supplied negatives (documents × parents) of each level, including those derived from the levels
    below. The keys of ``user`` are heights: 0 for the labels, 1 for their clusters, and so on.
    """
    depth = len(chain)
    matrices = {height: matrix for height, matrix in (user or {}).items() if matrix is not None}
    widths = [chain[-1].shape[0], *(clusters.shape[1] for clusters in reversed(chain))]
    for height, matrix in matrices.items():
        if not 0 <= height < len(widths):
            raise InputError(
                f"the user-supplied negatives (usn) are for height {height}, where the tree has no level",
                expected=f"heights from 0 (labels) to {len(widths) - 1} (root)", received=str(height),
            )  # fmt: skip
        if matrix.shape[1] != widths[height]:
            raise InputError(
                f"the user-supplied negatives (usn) for height {height} do not fit the tree",
                expected=f"{widths[height]:,} columns, one per node", received=f"{matrix.shape[1]:,} columns",
            )  # fmt: skip
    if len(rows := {matrix.shape[0] for matrix in matrices.values()}) > 1:
        raise InputError(
            "the user-supplied negatives (usn) differ in number of rows", expected="the same in each matrix",
            received=", ".join(f"{count:,}" for count in sorted(rows)),
        )  # fmt: skip
    levels: list[csc_matrix | None] = [None] * depth
    below = _binary(matrices.get(0))
    for height in range(1, depth + 1):
        here = _binary(matrices.get(height))
        if below is not None:
            marked = sorted_csc(below @ chain[depth - height])
            here = marked if here is None else sorted_csc(marked + here)
        levels[depth - height] = below = here
    return levels


def _binary(matrix: spmatrix | None) -> csc_matrix | None:
    """Return the matrix with all entries set to 1, so that entries cannot cancel out in sums."""
    if matrix is None:
        return None
    ones = sorted_csc(matrix).astype(np.float32, copy=True)
    ones.data[:] = 1
    return ones


def sorted_csc(matrix: spmatrix) -> csc_matrix:
    """Return the matrix as CSC with sorted rows, without duplicates and zeros; copied only if necessary."""
    out = csc_matrix(matrix)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    if len(out.data) and not out.data.all():
        out = out.copy()
        out.eliminate_zeros()
    return out


def _scaled(matrix: csc_matrix, norm: str) -> csc_matrix:
    """Return the matrix with each document's entries divided by their l1 norm, l2 norm or maximum."""
    if norm == "no-norm":
        return matrix
    size = np.zeros(matrix.shape[0], np.float32)
    if norm == "max":
        np.maximum.at(size, matrix.indices, matrix.data)
    else:
        power = 1 if norm == "l1" else 2
        np.add.at(size, matrix.indices, matrix.data**power)
        size **= 1 / power
    size[size == 0] = 1
    scaled = matrix.copy()
    scaled.data /= size[matrix.indices]
    return scaled


def check_relevance(R: csc_matrix, Y: csc_matrix) -> None:
    """Raise an error if the relevance matrix does not fit the labels. Both must be results of :func:`sorted_csc`."""
    if R.shape != Y.shape or not (np.array_equal(R.indptr, Y.indptr) and np.array_equal(R.indices, Y.indices)):
        raise InputError(
            "the relevance matrix does not match the labels",
            expected=f"an entry above zero for each of the {Y.nnz:,} positives of Y ({Y.shape[0]:,} × {Y.shape[1]:,})",
            received=f"{R.nnz:,} entries in a matrix of {R.shape[0]:,} × {R.shape[1]:,}",
        )
    if len(R.data) and R.data.min() < 0:
        raise InputError("the relevance matrix has negative entries", expected="costs above zero")


def whole_chain(chain: Sequence[spmatrix] | None, nr_labels: int, params: RankerParams) -> list[csc_matrix]:
    """Return the cluster matrices from a single root down. Add levels if the first one has several columns."""
    if not chain:
        return [cluster_matrix(np.array([0, nr_labels]))]
    matrices = [sorted_csc(clusters) for clusters in chain]
    for t, clusters in enumerate(matrices):
        last = t + 1 == len(matrices)
        below = nr_labels if last else matrices[t + 1].shape[1]
        if clusters.shape[0] != below:
            raise InputError(
                f"matrix {t} of the cluster chain does not fit {'the labels' if last else 'the next matrix'}",
                expected=f"{below:,} rows", received=f"{clusters.shape[0]:,} × {clusters.shape[1]:,}",
            )  # fmt: skip
    min_codes = 1 if params.shallow else params.min_codes  # 1: no level between them and the root
    return [*map(cluster_matrix, upper_splits(matrices[0].shape[1], params.nr_splits, min_codes)), *matrices]


def trained_levels(params: RankerParams, depth: int) -> slice:
    """Return the levels to train: all, all but the last ``ranker_level`` ("matcher"), or only those ("ranker")."""
    if params.mode == "full-model":
        return slice(0, depth)
    most = depth - 1 if params.mode == "matcher" else depth
    if params.ranker_level > most:
        raise InputError(
            f"the tree has no {params.mode} with ranker_level {params.ranker_level}",
            expected=f"ranker_level from 1 to {most}, for {depth} levels" if most else "a tree of two levels or more",
            received=str(params.ranker_level), fix="lower ranker_level, or train the full model",
        )  # fmt: skip
    cut = depth - params.ranker_level
    return slice(0, cut) if params.mode == "matcher" else slice(cut, depth)


def level_pred_params(
    params: RankerParams, pred_params: RankerPredParams, depth: int, options: PredictionOptions
) -> RankerPredParams:
    """Return the prediction parameters with one block for each trained level; ``options`` override their values."""
    nr_trained = len(range(depth)[trained_levels(params, depth)])
    chain = override_levels(pred_params.hlm_args.model_chain, nr_trained, options)
    return dataclasses.replace(pred_params, hlm_args=LinearChainPredParams(model_chain=chain))


class Levels:
    """The training problems of a tree's levels, the top first. ``params`` also selects the levels to train."""

    def __init__(
        self, Y: spmatrix, chain: Sequence[spmatrix] | None, R: spmatrix | None, params: RankerParams,
        user_negatives: Mapping[int, spmatrix] | None,
    ) -> None:  # fmt: skip
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
        """Number of levels to train."""
        return len(self.clusters)

    def waits(self, t: int) -> bool:
        """Return True if level ``t`` learns from mistakes of the levels above, which must then be trained first."""
        return t > 0 and "man" in self.schemes[t]

    def runs(self) -> list[range]:
        """Return ranges of consecutive levels that can be trained at the same time."""
        starts = [t for t in range(self.depth) if t == 0 or self.waits(t)]
        return [range(a, b) for a, b in zip(starts, [*starts[1:], self.depth], strict=True)]

    def problem(self, t: int, predicted: spmatrix | None = None) -> LevelProblem:
        """Return the training problem of level ``t``. If ``waits(t)``, pass the predictions of the levels above."""
        matched = None
        if self.clusters[t].shape[1] > 1:
            # The first level of a ranker has several parents, but no level above with their labels.
            teacher = self.labels[t - 1] if t > 0 else sorted_csc(self.labels[0] @ self.clusters[0])
            matched = matched_documents(self.schemes[t], teacher, predicted, self.users[t])
        covered = matched is None or "tfn" in self.schemes[t]
        return LevelProblem(self.labels[t], self.clusters[t], matched, self.costs[t], covered, self.params[t])


@dataclass(frozen=True, eq=False)
class RankerData:
    """The documents, labels and trees to train on. ``R`` and ``user_negatives`` are read only on rank 0."""

    X: Features  # the same on all ranks; best memory-mapped from the same files
    Y: spmatrix  # documents × labels; an entry makes the label positive
    trees: Sequence[LabelTree]
    R: spmatrix | None = None  # relevance of the positives, for cost-sensitive training
    user_negatives: Mapping[int, spmatrix] | None = None  # keys: see `user_matching`
