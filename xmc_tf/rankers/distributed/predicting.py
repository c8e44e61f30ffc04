"""Predictions of the levels so far for the training documents, each rank for a range of them."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from xmc_tf.data import Features, save_matrix
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.joint_files import remove_from_all_ranks
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced
from xmc_tf.ranks.stacking import stack_rows

DOCUMENTS_A_PIECE = 100_000


def predict_over_ranks(communicator: Communicator, model: XLinear, X: Features, target: Path, threads: int) -> None:
    """Write the result of ``model.predict(X)``; on return, all ranks see the file.

    Args:
        communicator: the ranks.
        model: the levels trained so far, their weights mapped.
        X: the training features, mapped.
        target: the file; if it exists, nothing is done.
        threads: number of threads of this rank.
    """
    if communicator.broadcast(target.exists()):
        return
    entries = np.ones(X.nr_rows) if X.sparse is None else np.diff(X.sparse.indptr) + 1 + X.nr_dense
    first, last = balanced(entries, communicator.size).range(communicator.rank)
    bounds = [*range(first, last, DOCUMENTS_A_PIECE), last] if first < last else [first, last]
    # Documents are predicted one by one, so the result does not depend on the cuts.
    pieces = [target.with_name(f"{target.stem}-{a}-{b}.npz") for a, b in pairwise(bounds)]

    def predict() -> None:
        for piece, (a, b) in zip(pieces, pairwise(bounds), strict=True):
            if not piece.exists():
                save_matrix(piece, model.predict(X.rows(slice(a, b)), threads=threads))

    run_on_all_ranks(communicator, predict)
    stack_rows(communicator, pieces, target)
    remove_from_all_ranks(communicator, pieces)
