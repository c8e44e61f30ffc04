"""Checkpoints: any number of ranks to any other, and every kind of damage named with its file."""

import contextlib
import errno
import json
import re
import shutil
import weakref
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collective.threads import all_well, on_ranks
from xmc_tf.collective import packed_arrays, shard_files
from xmc_tf.collective.checkpoint import load_tables, read_manifest, save_tables
from xmc_tf.collective.packed_arrays import read_arrays, write_arrays
from xmc_tf.collective.partition import Partition, even_rows
from xmc_tf.collective.solo import Solo
from xmc_tf.collective.table import make_table
from xmc_tf.common.errors import InputError


def whole(rows, dim, offset=0.0):
    """Values that tell their place."""
    return np.arange(rows * dim, dtype=np.float32).reshape(rows, dim) + np.float32(offset)


def trained(communicator, rows=23, dim=3, name="items", partition=None):
    """This rank's part of a table whose rows and slots are known."""
    partition = even_rows(rows, communicator.size) if partition is None else partition
    table = make_table(name, rows, dim, rank=communicator.rank, partition=partition, initializer=whole(rows, dim))
    low, high = partition.bounds[communicator.rank : communicator.rank + 2]
    for slot, offset in (("m", 0.25), ("v", 0.5)):
        table.slot(slot).assign(whole(rows, dim, offset)[low:high])
    return table


def empty(communicator, rows=23, dim=3, name="items", partition=None):
    """The same table before it has been filled."""
    partition = even_rows(rows, communicator.size) if partition is None else partition
    return make_table(name, rows, dim, rank=communicator.rank, partition=partition, initializer="zeros")


def save(folder, size=3, rows=23, partition=None, extra=None, step=7, **more):
    all_well(
        on_ranks(
            size,
            lambda communicator: save_tables(
                folder, [trained(communicator, rows, partition=partition, **more)], communicator, extra, step
            ),
        )
    )


def load(folder, size=2, rows=23, partition=None, **options):
    """The tables of all ranks after loading, and what rank 0 got beside."""

    def work(communicator):
        table = empty(communicator, rows, partition=partition)
        return table, load_tables(folder, [table], communicator, **options)

    results = all_well(on_ranks(size, work))
    return [table for table, _ in results], results[0][1]


def stacked(tables, slot=None):
    return np.concatenate([(table.slots[slot] if slot else table.variable).numpy() for table in tables])


@given(
    cuts=st.lists(st.integers(0, 23), max_size=3),
    other_cuts=st.lists(st.integers(0, 23), max_size=3),
    block_bytes=st.sampled_from([1, 24, 100, 1 << 20]),
)
@settings(max_examples=25)
def test_any_ranges_move_to_any_others(tmp_path_factory, cuts, other_cuts, block_bytes):
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


def test_what_is_the_same_everywhere_comes_back(tmp_path):
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
    manifest = read_manifest(tmp_path / "c")
    assert (manifest.step, manifest.ranks) == (12, 3)


@given(
    sizes=st.lists(st.integers(0, 300), max_size=12),
    pack_bytes=st.sampled_from([1, 500, 1 << 30]),
    block_bytes=st.sampled_from([7, 64, 1 << 20]),
)
@settings(max_examples=30)
def test_arrays_of_any_size_lie_in_few_files(tmp_path_factory, sizes, pack_bytes, block_bytes):
    """No file is longer than it may be, but with an array that is; in the end all is as it was."""
    folder = tmp_path_factory.mktemp("arrays")
    arrays = {f"{n}": np.random.default_rng(n).bytes(size) for n, size in enumerate(sizes)}
    arrays = {name: np.frombuffer(raw, np.uint8) for name, raw in arrays.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_arrays, "PACK_BYTES", pack_bytes)
        patch.setattr(packed_arrays, "BLOCK_BYTES", block_bytes)
        packed = write_arrays(folder, arrays)
    back = read_arrays(folder, packed)
    assert list(back) == list(arrays)
    for name, value in arrays.items():
        np.testing.assert_array_equal(back[name], value)
        where = packed.arrays[name]
        np.testing.assert_array_equal(
            np.fromfile(folder / where.file, np.uint8, len(value), offset=where.offset), value
        )
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == packed.files
    together = {file: [one for one in packed.arrays.values() if one.file == file] for file in packed.files}
    assert all(length <= pack_bytes or len(together[file]) == 1 for file, length in packed.files.items())
    if pack_bytes == 1 << 30:
        assert len(packed.files) == bool(sizes)


def test_arrays_are_asked_for_in_turn_and_by_the_first_rank_alone(tmp_path):
    """So that of a large model there is one array a second time, not all."""
    alive, most = [], []

    def give(number):
        value = np.full(1000, number, np.float32)
        alive.append(weakref.ref(value))
        most.append(sum(one() is not None for one in alive))
        return value

    extra = {f"{number}": partial(give, number) for number in range(9)}
    all_well(on_ranks(2, lambda one: save_tables(tmp_path / "c", [trained(one)], one, extra)))
    assert len(alive) == 9
    assert max(most) <= 2
    _, back = load(tmp_path / "c")
    assert [value[0] for value in back.values()] == list(range(9))


def test_a_checkpoint_of_the_time_when_every_array_had_a_file(tmp_path):
    folder = tmp_path / "c"
    extra = {"kernel": np.float32([[1, 2], [3, 4]]), "step": np.array(5), "text": np.array(["a", "bcd"])}
    save(folder, extra={})
    data = next(folder.glob("data-*"))
    entries = {}
    for number, (name, value) in enumerate(extra.items()):
        flat = value.reshape(-1)
        shard = shard_files.write_shard(
            data / f"replicated-{number:05d}.npy", lambda i, j, flat=flat: flat[i:j], 0, len(flat), (), value.dtype
        )
        entries[name] = {"shape": list(value.shape), "file": shard.to_json()}
    _rewrite(folder, lambda content: content.update(version=1, replicated=entries))
    tables, back = load(folder)
    np.testing.assert_array_equal(stacked(tables), whole(23, 3))
    assert list(back) == list(extra)
    for name, value in extra.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == value.dtype
    _flip(data / "replicated-00000.npy")
    assert "replicated-00000.npy, array 'kernel': not what was saved" in refused(folder)


def test_rows_alone_for_evaluation(tmp_path):
    save(tmp_path / "c")
    tables, _ = load(tmp_path / "c", slots=False)
    np.testing.assert_array_equal(stacked(tables), whole(23, 3))
    assert all(not table.slots for table in tables)


def test_a_new_checkpoint_replaces_the_old_one_and_leaves_nothing(tmp_path):
    save(tmp_path / "c", size=3, step=1)
    first = {path.name for path in tmp_path.glob("c/*/*")}
    save(tmp_path / "c", size=2, step=2)
    assert read_manifest(tmp_path / "c").step == 2
    assert len(list((tmp_path / "c").glob("data-*"))) == 1
    assert len(list(tmp_path.glob("c/*/*"))) == 6 < len(first)
    tables, _ = load(tmp_path / "c", size=4)
    np.testing.assert_array_equal(stacked(tables, "m"), whole(23, 3, 0.25))


def test_a_full_disk_keeps_the_last_good_checkpoint_and_stops_every_rank(tmp_path, monkeypatch):
    save(tmp_path / "c", step=1)
    fine = shard_files.write_shard

    def full(path, *arguments):
        if path.name.endswith("values.00001.npy"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return fine(path, *arguments)

    monkeypatch.setattr("xmc_tf.collective.checkpoint.write_shard", full)
    results = on_ranks(3, lambda one: save_tables(tmp_path / "c", [trained(one)], one, step=2))
    assert all(isinstance(result, OSError) for result in results), results
    assert all("rank 1 on host1" in str(result) and "No space left" in str(result) for result in results)
    assert read_manifest(tmp_path / "c").step == 1
    assert len(list((tmp_path / "c").glob("data-*"))) == 1
    np.testing.assert_array_equal(stacked(load(tmp_path / "c")[0]), whole(23, 3))


def test_a_save_that_was_killed_leaves_the_last_good_checkpoint(tmp_path):
    save(tmp_path / "c", step=1)
    (tmp_path / "c" / "data-000002").mkdir()
    (tmp_path / "c" / "data-000002" / "00-items.values.00000.npy").write_bytes(b"half a fi")
    np.testing.assert_array_equal(stacked(load(tmp_path / "c")[0]), whole(23, 3))
    save(tmp_path / "c", step=3)
    assert [path.name for path in (tmp_path / "c").glob("data-*")] == ["data-000003"]


class Lonely(Solo):
    """Rank 0 of ranks that are gone after so many calls to them."""

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


@pytest.mark.parametrize("anew", [True, False])
def test_another_rank_that_dies_at_any_moment_costs_no_checkpoint(anew, tmp_path):
    """This rank learns of it by a call to the others that fails, also when it has just written the manifest."""
    steps = []
    for calls in range(20):
        folder = tmp_path / str(calls)
        if not anew:
            save(folder, size=1, step=1)

        lonely = Lonely(calls)
        with contextlib.suppress(RuntimeError):
            save_tables(folder, [trained(lonely)], lonely, step=2)
        if anew and not (folder / "manifest.json").exists():
            continue
        steps.append(read_manifest(folder).step)
        np.testing.assert_array_equal(stacked(load(folder)[0]), whole(23, 3))
    assert steps == sorted(steps)
    assert steps[-1] == 2
    assert anew or steps[0] == 1
    assert lonely.left > 0  # the last of them was not disturbed


def refused(folder, size=2, rows=23, name="items", dim=3, slots=True):
    """The message that every rank gets."""

    def work(communicator):
        load_tables(folder, [empty(communicator, rows, dim, name)], communicator, slots=slots)

    results = on_ranks(size, work)
    assert all(isinstance(result, InputError) for result in results), results
    assert len({str(result) for result in results}) == 1
    return str(results[0])


def some_file(folder, part="values", rank=1):
    return next((folder).glob(f"data-*/*.{part}.{rank:05d}.npy"))


def test_damage_is_refused_and_the_file_named(tmp_path):
    good = tmp_path / "good"
    save(good, extra={"kernel": np.ones(1000, np.float32)})
    other = tmp_path / "other"
    kernel = {"kernel": np.zeros(1000, np.float32)}
    all_well(on_ranks(3, lambda one: save_tables(other, [_moved(trained(one))], one, kernel)))

    def damaged(change):
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        change(folder)
        return refused(folder)

    cut = damaged(lambda folder: _cut(some_file(folder, "m")))
    assert "00-items.m.00001.npy is cut short" in cut
    assert re.search(r"expected: \d+ bytes", cut)

    gone = damaged(lambda folder: some_file(folder, "v", 2).unlink())
    assert "00-items.v.00002.npy is missing" in gone

    mixed = damaged(lambda folder: shutil.copy(some_file(other), some_file(folder)))
    assert "00-items.values.00001.npy, rows 0 to 7 of the file: not what was saved" in mixed

    flipped = damaged(lambda folder: _flip(some_file(folder, "values", 0)))
    assert "00-items.values.00000.npy" in flipped

    header = damaged(lambda folder: _flip(some_file(folder, "values", 0), at=3))
    assert "00-items.values.00000.npy is no .npy file" in header

    def pack(folder):
        return next(folder.glob("data-*/replicated-00000.bin"))

    beside = damaged(lambda folder: _cut(pack(folder)))
    assert "replicated-00000.bin is cut short" in beside
    lost = damaged(lambda folder: pack(folder).unlink())
    assert "replicated-00000.bin is missing" in lost
    for at in (0, -1):
        changed = damaged(lambda folder, at=at: _flip(pack(folder), at))
        assert "replicated-00000.bin, array 'kernel': not what was saved" in changed
    mixed = damaged(lambda folder: shutil.copy(pack(other), pack(folder)))
    assert "replicated-00000.bin, array 'kernel': not what was saved" in mixed
    misplaced = damaged(
        lambda folder: _rewrite(
            folder, lambda content: content["replicated"]["arrays"]["kernel"].update(offset=64, checksums=[])
        )
    )
    assert "replicated-00000.bin, array 'kernel': not what was saved" in misplaced

    half = damaged(lambda folder: _cut(folder / "manifest.json"))
    assert f"{tmp_path / 'bad' / 'manifest.json'} cannot be read" in half

    none = damaged(lambda folder: (folder / "manifest.json").unlink())
    assert f"{tmp_path / 'bad' / 'manifest.json'} does not exist" in none

    newer = damaged(lambda folder: _rewrite(folder, lambda content: content.update(version=99)))
    assert "manifest.json has another version" in newer

    holes = damaged(lambda folder: _rewrite(folder, lambda content: content["tables"]["items"]["values"].pop(1)))
    assert "00002.npy does not follow the file before it" in holes


def _moved(table):
    table.variable.assign_add(np.ones(table.variable.shape, np.float32))
    return table


def _cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def _flip(path, at=-2):
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def _rewrite(folder, change):
    content = json.loads((folder / "manifest.json").read_text())
    change(content)
    (folder / "manifest.json").write_text(json.dumps(content))


def test_another_model_is_refused(tmp_path):
    save(tmp_path / "c")
    assert "no table 'users'" in refused(tmp_path / "c", name="users")
    shape = refused(tmp_path / "c", rows=24)
    assert "expected: (24, 3)" in shape
    assert "received: (23, 3)" in shape

    def other_optimizer(communicator):
        table = empty(communicator)
        table.slot("accumulator")
        load_tables(tmp_path / "c", [table], communicator)

    results = on_ranks(2, other_optimizer)
    assert all("nothing was saved of slot 'accumulator'" in str(result) for result in results)


def test_ranks_that_differ_write_nothing(tmp_path):
    def work(communicator):
        table = trained(communicator)
        if communicator.rank == 1:
            del table.slots["v"]
        save_tables(tmp_path / "c", [table], communicator)

    results = on_ranks(2, work)
    assert all("ranks 0 and 1 differ" in str(result) for result in results)
    assert not list((tmp_path / "c").iterdir())


def test_a_rank_that_sees_another_disk_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def work(communicator):
        # Two hosts without a shared folder see different files under one path.
        folder = tmp_path / f"disk{communicator.rank}" / "c"
        save_tables(folder, [trained(communicator)], _Lying(communicator, tmp_path))

    results = on_ranks(2, work)
    assert all("rank 1 on host1" in str(result) and "not seen here" in str(result) for result in results), results


class _Lying:
    """Hands rank 1 a path that stands for the same one on another disk."""

    def __init__(self, inner, folder):
        self.inner, self.folder = inner, folder

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def broadcast(self, value, root=0):
        return self.inner.broadcast(value, root).replace("disk0", f"disk{self.inner.rank}")


def test_two_tables_of_one_name_are_refused(tmp_path):
    def work(communicator):
        save_tables(tmp_path / "c", [trained(communicator), trained(communicator)], communicator)

    assert all("two tables are called 'items'" in str(result) for result in on_ranks(2, work))
