"""The second process of a first training run (``first_use.py``): trainings of tiny models, which compile kernels."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.compiled import announce_compiling
from xmc_tf.fusion.logistic import fit_logistic
from xmc_tf.models.linear.first_use import compile_measures, compile_names
from xmc_tf.models.xr_linear import XRLinear

_FEW, _MANY = 8, 300  # numbers of labels; the larger exceeds the size of a leaf, so that the labels are clustered


def main() -> None:
    """Train tiny models, which compile the kernels in the order in which a training run needs them."""
    announce_compiling()
    for labels in (_FEW, _MANY):
        ones = np.eye(labels, dtype=np.float32)
        X, Y = csr_matrix(ones + np.roll(ones, 1, axis=1)), csr_matrix(ones)
        XRLinear.train(X, Y, effort="fast", threads=1).predict(X, only_topk=1, threads=1)
        print(labels, flush=True)
        fit_logistic(np.eye(2), np.eye(2)[0] > 0, np.zeros(2))
        compile_names()  # first: the training run begins with measures
        compile_measures()


if __name__ == "__main__":
    main()
