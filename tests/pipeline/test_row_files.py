"""A matrix whose rows several ranks write."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.pipeline.row_blocks import RowFile


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 99),
)
def test_ranks_fill_their_rows_in_any_order(tmp_path_factory, rows, columns, cuts, seed):
    path = tmp_path_factory.getbasetemp() / "E.npy"
    random = np.random.default_rng(seed)
    whole = random.normal(size=(rows, columns)).astype(np.float32)
    bounds = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
    ranges = list(pairwise(bounds))
    RowFile.create(path, (rows, columns))
    random.shuffle(ranges)
    with RowFile(path) as one, RowFile(path) as other:
        for number, (begin, end) in enumerate(ranges):
            (one, other)[number % 2].write(begin, whole[begin:end])
        one.sync()
    np.testing.assert_array_equal(np.load(path), whole)


def test_rows_of_another_type_are_converted_and_the_rest_stays_zero(tmp_path):
    RowFile.create(tmp_path / "E.npy", (3, 2))
    with RowFile(tmp_path / "E.npy") as file:
        file.write(1, np.array([[1, 2, 9]])[:, :2])
    assert np.load(tmp_path / "E.npy").tolist() == [[0, 0], [1, 2], [0, 0]]


def test_a_file_that_is_no_matrix_is_refused(tmp_path):
    path = tmp_path / "E.npy"
    path.write_bytes(b"something else")
    refused(r"embeddings: .*E\.npy", RowFile, path)
