"""Systems other than Linux, which lack some of its functions: what stands in for them does the same."""

import os

import numpy as np

from xmc_tf.common.threads import thread_count, usable_cores
from xmc_tf.rankers.layout import stored


def test_cores_are_those_of_the_machine_where_processes_are_not_limited(monkeypatch):
    assert usable_cores() == os.sched_getaffinity(0)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert thread_count(-1) == len(usable_cores()) == os.cpu_count()


def test_a_mapped_file_has_its_room_where_none_can_be_reserved(tmp_path, monkeypatch):
    expected = stored._mapped(tmp_path / "linux.npy", 300_000)
    monkeypatch.delattr(os, "posix_fallocate")
    found = stored._mapped(tmp_path / "other.npy", 300_000)
    np.testing.assert_array_equal(found, expected)
    assert (tmp_path / "other.npy").read_bytes() == (tmp_path / "linux.npy").read_bytes()
    assert (tmp_path / "other.npy").stat().st_blocks * 512 >= 4 * 300_000
