"""Checksums: the same for the same data however it is held, and ranks with other data are named."""

import os

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.collective.threads import on_ranks
from tests.refusals import refused
from xmc_tf.data import Features, TextFile, load_matrix, save_matrix
from xmc_tf.pipeline.inputs import checksum, files_of, same_everywhere
from xmc_tf.tree import LabelTree


def test_what_is_mapped_and_what_is_in_memory(tmp_path):
    Y = csr_matrix(np.eye(4, dtype=np.float32))
    save_matrix(tmp_path / "Y.npz", Y)
    wide = Y.copy()
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    assert checksum(load_matrix(tmp_path / "Y.npz")) == checksum(Y) == checksum(wide)
    assert checksum(Y) != checksum(Y.tocsc())
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert checksum(TextFile(tmp_path / "a.txt")) == checksum(["one", "two"]) == checksum([b"one", b"two"])
    assert checksum(None) is None


def test_every_part_counts():
    X, E = csr_matrix(np.eye(3, dtype=np.float32)), np.ones((3, 2), np.float32)
    tree = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])
    other = LabelTree(splits=([0, 2], [0, 3, 5]), labels=[1, 2, 4, 0, 3])
    things = [X, 2 * X, E, E.T.copy(), Features(X, E), tree, other, ["ab", "c"], ["a", "bc"]]
    things += [["a\nb", "c"], ["a", "b\nc"], ["a", "b", "c"]]
    assert len({checksum(thing) for thing in things}) == len(things)
    with pytest.raises(TypeError, match="cannot compute a checksum of int"):
        checksum(3)


def test_files_of_a_folder(tmp_path):
    assert files_of("bert-base-cased") is None
    (tmp_path / "config.json").write_text("{}")
    os.utime(tmp_path / "config.json", ns=(1, 1))
    before = files_of(str(tmp_path))
    assert [name for name, *_ in before] == ["config.json"]
    (tmp_path / "config.json").write_text("[]")  # of the same size
    os.utime(tmp_path / "config.json", ns=(1, 1))
    assert files_of(str(tmp_path)) != before


def test_a_rank_with_other_data_is_named_on_all():
    def work(world):
        sums = {"texts": "a", "labels": "b" if world.rank != 1 else "c"}
        refused("rank 1 on host1 received different labels than rank 0", same_everywhere, world, sums)
        same_everywhere(world, {"texts": "a"})
        return world.rank

    assert on_ranks(3, work) == [0, 1, 2]
