"""Tests of failures while a checkpoint is written, and of damaged or unsuitable checkpoints."""

import contextlib
import errno
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.collective.checkpoints import empty, load, refused, rewrite, save, stacked, trained, whole
from tests.collective.threads import on_ranks, results_of
from tests.files import flip
from xmc_tf.collective.checkpoints import shard_files
from xmc_tf.collective.checkpoints.checkpoint import load_tables, read_manifest, save_tables
from xmc_tf.collective.checkpoints.manifest import MANIFEST
from xmc_tf.ranks.solo import Solo


def test_a_full_disk_keeps_the_last_checkpoint_and_fails_on_all_ranks(tmp_path, monkeypatch):
    save(tmp_path / "c", step=1)
    fine = shard_files.write_shard

    def full(path, *arguments):
        if path.name.endswith("values.00001.npy"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return fine(path, *arguments)

    monkeypatch.setattr("xmc_tf.collective.checkpoints.checkpoint.write_shard", full)
    results = on_ranks(3, lambda one: save_tables(tmp_path / "c", [trained(one)], one, step=2))
    assert all(isinstance(result, OSError) for result in results), results
    assert all("rank 1 on host1" in str(result) and "No space left" in str(result) for result in results)
    assert read_manifest(tmp_path / "c").step == 1
    assert len(list((tmp_path / "c").glob("data-*"))) == 1
    np.testing.assert_array_equal(stacked(load(tmp_path / "c")[0]), whole(23, 3))


def test_a_killed_save_keeps_the_last_checkpoint(tmp_path):
    save(tmp_path / "c", step=1)
    (tmp_path / "c" / "data-000002").mkdir()
    (tmp_path / "c" / "data-000002" / "00-items.values.00000.npy").write_bytes(b"half a fi")
    np.testing.assert_array_equal(stacked(load(tmp_path / "c")[0]), whole(23, 3))
    save(tmp_path / "c", step=3)
    assert [path.name for path in (tmp_path / "c").glob("data-*")] == ["data-000003"]


class FailingCommunicator(Solo):
    """A rank 0 whose collectives fail after a number of calls, as if another rank had ended."""

    def __init__(self, calls):
        super().__init__()
        self.left = calls

    def allgather(self, value):
        if self.left == 0:
            raise RuntimeError("a rank has gone")
        self.left -= 1
        return [value]

    def gather(self, value, root=0):
        return self.allgather(value)

    def broadcast(self, value, root=0):
        return self.allgather(value)[root]

    def barrier(self):
        self.allgather(None)


@pytest.mark.parametrize("again", [True, False])
def test_the_end_of_another_rank_at_any_time_keeps_a_checkpoint(again, tmp_path):
    """Any collective may fail, even just after the manifest was written."""
    steps = []
    for calls in range(20):
        folder = tmp_path / str(calls)
        if not again:
            save(folder, size=1, step=1)

        lonely = FailingCommunicator(calls)
        with contextlib.suppress(RuntimeError):
            save_tables(folder, [trained(lonely)], lonely, step=2)
        if again and not (folder / "manifest.json").exists():
            continue
        steps.append(read_manifest(folder).step)
        np.testing.assert_array_equal(stacked(load(folder)[0]), whole(23, 3))
    assert steps == sorted(steps)
    assert steps[-1] == 2
    assert again or steps[0] == 1
    assert lonely.left > 0  # the last save did not fail


def some_file(folder, part="values", rank=1):
    return next((folder).glob(f"data-*/*.{part}.{rank:05d}.npy"))


def replicated(folder):
    return next(folder.glob("data-*/replicated.npz"))


def replace(old, new):
    """Return a change of the manifest's text."""

    def change(folder, other):
        text = (folder / MANIFEST).read_text()
        assert old in text
        (folder / MANIFEST).write_text(text.replace(old, new))

    return change


CHANGED = "is damaged: its content has changed since it was saved"
CUT = r"is damaged: its size has changed since it was saved(.|\n)*expected: [\d,]+ bytes"
# What is done to a folder; ``other`` is a checkpoint of other values.
DAMAGE = [
    (lambda folder, other: _cut(some_file(folder, "m")), f"00-items.m.00001.npy {CUT}"),
    (lambda folder, other: some_file(folder, "v", 2).unlink(), "00-items.v.00002.npy is missing"),
    (lambda folder, other: shutil.copy(some_file(other), some_file(folder)), f"00-items.values.00001.npy {CHANGED}"),
    (lambda folder, other: flip(some_file(folder, "values", 0), -2), f"00-items.values.00000.npy {CHANGED}"),
    (lambda folder, other: flip(some_file(folder, "values", 0), 3), f"00-items.values.00000.npy {CHANGED}"),
    (lambda folder, other: _cut(replicated(folder)), f"replicated.npz {CUT}"),
    (lambda folder, other: replicated(folder).unlink(), "replicated.npz is missing"),
    (lambda folder, other: flip(replicated(folder), -1), f"replicated.npz {CHANGED}"),
    (lambda folder, other: shutil.copy(replicated(other), replicated(folder)), f"replicated.npz {CHANGED}"),
    (lambda folder, other: _cut(folder / "manifest.json"), "bad/manifest.json is not JSON"),
    (lambda folder, other: (folder / "manifest.json").unlink(), "bad/manifest.json does not exist"),
    (
        lambda folder, other: rewrite(folder, lambda content: content.update(version=99)),
        "manifest.json was not written by this version",
    ),
    (
        lambda folder, other: rewrite(folder, lambda content: content["tables"]["items"]["values"].pop(1)),
        "00002.npy does not follow the file before it",
    ),
    (
        replace('"step": 7', '"step": 0'),
        r"bad/manifest.json has changed since it was saved(.|\n)*expected: checksum [0-9a-f]{8}",
    ),
    (replace('"checksum": "', '"checksun": "'), "bad/manifest.json cannot be read: KeyError: 'checksum'"),
    *(
        (
            lambda folder, other, change=change: rewrite(
                folder, lambda content: content["tables"]["items"]["values"][0].update(change)
            ),
            f"bad/manifest.json cannot be read: {kind}",
        )
        for change, kind in (
            ({"other": 1}, "TypeError"),
            ({"file": "../x.npy"}, "ValueError: .* is not"),
        )
    ),
]


def test_damage_is_refused_with_the_name_of_the_file(tmp_path):
    good, other, bad = (tmp_path / name for name in ("good", "other", "bad"))
    save(good, extra={"kernel": np.ones(1000, np.float32)})
    kernel = {"kernel": np.zeros(1000, np.float32)}
    results_of(on_ranks(3, lambda one: save_tables(other, [_moved(trained(one))], one, kernel)))
    for change, said in DAMAGE:
        shutil.copytree(good, bad)
        change(bad, other)
        assert re.search(said, refused(bad))
        shutil.rmtree(bad)


def _moved(table):
    table.variable.assign_add(np.ones(table.variable.shape, np.float32))
    return table


def _cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def test_another_model_is_refused(tmp_path):
    save(tmp_path / "c")
    assert "no table 'users'" in refused(tmp_path / "c", name="users")
    shape = refused(tmp_path / "c", rows=24)
    assert "expected: (24, 3)" in shape
    assert "received: (23, 3)" in shape

    def other_optimizer(communicator, change):
        table = empty(communicator)
        change(table)
        load_tables(tmp_path / "c", [table], communicator)

    results = on_ranks(2, lambda one: other_optimizer(one, lambda table: table.slot("accumulator")))
    assert all("no values were saved for slot 'accumulator'" in str(result) for result in results)

    def one_number_a_row(table):
        table.slots["m"] = tf.Variable(np.zeros(table.variable.shape[0], np.float32))

    results = on_ranks(2, lambda one: other_optimizer(one, one_number_a_row))
    shown = "00-items.m.0000[0-2].npy does not have the shape of the table or slot"
    assert all(re.search(shown, str(result)) for result in results), results


def test_ranks_with_different_tables_write_nothing(tmp_path):
    def work(communicator):
        table = trained(communicator)
        if communicator.rank == 1:
            del table.slots["v"]
        save_tables(tmp_path / "c", [table], communicator)

    results = on_ranks(2, work)
    assert all("ranks 0 and 1 have different arrays" in str(result) for result in results)
    assert not list((tmp_path / "c").iterdir())


def test_a_rank_without_the_shared_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def work(communicator):
        # Two hosts without a shared folder see different files under one path.
        folder = tmp_path / f"disk{communicator.rank}" / "c"
        save_tables(folder, [trained(communicator)], _OtherDisk(communicator, tmp_path))

    results = on_ranks(2, work)
    assert all(
        "rank 1 on host1" in str(result) and "does not exist on this rank" in str(result) for result in results
    ), results


class _OtherDisk:
    """A communicator that gives rank 1 another path, as if the path were on another disk."""

    def __init__(self, inner, folder):
        self.inner, self.folder = inner, folder

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def broadcast(self, value, root=0):
        return self.inner.broadcast(value, root).replace("disk0", f"disk{self.inner.rank}")
