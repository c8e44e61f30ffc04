"""Files that several processes write equal those written by one."""

import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.data.npz.reading import read_npz
from xmc_tf.data.npz.writing import ArraySpec, RowFile, SharedNpz, write_npz
from xmc_tf.store.checksums import crc_of_all


def test_crc_of_parts():
    data = np.random.default_rng(0).bytes(10_000)
    for cuts in ([0, 10_000], [0, 1, 5, 5, 4_096, 10_000], [0, 0, 9_999, 10_000]):
        parts = [data[a:b] for a, b in pairwise(cuts)]
        assert crc_of_all([(zlib.crc32(part), len(part)) for part in parts]) == zlib.crc32(data)


@pytest.mark.parametrize("length", [0, 5, 100_000])
@pytest.mark.parametrize("ranks", [1, 3])
def test_ranges_by_several_are_the_bytes_of_one(tmp_path, length, ranks):
    rng = np.random.default_rng(1)
    whole = {
        "indices": rng.integers(0, 9, length).astype(np.int32),
        "indptr": np.arange(7),
        "format": np.array(b"csc"),
        "data": rng.random(length, np.float32),
    }
    write_npz(tmp_path / "one.npz", whole)
    late = ("indices", "data")
    members = {name: ArraySpec(a.dtype, len(a)) if name in late else a for name, a in whole.items()}
    files = [SharedNpz(tmp_path / "many.npz", members) for _ in range(ranks)]
    files[0].create()
    prints: dict[str, list] = {name: [None] * ranks for name in late}
    for rank in reversed(range(ranks)):
        for name in late:
            cuts = files[rank].cuts(name, ranks)
            mine = whole[name][cuts[rank] : cuts[rank + 1]]
            prints[name][rank] = files[rank].fill(name, cuts[rank], np.array_split(mine, 3))
    files[0].finish(prints)
    assert (tmp_path / "many.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()
    assert np.array_equal(read_npz(tmp_path / "many.npz")["data"], whole["data"])


def test_a_range_that_is_missing_is_noticed(tmp_path):
    file = SharedNpz(tmp_path / "part.npz", {"data": ArraySpec(np.dtype(np.float32), 10)})
    file.create()
    print_ = file.fill("data", 0, [np.zeros(9)])
    refused("are inconsistent", file.finish, {"data": [print_]})


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
