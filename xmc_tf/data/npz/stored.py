from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.data.npz.reading import read_npz


def open_matrix(path: str | Path) -> csr_matrix | csc_matrix:
    """Map a sparse matrix of a work file, without the checks of `load_matrix` that read everything."""
    arrays = read_npz(path, name="work file")
    kind = csc_matrix if arrays["format"].tobytes() == b"csc" else csr_matrix
    matrix = kind(tuple(int(side) for side in arrays["shape"]), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = arrays["data"], arrays["indices"], arrays["indptr"]
    if kind is csc_matrix:  # rows of CSR may be in order of score
        matrix.has_canonical_format = True
    return matrix
