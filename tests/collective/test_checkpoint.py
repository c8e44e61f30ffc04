"""Tests of checkpoints, which load on any number of ranks."""

import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collective.checkpoints import load, save, stacked, trained, whole
from tests.collective.threads import on_ranks, results_of
from xmc_tf.collective.checkpoints import shard_files
from xmc_tf.collective.checkpoints.checkpoint import read_manifest, save_tables
from xmc_tf.ranks.partition import Partition


@given(
    cuts=st.lists(st.integers(0, 23), max_size=3),
    other_cuts=st.lists(st.integers(0, 23), max_size=3),
    block_bytes=st.sampled_from([1, 24, 100, 1 << 20]),
)
@settings(max_examples=25)
def test_a_checkpoint_loads_with_any_partition(tmp_path_factory, cuts, other_cuts, block_bytes):
    folder = tmp_path_factory.mktemp("run") / "checkpoint"
    before = Partition(np.array([0, *sorted(cuts), 23], dtype=np.int64))
    after = Partition(np.array([0, *sorted(other_cuts), 23], dtype=np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_files, "BLOCK_BYTES", block_bytes)
        save(folder, size=len(cuts) + 1, partition=before)
        tables, _ = load(folder, size=len(other_cuts) + 1, partition=after)
    np.testing.assert_array_equal(stacked(tables), whole(23, 3))
    np.testing.assert_array_equal(stacked(tables, "m"), whole(23, 3, 0.25))
    np.testing.assert_array_equal(stacked(tables, "v"), whole(23, 3, 0.5))


def test_replicated_arrays_are_restored_from_one_file(tmp_path):
    extra = {
        "dense/kernel:0": np.float32([[1, 2], [3, 4]]),
        "step": np.int64(5),
        "nothing": np.zeros((0, 4), np.float16),
        "text": np.array(["a", "bcd"]),
    }
    save(tmp_path / "c", extra=extra, step=12)
    _, back = load(tmp_path / "c")
    assert list(back) == list(extra)
    for name, value in extra.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].shape == np.shape(value)
        assert back[name].dtype == np.asarray(value).dtype
    with np.load(next(tmp_path.glob("c/data-*/replicated.npz"))) as plain:
        assert plain["text"].tolist() == ["a", "bcd"]
    manifest = read_manifest(tmp_path / "c")
    assert (manifest.step, manifest.ranks) == (12, 3)


def test_arrays_are_requested_one_at_a_time_on_rank_0(tmp_path):
    """So only one array of a large model is copied at a time."""
    alive, most = [], []

    def give(number):
        value = np.full(1000, number, np.float32)
        alive.append(weakref.ref(value))
        most.append(sum(one() is not None for one in alive))
        return value

    extra = {f"{number}": partial(give, number) for number in range(9)}
    results_of(on_ranks(2, lambda one: save_tables(tmp_path / "c", [trained(one)], one, extra)))
    assert len(alive) == 9
    assert max(most) <= 2
    _, back = load(tmp_path / "c")
    assert [value[0] for value in back.values()] == list(range(9))


def test_rows_can_be_loaded_without_slots(tmp_path):
    save(tmp_path / "c")
    tables, _ = load(tmp_path / "c", slots=False)
    np.testing.assert_array_equal(stacked(tables), whole(23, 3))
    assert all(not table.slots for table in tables)


def test_a_new_checkpoint_replaces_the_old_one(tmp_path):
    save(tmp_path / "c", size=3, step=1)
    first = {path.name for path in tmp_path.glob("c/*/*")}
    save(tmp_path / "c", size=2, step=2)
    assert read_manifest(tmp_path / "c").step == 2
    assert len(list((tmp_path / "c").glob("data-*"))) == 1
    assert len(list(tmp_path.glob("c/*/*"))) == 7 < len(first)
    tables, _ = load(tmp_path / "c", size=4)
    np.testing.assert_array_equal(stacked(tables, "m"), whole(23, 3, 0.25))
