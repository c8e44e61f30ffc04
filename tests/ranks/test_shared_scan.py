"""Tests of the shared scan: each rank of a host scans a part of a file and gets all results."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.collective.threads import on_ranks, results_of
from xmc_tf.common.errors import InputError
from xmc_tf.data import array_checks, load_matrix, save_matrix
from xmc_tf.ranks.shared_scan import SharedScan


def looked(ranks_a_host, size, look):
    """What each rank is given; hosts have so many ranks, which are dealt out one by one."""

    def one(communicator):
        communicator.host = f"host{communicator.rank % (size // ranks_a_host)}"
        return SharedScan(communicator).map(lambda part, parts: look(communicator, part, parts))

    return on_ranks(size, one)


@pytest.mark.parametrize(("ranks_a_host", "size"), [(1, 1), (1, 2), (2, 2), (2, 4), (3, 3), (4, 4)])
def test_every_host_looks_at_all_parts_once(ranks_a_host, size):
    gathered = results_of(
        looked(ranks_a_host, size, lambda communicator, part, parts: (communicator.host, part, parts))
    )
    for rank, found in enumerate(gathered):
        host = f"host{rank % (size // ranks_a_host)}"
        assert found == [(host, part, ranks_a_host) for part in range(ranks_a_host)]


def test_a_fault_in_one_part_stops_all_ranks():
    def look(communicator, part, parts):
        if communicator.rank == 2:
            raise InputError("X: row 7 is nan")

    for result in looked(2, 4, look):
        assert isinstance(result, InputError)
        assert "rank 2 on host0: X: row 7 is nan" in str(result)


@pytest.mark.parametrize("row", [0, 25, 49])
def test_rows_out_of_order_in_one_part_are_sorted_by_all(row, tmp_path, monkeypatch):
    monkeypatch.setattr(array_checks, "FEW", 0)
    rng = np.random.default_rng(0)
    X = csr_matrix(rng.random((50, 6), np.float32) * (rng.random((50, 6)) < 0.7), dtype=np.float32)
    save_matrix(tmp_path / "sorted.npz", X)
    expected = load_matrix(tmp_path / "sorted.npz")
    indices, data, line = X.indices.copy(), X.data.copy(), slice(*X.indptr[row : row + 2])
    indices[line], data[line] = indices[line][::-1], data[line][::-1]
    np.savez(tmp_path / "X.npz", format=b"csr", shape=X.shape, data=data, indices=indices, indptr=X.indptr)

    def load(communicator):
        communicator.host = "one"
        return load_matrix(tmp_path / "X.npz", scan=SharedScan(communicator))

    for loaded in results_of(on_ranks(3, load)):
        assert (loaded.indices == expected.indices).all()
        assert (loaded.data == expected.data).all()
