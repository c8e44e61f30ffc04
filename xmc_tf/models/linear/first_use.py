"""Compile the rankers' kernels in a second process during the first training run on a machine.

A process compiles one kernel at a time. While the training run compiles the kernels that read texts, another process
trains tiny models, so that the kernels of rankers, search and trees are already in the cache when they are needed.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.compiled import kernel_folder
from xmc_tf.common.threads import thread_count

_FEW, _MANY = 8, 300  # numbers of labels; the larger exceeds the size of a leaf, so that the labels are clustered


@contextmanager
def compiling_beside(ranks: int = 1) -> Iterator[None]:
    """Compile kernels in a second process during the ``with`` block, if none is cached and there is a second core."""
    # Numba makes the folder when it reads a module with kernels; a compiled one has an index.
    if ranks > 1 or any(kernel_folder().rglob("*.nbi")) or thread_count(-1) < 2:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # the training run repeats what failed here and reports it
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Train tiny models, which compile the kernels in the order in which a training run needs them."""
    from xmc_tf.metrics import evaluate
    from xmc_tf.models.xr_linear import XRLinear

    for labels in (_FEW, _MANY):
        ones = np.eye(labels, dtype=np.float32)
        X, Y = csr_matrix(ones + np.roll(ones, 1, axis=1)), csr_matrix(ones)
        found = XRLinear.train(X, Y, effort="fast", threads=1).predict(X, only_topk=1, threads=1)
        evaluate(Y, found, (1,))


if __name__ == "__main__":
    main()
