"""What the levels so far predict for the training documents, each rank for a range of them."""

from pathlib import Path

import numpy as np

from xmc_tf.collective.communicator import Communicator
from xmc_tf.collective.partition import balanced
from xmc_tf.collective.together import together
from xmc_tf.data import Features, save_matrix
from xmc_tf.data.stored import stack_rows
from xmc_tf.linear.distributed.account import Account
from xmc_tf.linear.xlinear import XLinear


def predict_over_ranks(communicator: Communicator, model: XLinear, X: Features, target: Path, account: Account) -> None:
    """Writes what ``model.predict(X)`` gives; the file is there on return, on all ranks.

    Args:
        communicator: the ranks.
        model: the levels trained so far, their weights mapped.
        X: the training features, mapped.
        target: the file; one that is there already is taken as it is.
        account: receives the work.
    """
    if communicator.broadcast(target.exists()):
        return
    entries = np.ones(X.nr_rows) if X.sparse is None else np.diff(X.sparse.indptr) + 1 + X.nr_dense
    first, last = balanced(entries, communicator.size).range(communicator.rank)
    part = target.with_name(f"{target.stem}-{communicator.rank}.npz")

    def predict() -> None:
        with account.busy(1.0):
            save_matrix(part, model.predict(X.rows(slice(first, last)), threads=account.threads))

    together(communicator, predict)
    parts = [target.with_name(f"{target.stem}-{rank}.npz") for rank in range(communicator.size)]
    together(communicator, lambda: stack_rows(parts, target) if communicator.rank == 0 else None)
    together(communicator, part.unlink)
