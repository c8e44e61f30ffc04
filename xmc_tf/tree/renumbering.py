"""Conversion of a chain of cluster matrices to contiguous children, with checks."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_matrix, issparse, sparray, spmatrix

from xmc_tf.common.errors import InputError


def read_chain(chain: Sequence[spmatrix | sparray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Number the nodes of a chain so that the children of each node are neighbours.

    Args:
        chain: matrices child × parent, from the root down.

    Returns:
        For each level above the labels, the bounds of its nodes' children; and for each level including the labels, the
        original number of each node.
    """
    matrices = [_as_csc(matrix, t) for t, matrix in enumerate(chain)]
    _check_shapes(matrices)
    splits: list[np.ndarray] = []
    orders = [np.zeros(1, np.int64)]
    for t, matrix in enumerate(matrices):
        _check_parents(matrix, t, is_last=t == len(matrices) - 1)
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices
        counts = np.diff(indptr)[orders[-1]]
        splits.append(np.concatenate(([0], np.cumsum(counts))))
        starts = np.repeat(indptr[:-1][orders[-1]] - splits[-1][:-1], counts)
        orders.append(indices[starts + np.arange(starts.size)].astype(np.int64))
    return splits, orders


def _as_csc(matrix: spmatrix | sparray, t: int) -> csc_matrix:
    """Return a copy as CSC with sorted rows and without explicit zeros."""
    if not issparse(matrix):
        raise InputError(
            f"matrix {t} of the cluster chain is not sparse",
            expected="a scipy sparse matrix, child × parent",
            received=type(matrix).__name__,
        )
    ours = csc_matrix(matrix, copy=True)
    ours.sum_duplicates()
    ours.eliminate_zeros()
    return ours


def _check_shapes(matrices: list[csc_matrix]) -> None:
    if not matrices:
        raise InputError("the cluster chain is empty", expected="at least one matrix", received="none")
    if matrices[0].shape[1] != 1:
        raise InputError(
            "the cluster chain does not start with one root",
            expected="a first matrix of one column",
            received=f"{matrices[0].shape[1]} columns",
            fix="give a single matrix of labels × clusters as a file; the levels above are then added",
        )
    for t in range(1, len(matrices)):
        if matrices[t].shape[1] != matrices[t - 1].shape[0]:
            raise InputError(
                f"matrices {t - 1} and {t} of the cluster chain do not fit together",
                expected=f"{matrices[t - 1].shape[0]} columns in matrix {t}, one per row of matrix {t - 1}",
                received=f"{matrices[t].shape[1]} columns",
                fix="the matrices belong to different trees: copy the folder again",
            )


def _check_parents(matrix: csc_matrix, t: int, *, is_last: bool) -> None:
    parents = np.bincount(matrix.indices, minlength=matrix.shape[0])
    wrong = np.flatnonzero(parents != 1)
    if not wrong.size:
        return
    child = int(wrong[0])
    columns = csc_matrix(matrix).tocsr()[child].indices
    name = f"label {child}" if is_last else f"node {child} of level {t + 1}"
    raise InputError(
        f"{name} has {'no parent' if not columns.size else f'{columns.size} parents'} in matrix {t} of the"
        " cluster chain",
        expected="exactly one parent for each node",
        received=f"parents {columns[:8].tolist()}" if columns.size else "an empty row",
        fix="put each label into exactly one cluster",
    )
