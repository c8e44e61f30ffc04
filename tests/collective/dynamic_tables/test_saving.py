"""Tests of checkpoints and exports of growing tables, by ranks that are threads."""

import numpy as np
import tensorflow as tf

from tests.collective.threads import on_ranks, results_of
from tests.plain_tensorflow import ask, foreign_operations, nodes
from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.dynamic_tables.index import hash_ids
from xmc_tf.collective.dynamic_tables.keras_embedding import growing_lookup
from xmc_tf.collective.dynamic_tables.table import make_growing_table
from xmc_tf.collective.saved_model import Signature, export_saved_model
from xmc_tf.collective.tables.table import make_table
from xmc_tf.common.errors import InputError

IDS = np.array([f"item {number}" for number in range(300)])
HASHES = hash_ids(tf.constant(IDS)).numpy()
DIM = 3


def values_of(hashes):
    """Return rows that show their ids."""
    return (hashes[:, None] % [1009, 1013, 1019]).astype(np.float32)


def part_of(world, **options):
    return make_growing_table("items", DIM, size=world.size, rank=world.rank, **options)


def own(table, hashes):
    low, high = table.partition.range(table.rank)
    return hashes[(hashes >= low) & (hashes < high)]


def trained(world):
    """Return a table that has seen ids: the first hundred in two steps, the next hundred in one."""
    table = part_of(world, admit_after=2)
    slot = table.slot("m", 0.5)
    # In another order on each number of ranks.
    order = np.random.default_rng(world.size).permutation(200)
    for step, some in enumerate((order, order[order < 100])):
        table.rows_of(tf.constant(own(table, HASHES[some])), training=True)
        table.finish_step(tf.constant(step + 1))
    mine = own(table, HASHES[:100])
    rows = table.index.find(mine)
    table.variable.scatter_update(tf.IndexedSlices(values_of(mine), rows))
    slot.scatter_update(tf.IndexedSlices(values_of(mine) + 0.5, rows))
    return table


def contents(table):
    """Return what a table knows, by hash."""
    entries = table.index.entries
    values, slot = table.variable.numpy(), table.slots["m"].numpy()
    return {
        int(one): (int(count), int(last), *(values[row].tolist() if row else ()), *(slot[row].tolist() if row else ()))
        for one, count, last, row in zip(*entries, strict=True)
    }  # fmt: skip


def test_a_checkpoint_of_three_ranks_loads_on_other_numbers_of_ranks(tmp_path):
    before = results_of(on_ranks(3, lambda world: _save(world, tmp_path / "three")))
    assert min(map(len, before)) > 30
    whole = {one: seen for part in before for one, seen in part.items()}
    assert len(whole) == 200
    for one, seen in whole.items():
        number = int(np.flatnonzero(one == HASHES)[0])
        expected = (*values_of(HASHES[[number]])[0], *values_of(HASHES[[number]])[0] + 0.5)
        assert seen == ((2, 1, *expected) if number < 100 else (1, 0))

    def load(world):
        table = part_of(world, admit_after=2)
        table.slot("m", 0.5)
        table.rows_of(tf.constant(own(table, HASHES[250:])), training=True)  # replaced by what is loaded
        other = make_table("other", 5, 2, size=world.size, rank=world.rank, initializer="zeros")
        extra = load_tables(tmp_path / "three", [table, other], world)
        assert extra["kernel"].tolist() == [1.0, 2.0]
        assert (other.variable.numpy() == 1.0).all()
        assert int(table.step) == 2
        known = contents(table)
        # Training goes on: a new id gets a fresh row, and one that is not admitted yet is now.
        new = own(table, HASHES[[150, 299]])
        rows = table.rows_of(tf.constant(own(table, HASHES[[150, 150, 299]])), training=True).numpy()
        assert {bool(row) for row in rows} <= {True, False}
        for one, row in zip(new, table.index.find(new), strict=True):
            assert (row > 0) == (one == HASHES[150])
            if row:
                np.testing.assert_array_equal(table.variable.numpy()[row], table.initial(np.array([one]))[0])
                assert table.slots["m"].numpy()[row].tolist() == [0.5] * DIM
        return known

    for size in (1, 2, 5):
        assert {one: seen for part in results_of(on_ranks(size, load)) for one, seen in part.items()} == whole

    # A checkpoint has the same rows in the same order, whatever the number of ranks.
    results_of(on_ranks(1, lambda world: _save(world, tmp_path / "one")))
    joined = {
        folder: [np.concatenate([np.load(file) for file in sorted((tmp_path / folder).glob(f"data-*/{part}*"))])
                 for part in ("00-items.values", "00-items.m", "01-items_ids")]
        for folder in ("one", "three")
    }  # fmt: skip
    for one, three in zip(joined["one"], joined["three"], strict=True):
        np.testing.assert_array_equal(one, three)


def _save(world, folder):
    table = trained(world)
    other = make_table("other", 5, 2, size=world.size, rank=world.rank, initializer="ones")
    save_tables(folder, [table, other], world, {"kernel": np.array([1.0, 2.0])}, step=2)
    return contents(table)


def test_loading_without_slots_and_into_another_table(tmp_path):
    results_of(on_ranks(2, lambda world: _save(world, tmp_path)))

    def load(world):
        table = part_of(world)
        load_tables(tmp_path, [table], world, slots=False)
        assert not table.slots
        rows = table.index.find(HASHES[:100])
        np.testing.assert_array_equal(table.variable.numpy()[rows], values_of(HASHES[:100]))

    results_of(on_ranks(1, load))
    plain = on_ranks(1, lambda world: load_tables(tmp_path, [make_growing_table("other", 2)], world))
    assert isinstance(plain[0], InputError)
    assert "has no growing table 'other'" in str(plain[0])


def test_an_empty_table_is_saved_loaded_and_exported(tmp_path):
    def work(world):
        table = part_of(world)
        save_tables(tmp_path / "checkpoint", [table], world)
        load_tables(tmp_path / "checkpoint", [table], world)
        assert table.index.rows == 0
        export_saved_model(tmp_path / "served", {"serving_default": _signature(table)}, [table], world)

    results_of(on_ranks(2, work))
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    assert not loaded.signatures["serving_default"](ids=tf.constant(["a"]))["rows"].numpy().any()


def _signature(table):
    def rows(ids):
        return {
            "rows": growing_lookup(table, ids, training=False),
            "mean": growing_lookup(table, ids[None], "mean", training=False),
        }

    return Signature(rows, [tf.TensorSpec([None], tf.string, "ids")])


def test_plain_tensorflow_finds_known_ids_and_gives_zeros_for_others(tmp_path):
    def work(world, folder):
        table = trained(world)
        export_saved_model(tmp_path / folder, {"serving_default": _signature(table)}, [table], world)

    results_of(on_ranks(1, lambda world: work(world, "one")))
    results_of(on_ranks(3, lambda world: work(world, "three")))
    asked = [*IDS[:100].tolist(), IDS[150], "never seen", ""]  # item 150 is not admitted
    answers = ask(tmp_path / "three", ids=asked)
    assert foreign_operations(tmp_path / "three") == set()
    assert not [node.op for node in nodes(tmp_path / "three") if "PyFunc" in node.op]
    expected = np.concatenate([values_of(HASHES[:100]), np.zeros([3, DIM])])
    np.testing.assert_array_equal(answers["rows"], expected)
    np.testing.assert_allclose(answers["mean"][0], expected.mean(axis=0), rtol=1e-5)
    of_one = tf.saved_model.load(str(tmp_path / "one")).signatures["serving_default"](ids=tf.constant(asked))
    np.testing.assert_array_equal(answers["rows"], of_one["rows"])
