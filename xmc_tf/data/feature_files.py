from collections.abc import Sequence
from pathlib import Path

from scipy.sparse import issparse

from xmc_tf.common.errors import InputError
from xmc_tf.data.checks import check_pair
from xmc_tf.data.features import Features, as_features
from xmc_tf.data.matrices import load_matrix
from xmc_tf.data.scanning import ALONE, Scan


def load_features(paths: Sequence[str | Path], *, scan: Scan = ALONE) -> Features:
    """Read one feature file, or a sparse and a dense one that are concatenated in this order."""
    parts = [load_matrix(path, name="features", scan=scan) for path in paths]
    if len(parts) == 1:
        return as_features(parts[0])
    if len(parts) != 2 or not issparse(parts[0]) or issparse(parts[1]):
        raise InputError(
            f"{', '.join(map(str, paths))} cannot be concatenated",
            expected="one matrix, or a sparse one (.npz) and a dense one (.npy) in this order",
            received=", ".join("sparse" if issparse(part) else "dense" for part in parts),
        )
    check_pair(parts[0], parts[1], str(paths[0]), str(paths[1]))
    return as_features((parts[0], parts[1]))
