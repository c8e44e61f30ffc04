"""Tests of stacking: the files equal those that a single process writes of all rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, random_array, vstack

from tests.collective.threads import on_ranks, results_of
from tests.files import contents
from xmc_tf.ranks.stacking import stack_rows
from xmc_tf.store.arrays import open_sparse, save_sparse, write_npy


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
