"""Tests of stacking: the file equals the one that a single process writes of all rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array, vstack

from tests.collective.threads import on_ranks, results_of
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.data.matrices import open_matrix
from xmc_tf.data.npz import writing as npz_shared
from xmc_tf.data.npz.reading import read_npy
from xmc_tf.ranks import stacking
from xmc_tf.ranks.stacking import Pieces, stack_rows


@given(
    heights=st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=5).filter(any),
    seed=st.integers(0, 2**30),
    page=st.sampled_from([64, 512, 4096]),
    held=st.sampled_from([0, 300, 1 << 20]),
)
@settings(deadline=None, max_examples=60)
def test_stacked_rows_are_the_file_of_all_rows(tmp_path_factory, heights, seed, page, held):
    folder, rng = tmp_path_factory.mktemp("stack"), np.random.default_rng(seed)
    parts = [
        [csr_matrix(random_array((height, 7), density=0.4, rng=rng, dtype=np.float32)) for height in several]
        for several in heights
    ]

    def stack(one):
        for suffix in (".npz", ".npy"):
            with Pieces(folder / f"piece-{one.rank}", suffix) as pieces:
                for part in parts[one.rank]:
                    pieces.add(part if suffix == ".npz" else part.toarray())
                stack_rows(one, pieces.all, folder / f"all{suffix}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacking, "PIECE_ENTRIES", 5)
        patch.setattr(stacking, "_HELD_BYTES", held)
        patch.setattr(npz_shared, "PAGE", page)
        results_of(on_ranks(len(heights), stack))
    expected = vstack([part for several in parts for part in several], format="csr")
    save_matrix(folder / "expected.npz", expected)
    assert (folder / "all.npz").read_bytes() == (folder / "expected.npz").read_bytes()
    assert np.array_equal(read_npy(folder / "all.npy"), expected.toarray())
    assert np.array_equal(open_matrix(folder / "all.npz").toarray(), load_matrix(folder / "all.npz").toarray())
    assert {path.name for path in folder.iterdir()} == {"all.npz", "all.npy", "expected.npz"}


def test_stacking_keeps_its_input_files(tmp_path):
    rows = csr_matrix(np.eye(3, dtype=np.float32))
    for rank in range(2):
        save_matrix(tmp_path / f"{rank}.npz", rows)
    results_of(on_ranks(2, lambda one: stack_rows(one, [tmp_path / f"{one.rank}.npz"], tmp_path / "all.npz")))
    assert np.array_equal(load_matrix(tmp_path / "all.npz").toarray(), np.vstack([np.eye(3)] * 2))
    assert {path.name for path in tmp_path.iterdir()} == {"0.npz", "1.npz", "all.npz"}


def test_no_two_ranks_write_to_one_page(tmp_path, monkeypatch):
    """Network disks write whole pages, so that a second writer of a page would undo the first one's write."""
    monkeypatch.setattr(npz_shared, "PAGE", 512)
    written = []
    fill = npz_shared._fill

    def watched(path, data, dtype, start, pieces):
        made = fill(path, data, dtype, start, pieces)
        begin = data + start * dtype.itemsize
        written.append((begin, begin + made.length))
        return made

    monkeypatch.setattr(npz_shared, "_fill", watched)
    rng = np.random.default_rng(0)
    rows = [rng.random((height, 5), np.float32) for height in (40, 1, 0, 2, 90, 25)]
    results_of(on_ranks(6, lambda one: stack_rows(one, [rows[one.rank]], tmp_path / "all.npy")))
    assert np.array_equal(read_npy(tmp_path / "all.npy"), np.concatenate(rows))
    pages = [set(range(begin // 512, -(-end // 512))) for begin, end in written if end > begin]
    # The file's first page has its header, which rank 0 writes too.
    assert len(pages) == 3
    assert sum(map(len, pages)) == len(set.union(*pages))
