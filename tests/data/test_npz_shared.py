"""Files written by several processes equal those written by one."""

import zlib
from itertools import pairwise

import numpy as np
import pytest

from tests.refusals import refused
from xmc_tf.common.files.crc import crc_of_all
from xmc_tf.data.npz.reading import read_npz
from xmc_tf.data.npz.writing import ArraySpec, SharedNpz, write_npz


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
