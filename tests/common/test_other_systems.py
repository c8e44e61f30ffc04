"""Systems other than Linux, which lack some of its functions: what stands in for them does the same."""

import os
import resource
import sys
from types import SimpleNamespace

import numpy as np

from xmc_tf.common.memory import peak_memory
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


def test_peak_memory_is_counted_in_the_unit_of_the_system(monkeypatch):
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=512 << 20))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory() == "peak memory 512 MB"
    monkeypatch.setattr(sys, "platform", "linux")
    assert peak_memory() == "peak memory 524,288 MB"
