"""Tests of the shared scan: each rank of a host scans a part of a file and gets all results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array, vstack

from tests.collective.threads import on_ranks, results_of
from tests.files import contents
from xmc_tf.common.errors import InputError
from xmc_tf.data import array_checks, load_matrix, save_matrix
from xmc_tf.ranks.on_all_ranks import SharedScan
from xmc_tf.ranks.stacking import stack_rows
from xmc_tf.store.arrays import open_sparse, save_sparse, write_npy


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


@given(
    heights=st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=5).filter(any),
    seed=st.integers(0, 2**30),
)
@settings(deadline=None, max_examples=60)
def test_stacked_rows_are_the_files_of_all_rows(tmp_path_factory, heights, seed):
    folder, rng = tmp_path_factory.mktemp("stack"), np.random.default_rng(seed)
    parts = [
        [csr_matrix(random_array((height, 7), density=0.4, rng=rng, dtype=np.float32)) for height in several]
        for several in heights
    ]

    def stack(one):
        for end in ("", ".npy"):
            pieces = [folder / f"piece-{one.rank}-{number}{end}" for number in range(len(parts[one.rank]))]
            for path, part in zip(pieces, parts[one.rank], strict=True):
                write_npy(path, part.toarray()) if end else save_sparse(path, part)
            stack_rows(one, pieces, folder / f"all{end}")

    results_of(on_ranks(len(heights), stack))
    assert {path.name for path in folder.iterdir()} == {"all", "all.npy"}
    expected = vstack([part for several in parts for part in several], format="csr")
    save_sparse(folder / "expected", expected)
    assert contents(folder / "all") == contents(folder / "expected")
    for found in (np.load(folder / "all.npy"), open_sparse(folder / "all").toarray()):
        assert np.array_equal(found, expected.toarray())
