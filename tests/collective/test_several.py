"""Tests of several tables: the plan, initial values, checkpoints over other placements, and the export."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.collective.threads import on_ranks, results_of
from tests.refusals import refused
from xmc_tf import CollectiveStrategy
from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.embedding_collection.collection import EmbeddingCollection
from xmc_tf.collective.embedding_collection.planner import (
    EmbeddingTable,
    PlanOptions,
    make_plan,
)
from xmc_tf.common.errors import InputError

MANY = [EmbeddingTable("days", 7, 16), EmbeddingTable("users", 5_000_000, 16)] + [
    EmbeddingTable(f"shops_{number}", 20_000, 16) for number in range(20)
]


def placements(plan):
    return {one.table.name: one.placement for one in plan.decisions}


def test_the_plan_replicates_small_tables_shards_large_ones_and_spreads_the_others():
    plan = make_plan(MANY, 4, PlanOptions())
    chosen = placements(plan)
    assert chosen["days"] == "replicated"
    assert chosen["users"] == "rows"
    owners = [chosen[f"shops_{number}"] for number in range(20)]
    assert sorted(set(owners)) == [0, 1, 2, 3]
    assert max(owners.count(rank) for rank in range(4)) == 5
    memory = plan.memory()
    assert memory.max() < 1.1 * memory.min()
    total = sum(table.rows * table.dim * 4 * 3 for table in MANY)
    np.testing.assert_allclose(memory.sum(), total + 3 * 7 * 16 * 4 * 3)


def test_a_placement_of_the_user_is_kept():
    tables = [EmbeddingTable("days", 7, 16, placement="rows"), EmbeddingTable("users", 5_000_000, 16, placement=1)]
    assert placements(make_plan(tables, 2, PlanOptions())) == {"days": "rows", "users": 1}
    assert placements(make_plan(tables, 2, PlanOptions(memory=10**10))) == {"days": "rows", "users": 1}


def test_less_memory_shards_more_tables_and_too_little_is_refused():
    tables = [EmbeddingTable("few", 100, 8), *(EmbeddingTable(f"t{number}", 9000, 8) for number in range(5))]
    options = PlanOptions()
    roomy = make_plan(tables, 2, options)
    total = sum(4 * 3 * table.rows * table.dim for table in tables)
    tight = make_plan(tables, 2, PlanOptions(memory=total // 2 + 100))
    assert tight.memory().max() <= total // 2 + 100 < roomy.memory().max()
    refused("do not fit into the memory of 2 ranks", make_plan, tables, 2, PlanOptions(memory=total // 2 - 1000))


def described(**changes):
    return EmbeddingTable(**{"name": "users", "rows": 10, "dim": 4, **changes})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *(
            (lambda one=one: make_plan([described(placement=one)], 2, PlanOptions()), "a rank from 0 to 1")
            for one in ("anywhere", 2, -1, True, 1.0)
        ),
        (lambda: described(rows=0), "at least one row"),
        (lambda: described(combiner="max"), "combiner of table"),
        (lambda: described(features="user"), "a tuple of names"),
    ],
)
def test_wrong_tables_and_placements_are_refused(make, message):
    refused(message, make)


def collection(communicator, cuts, seed=3):
    tables = [
        EmbeddingTable(name, rows, dim, placement=communicator.size - 1 if cut == "last" else cut)
        for (name, rows, dim), cut in zip([("users", 13, 8), ("words", 5000, 8), ("days", 7, 6)], cuts, strict=True)
    ]
    plan = make_plan(tables, communicator.size, PlanOptions())
    return EmbeddingCollection(plan, communicator.rank, seed=seed, name="tables")


def whole_tables(layers, of=lambda table: table.variable):
    """Return each whole table, put together from the ranges of all ranks."""
    found = {"users": np.full((13, 8), np.nan), "words": np.full((5000, 8), np.nan), "days": np.full((7, 6), np.nan)}
    for layer in layers:
        for table in layer.tables:
            rows = of(table)
            here = tf.gather(rows.source, rows.order).numpy()
            found[table.name][table.start : table.start + table.local_rows] = here
    return found


CUTS = [("last", "rows", "replicated"), ("rows", "replicated", "last"), ("replicated", "last", "rows")]


@pytest.mark.parametrize(("cuts", "size"), [(CUTS[0], 1), (CUTS[1], 2), (CUTS[2], 4)])
def test_initial_values_do_not_depend_on_placement_and_ranks(cuts, size):
    wanted = whole_tables(results_of(on_ranks(1, lambda world: collection(world, ["rows"] * 3))))
    assert all(np.isfinite(values).all() and values.std() > 0.01 for values in wanted.values())
    found = whole_tables(results_of(on_ranks(size, lambda world: collection(world, cuts))))
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(("after", "size"), [(CUTS[1], 2), (CUTS[2], 4), (CUTS[0], 1)])
def test_a_checkpoint_loads_in_another_placement_on_another_number_of_ranks(tmp_path, after, size):
    def save(world):
        layer = collection(world, CUTS[0])
        for stack in layer.stacks:
            stack.table.slot("m").assign(2.0 * stack.table.variable)
        save_tables(tmp_path / "run", layer.tables, world, step=3)
        return layer

    def load(world):
        layer = collection(world, after, seed=4)
        load_tables(tmp_path / "run", layer.tables, world)
        return layer

    saved = results_of(on_ranks(3, save))
    loaded = results_of(on_ranks(size, load))
    wanted, found = whole_tables(saved), whole_tables(loaded)
    slots = whole_tables(loaded, lambda table: table.slots["m"])
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
        np.testing.assert_array_equal(slots[name], 2.0 * values)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    results_of(on_ranks(2, lambda world: save_tables(tmp_path / "run", collection(world, CUTS[0]).tables, world)))
    for wrong in (EmbeddingTable("users", 13, 4), EmbeddingTable("users", 14, 8), EmbeddingTable("users", 13, 16)):
        layer = EmbeddingCollection(make_plan([wrong], 1, PlanOptions()), 0, name="wrong")
        (error,) = on_ranks(1, lambda world, layer=layer: load_tables(tmp_path / "run", layer.tables, world))
        assert isinstance(error, InputError)
        assert "was saved with another shape" in str(error)


def test_the_export_of_a_keras_model_equals_the_model(tmp_path):
    strategy = CollectiveStrategy()
    with strategy.scope():
        layer = strategy.embeddings(
            [
                EmbeddingTable("users", 50, 4, ("user", "friends")),
                EmbeddingTable("words", 30, 4, combiner="mean"),
            ]
        )
        inputs = {
            "user": keras.Input([], dtype=tf.int64, name="user"),
            "friends": keras.Input([2], dtype=tf.int64, name="friends"),
            "words": keras.Input([3], dtype=tf.int64, name="words"),
        }
        found = layer(inputs)
        whole = keras.layers.Concatenate()([found[name] for name in ("user", "friends", "words")])
        model = keras.Model(inputs, keras.layers.Dense(1, name="score")(whole))
    rng = np.random.default_rng(0)
    batch = {
        "user": tf.constant(rng.integers(0, 50, 6)),
        "friends": tf.constant(rng.integers(0, 50, (6, 2))),
        "words": tf.constant(rng.integers(0, 30, (6, 3))),
    }
    strategy.export_saved_model(tmp_path / "served" / "1", model)
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    np.testing.assert_allclose(served(**batch)["score"], model(batch), rtol=1e-5, atol=1e-7)


def test_missing_and_doubled_names_are_refused():
    strategy = CollectiveStrategy()
    layer = strategy.embeddings([EmbeddingTable("users", 5, 2), EmbeddingTable("words", 5, 2)])
    refused("no ids for feature 'words'", layer, {"users": tf.constant([1])})
    refused("there is already a table 'users'", strategy.embeddings, [EmbeddingTable("users", 5, 2)], name="again")
    with pytest.raises(InputError, match="the feature 'id' occurs twice"):
        strategy.embeddings([EmbeddingTable("a", 5, 2, ("id",)), EmbeddingTable("b", 5, 2, ("id",))], name="third")
    refused("ids of feature 'users'", layer, {"users": tf.constant([1.0]), "words": tf.constant([1])})
