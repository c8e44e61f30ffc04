"""The training problem of each level: labels, the documents matched to each cluster, and costs of positives.

Data flow, for a tree with cluster matrices C_0 … C_D and labels Y (all CSC):

* labels of level t:     Y_t = Y_{t+1} C_{t+1}         a node is positive if one of its labels is
* matched documents:     M_t = tfn: Y_{t-1}, man: the upper levels' predictions, usn: the user's, or a sum of them
* costs of positives:    R_t = R_{t+1} C_{t+1}, scaled per document; none if relevance is disabled
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.kernels import kernel_view
from xmc_tf.params import LinearLevelParams
from xmc_tf.rankers.kernels.gather import Positives


@dataclass(frozen=True, eq=False)
class LevelProblem:
    """The training problem of one level of rankers."""

    labels: csc_matrix  # documents × nodes of the level; the values of the entries are ignored
    clusters: csc_matrix  # nodes of the level × parents
    matched: csc_matrix | None  # documents × parents: negatives of a parent's children; None: all documents, one parent
    costs: csc_matrix | None  # cost of each positive, with the entries of ``labels``; None: all are 1
    covered: bool  # whether every positive is among its parent's matched documents
    params: LinearLevelParams

    @property
    def bias(self) -> float:
        """Value of the constant feature; 0 for none."""
        return max(self.params.bias, 0.0)

    @cached_property
    def positives(self) -> Positives:
        indptr, documents = kernel_view(self.labels.indptr, np.int64), kernel_view(self.labels.indices, np.int32)
        costs = np.zeros(0, np.float32) if self.costs is None else kernel_view(self.costs.data, np.float32)
        return Positives(indptr, documents, costs)


def label_chain(Y: spmatrix, chain: Sequence[csc_matrix]) -> list[csc_matrix]:
    """Return the labels of every level of the tree, the top first, sorted and without zeros."""
    below = sorted_csc(Y)
    levels = [below]
    for clusters in reversed(chain[1:]):
        below = sorted_csc(below @ clusters)
        levels.insert(0, below)
    return levels


def cost_chain(
    Y: spmatrix, R: spmatrix | None, chain: Sequence[csc_matrix], mode: str, norm: str
) -> list[csc_matrix | None]:
    """Return the costs of every level's positives by ``rel_mode`` and ``rel_norm``; without ``R``, all count as 1."""
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
    """Return the documents matched to each parent by a sum of tfn (``teacher``), man (``predicted``) and usn."""
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
    """Return the user's negatives (by number of levels above the labels) for each level, with those from below."""
    depth = len(chain)
    matrices = {height: matrix for height, matrix in (user or {}).items() if matrix is not None}
    widths = [chain[-1].shape[0], *(clusters.shape[1] for clusters in reversed(chain))]
    for height, matrix in matrices.items():
        if not 0 <= height < len(widths):
            raise InputError(
                f"the user's negatives are for {height} levels above the labels, where there is none",
                expected=f"0 to {len(widths) - 1}", received=str(height),
            )  # fmt: skip
        if matrix.shape[1] != widths[height]:
            raise InputError(
                f"the user's negatives {height} levels above the labels do not fit the tree",
                expected=f"{widths[height]:,} columns", received=f"{matrix.shape[1]:,} columns",
            )  # fmt: skip
    if len(rows := {matrix.shape[0] for matrix in matrices.values()}) > 1:
        raise InputError(
            "the user's negatives are not of the same documents", expected="as many rows in each matrix",
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
    """Return 1 for each entry of the matrix, so that sums cannot cancel."""
    if matrix is None:
        return None
    ones = sorted_csc(matrix).astype(np.float32, copy=True)
    ones.data[:] = 1
    return ones


def sorted_csc(matrix: spmatrix) -> csc_matrix:
    """Return the matrix as CSC with sorted rows, without duplicates and zeros; copied only if it has to change."""
    out = csc_matrix(matrix)
    if not out.has_canonical_format:
        out = out.copy()
        out.sum_duplicates()
    if len(out.data) and not out.data.all():
        out = out.copy()
        out.eliminate_zeros()
    return out


def _scaled(matrix: csc_matrix, norm: str) -> csc_matrix:
    """Return each document's entries divided by their l1 norm, l2 norm or maximum."""
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
    """Raise an error if relevance does not fit the labels; both are results of :func:`sorted_csc`."""
    if R.shape != Y.shape or not (np.array_equal(R.indptr, Y.indptr) and np.array_equal(R.indices, Y.indices)):
        raise InputError(
            "the relevance matrix does not belong to the labels",
            expected=f"an entry above zero for each of the {Y.nnz:,} positives of Y ({Y.shape[0]:,} × {Y.shape[1]:,})",
            received=f"{R.nnz:,} entries in a matrix of {R.shape[0]:,} × {R.shape[1]:,}",
        )
    if len(R.data) and R.data.min() < 0:
        raise InputError("the relevance matrix has negative entries", expected="costs above zero")
