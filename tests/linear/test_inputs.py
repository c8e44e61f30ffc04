"""Mapped, read-only and differently typed inputs: same result, no copies of large arrays, no new compilation."""

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix

from tests.linear.cases import dense_rows, label_matrix, random_chain, sparse_rows
from tests.linear.searching import rows_of
from xmc_tf.data import Features, as_features, load_features, load_matrix, save_matrix
from xmc_tf.params import RankerParams
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.rankers.kernels import dual, gather, layout, search
from xmc_tf.rankers.tasks import Instances

KERNELS = (
    gather.gather, dual.solve_dual, layout.measure, layout.fill, search.search, search.score_paths
)  # fmt: skip
X, DENSE, Y, CHAIN = sparse_rows(50), dense_rows(50), label_matrix(50, 30), random_chain(30, [4])


def versions():
    """Return the number of compiled versions of each kernel."""
    return [len(kernel.signatures) for kernel in KERNELS]


def answer(features, labels=Y, chain=CHAIN):
    model = train_rankers(features, labels, chain, threads=2)
    weights = [level.weights.toarray().tobytes() for level in model.levels]
    selected = model.predict_selected(features, csr_matrix(labels))
    return weights, rows_of(model.predict(features, threads=2)), rows_of(selected)


def read_only(matrix):
    for array in (matrix.data, matrix.indices, matrix.indptr) if hasattr(matrix, "indptr") else (matrix,):
        array.flags.writeable = False
    return matrix


def with_int64(matrix):
    out = matrix.copy()
    out.indices, out.indptr = out.indices.astype(np.int64), out.indptr.astype(np.int64)
    return out


@pytest.fixture(scope="module")
def expected():
    return answer(Features(X, DENSE))


@pytest.mark.parametrize("kind", ["mapped", "compressed", "read-only", "int64", "float64", "csc", "fortran"])
def test_same_answer_and_same_kernels(kind, expected, tmp_path):
    before = versions()
    if kind in ("mapped", "compressed"):
        import scipy.sparse as sp

        save = save_matrix if kind == "mapped" else sp.save_npz
        save(tmp_path / "X.npz", X)
        save(tmp_path / "Y.npz", Y)
        save_matrix(tmp_path / "E.npy", DENSE)
        given = answer(load_features([tmp_path / "X.npz", tmp_path / "E.npy"]), load_matrix(tmp_path / "Y.npz"))
    elif kind == "read-only":
        chain = [read_only(clusters.copy()) for clusters in CHAIN]
        given = answer(Features(read_only(X.copy()), read_only(DENSE.copy())), read_only(Y.copy()), chain)
    elif kind == "int64":
        given = answer(Features(with_int64(X), DENSE), with_int64(Y), [with_int64(clusters) for clusters in CHAIN])
    elif kind == "float64":
        chain = [clusters.astype(bool) for clusters in CHAIN]
        given = answer(as_features((X.astype(np.float64), DENSE.astype(np.float64))), Y.astype(np.int64), chain)
    elif kind == "csc":
        given = answer(as_features((csc_matrix(X), DENSE)), Y.tocsr())
    else:
        given = answer(as_features((X, np.asfortranarray(DENSE))))
    assert given == expected
    assert versions() == before


def test_mapped_features_are_not_copied(tmp_path):
    save_matrix(tmp_path / "X.npz", X)
    save_matrix(tmp_path / "E.npy", DENSE)
    features = load_features([tmp_path / "X.npz", tmp_path / "E.npy"])
    instances = Instances(features, RankerParams())
    assert np.shares_memory(instances.data, features.sparse.data)
    assert np.shares_memory(instances.indices, features.sparse.indices)
    assert np.shares_memory(instances.dense, features.dense)
    assert not features.sparse.data.flags.writeable


def test_the_users_arrays_are_not_changed():
    given = [X.copy(), DENSE.copy(), Y.copy(), *[clusters.copy() for clusters in CHAIN]]
    answer(Features(given[0], given[1]), given[2], given[3:])
    for matrix, original in zip(given, [X, DENSE, Y, *CHAIN], strict=True):
        if isinstance(matrix, np.ndarray):
            np.testing.assert_array_equal(matrix, original)
        else:
            np.testing.assert_array_equal(matrix.data, original.data)
            np.testing.assert_array_equal(matrix.indices, original.indices)
