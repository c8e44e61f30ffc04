"""Tests of the strategy's scopes and errors; world_fit.py tests training."""

import ast
import contextlib
import inspect
import pydoc
import re
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import xmc_tf
from tests.collective.threads import on_ranks, results_of
from tests.refusals import refused
from xmc_tf import CollectiveStrategy
from xmc_tf.collective import keras_names
from xmc_tf.collective.fitting.metrics import metrics_of_all_ranks
from xmc_tf.collective.meters.traffic import TrafficSummaries, count_bytes
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.optimizers.row_wise.keras_forms import exact_form_of, names_of_forms, row_wise_of
from xmc_tf.collective.optimizers.row_wise.optimizers import RowAdagrad
from xmc_tf.collective.optimizers.row_wise.updating import update_rows
from xmc_tf.collective.tables.keras_embedding import ShardedEmbedding
from xmc_tf.collective.tables.lookup import ids_out_of_range_in_one_line, lookup
from xmc_tf.collective.tables.pairs import PairScorer
from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.solo import Solo

Embedding = keras.layers.Embedding


@pytest.fixture
def strategy():
    return xmc_tf.CollectiveStrategy(Solo())


def test_only_large_embeddings_inside_the_scope_are_sharded(strategy):
    original = Embedding.__new__
    with strategy.embedding_scope(shard_above=4 * 10 * 2):
        large, small = Embedding(11, 2), Embedding(10, 2)
    outside = Embedding(1000, 2)
    assert [type(one) for one in (large, small, outside)] == [ShardedEmbedding, Embedding, Embedding]
    assert Embedding.__new__ is original
    assert large(tf.constant([[1, 2]])).shape == [1, 2, 2]
    assert [table.name for table in strategy.tables] == [large.name]
    assert large.trainable_variables[0].value is strategy.tables[0].variable


def test_an_error_ends_the_scope(strategy):
    original, compile_ = Embedding.__new__, keras.Model.compile
    with pytest.raises(ZeroDivisionError), strategy.scope(), strategy.embedding_scope():
        _ = 1 / 0
    assert (Embedding.__new__, keras.Model.compile) == (original, compile_)


def test_models_and_embeddings_of_keras_2_are_refused(strategy):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    with pytest.raises(InputError, match=r"(?s)a model inside strategy\.scope.*Keras 2"), strategy.scope():
        model.compile("adam", "mse")
    with (
        pytest.raises(InputError, match=r"(?s)an Embedding inside embedding_scope.*Keras 2"),
        strategy.embedding_scope(),
    ):
        tf_keras.layers.Embedding(100, 8)
    with pytest.raises(InputError, match="import keras"), strategy.scope():
        keras.Sequential([keras.layers.Dense(1)]).compile(tf_keras.optimizers.Adam(), "mse")
    tf_keras.layers.Embedding(100, 8)
    model.compile("adam", "mse")


def test_another_backend_of_keras_is_refused(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    refused(r"received: jax.*\n.*KERAS_BACKEND=tensorflow", xmc_tf.CollectiveStrategy, Solo())


def test_ragged_and_masked_ids(strategy):
    with strategy.embedding_scope(shard_above=0):
        layer = Embedding(10, 2, mask_zero=True, embeddings_initializer="ones")
    rows = layer(tf.ragged.constant([[1, 2, 3], []]))
    assert isinstance(rows, tf.RaggedTensor)
    assert rows.shape == [2, None, 2]
    np.testing.assert_array_equal(layer.compute_mask(tf.constant([[0, 4]])), [[False, True]])


@pytest.mark.parametrize("sizes", [("a", 8), (8, "a"), (2.5, 8), (None, 8), (0, 8), (8,)])
def test_sizes_of_embeddings_that_keras_refuses_are_refused_by_keras(strategy, sizes):
    with pytest.raises((TypeError, ValueError)) as plain:
        Embedding(*sizes)
    with pytest.raises(type(plain.value)) as ours, strategy.embedding_scope(shard_above=0):
        Embedding(*sizes)
    assert str(ours.value) == str(plain.value)


def test_an_embedding_with_weights_has_them_before_it_is_called(strategy):
    given = np.arange(6, dtype=np.float32).reshape(3, 2)
    for weights in (given, [given]):
        with strategy.embedding_scope(shard_above=0):
            layer = Embedding(3, 2, weights=weights)
        assert isinstance(layer, ShardedEmbedding)
        np.testing.assert_array_equal(layer.embeddings.numpy(), given)
        np.testing.assert_array_equal(layer(tf.constant([2])), given[2:])
    assert len(strategy.tables) == 2


@pytest.mark.parametrize("jit_compile", [False, True])
def test_sparse_ids_and_compiled_lookups_are_those_of_keras(strategy, jit_compile):
    given = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    plain = Embedding(9, 2, weights=given)
    with strategy.embedding_scope(shard_above=0):
        ours = Embedding(9, 2, weights=given)
    sparse = tf.SparseTensor([[1, 2], [0, 0]], tf.constant([5, 3], tf.int64), [3, 4])  # in no order

    def step(layer, ids):
        @tf.function(jit_compile=jit_compile)
        def found(ids):
            with tf.GradientTape() as tape:
                rows = layer(ids)
                loss = tf.reduce_sum(rows * tf.reshape(tf.range(tf.size(rows), dtype=tf.float32), tf.shape(rows)))
            return rows, tf.convert_to_tensor(tape.gradient(loss, layer.embeddings.value))

        return found(ids)

    for ids in [tf.constant([[5, 3], [3, 0]])] + [sparse] * (not jit_compile):  # XLA has no sparse tensors
        for mine, theirs in zip(step(ours, ids), step(plain, ids), strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, atol=1e-6)


@pytest.mark.parametrize("option", ["embeddings_regularizer", "activity_regularizer"])
def test_unsupported_options_of_sharded_embeddings_are_refused(strategy, option):
    with pytest.raises(InputError, match=option), strategy.embedding_scope(shard_above=0):
        Embedding(10, 2, **{option: "l2"})


def test_variables_inside_and_outside_have_the_same_initial_values(strategy):
    with strategy.embedding_scope(shard_above=0):
        table = strategy.variable("v", (1000, 3))
    with strategy.scope():
        plain = strategy.variable("v", (1000, 3))
    assert isinstance(table, ShardedTable)
    np.testing.assert_array_equal(table.variable, plain)
    ids = tf.constant([[0, 999], [5, 5]])
    for combiner in (None, "mean"):
        np.testing.assert_array_equal(strategy.lookup(table, ids, combiner), strategy.lookup(plain, ids, combiner))


def test_compiled_inside_the_scope_or_not(strategy):
    def compiled(optimizer):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
        return model.optimizer

    with strategy.scope():
        assert isinstance(compiled("adam"), CollectiveOptimizer)
        own = strategy.optimizer("sgd")
        assert compiled(own) is own
    assert isinstance(compiled("adam"), keras.optimizers.Adam)


def test_tables_may_have_their_own_optimizer(strategy):
    table = make_table("t", 2, 1)
    optimizer = strategy.optimizer(keras.optimizers.RMSprop(), table_optimizer=RowAdagrad(0.1))
    optimizer.apply_gradients([(tf.ones([2, 1]), table.variable)])
    assert list(table.slots) == ["accumulator"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: keras.optimizers.Adam(use_ema=True), r"use_ema(.|\n)*exact=True"),
        *(
            (getattr(keras.optimizers, name), rf"{name}(.|\n)*exact=True")
            for name in sorted({"Adadelta", "Lion", "Nadam"} - {*names_of_forms()})
        ),
        (lambda: ChangedAdam(), r"a subclass that changes nothing of the update(.|\n)*ChangedAdam"),
        (
            lambda: keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(keras.optimizers.SGD())),
            r"MultiOptimizer(.|\n)*table_optimizer=",
        ),
        (lambda: tf_keras.optimizers.Adam(), "import keras` instead of `import tf_keras"),
    ],
)
def test_unsupported_optimizers_are_refused_before_the_first_step(strategy, make, said):
    with strategy.scope(), strategy.embedding_scope(shard_above=0):
        model = keras.Sequential([Embedding(9, 2), keras.layers.Dense(1)])
        refused(said, model.compile, make(), "mse")


class NamedAdam(keras.optimizers.Adam):
    """Changes nothing of the update."""

    def __init__(self, extra=3, **options):
        super().__init__(**options)
        self.extra = extra

    def get_config(self):
        return {**super().get_config(), "extra": self.extra}


class ChangedAdam(keras.optimizers.Adam):
    def update_step(self, gradient, variable, learning_rate):
        super().update_step(-gradient, variable, learning_rate)


def test_the_optimizer_of_a_model_is_still_that_of_the_user(strategy):
    with strategy.scope(), strategy.embedding_scope(shard_above=0):
        model = keras.Sequential([Embedding(9, 2), keras.layers.Dense(1)])
        model.compile(NamedAdam(beta_1=0.8, name="mine"), "mse")
    found = model.optimizer
    assert isinstance(found, CollectiveOptimizer)
    assert isinstance(found, keras.optimizers.Adam)
    assert not isinstance(found, keras.optimizers.SGD)
    assert (found.name, found.beta_1, found.extra) == ("mine", 0.8, 3)
    with pytest.raises(AttributeError, match="no_such_option"):
        found.no_such_option  # noqa: B018


@pytest.fixture
def mixed_float16():
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def trained(strategy, optimizer, *, built=True):
    """Return a model after two steps, in the strategy or in plain Keras, and its data."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=(8, 1)).astype(np.float32)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        layers = [keras.layers.Dense(2, kernel_initializer="ones"), keras.layers.Dense(1, kernel_initializer="ones")]
        model = keras.Sequential([*[keras.Input([3])] * built, *layers])
        model.compile(optimizer, "mse")
    model.fit(*data, batch_size=4, shuffle=False, verbose=0)
    return model, data


def test_an_optimizer_that_starts_with_the_values_of_weights_trains_a_model_that_is_not_built(strategy):
    mine, theirs = (trained(one, keras.optimizers.ScheduleFreeAdamW(0.1), built=False)[0] for one in (strategy, None))
    for ours, plain in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-6)


def test_each_variable_has_one_path(strategy):
    keras.utils.clear_session()
    model, _ = trained(strategy, "adam")
    assert {"sequential/dense/kernel", "adam/learning_rate"} <= set(model._get_variable_map())


def test_checkpoints_of_tensorflow_are_those_of_plain_keras(strategy, tmp_path):
    optimizers = [keras.optimizers.Adam(0.1), keras.optimizers.Adam(0.1)]
    (ours, data), (plain, _) = (trained(one, made) for one, made in zip((strategy, None), optimizers, strict=True))
    for number, (model, other) in enumerate([(ours, plain), (plain, ours)]):
        path = tf.train.Checkpoint(model, optimizer=optimizers[number]).save(tmp_path / "saved")
        expected = [*model.get_weights(), *(one.numpy() for one in model.optimizer.variables)]
        other.fit(*data, verbose=0)
        tf.train.Checkpoint(other, optimizer=optimizers[1 - number]).restore(path).assert_existing_objects_matched()
        found = [*other.get_weights(), *(one.numpy() for one in other.optimizer.variables)]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("by_user", [False, True])
def test_a_loss_scale_optimizer_is_seen_and_saved_as_by_keras(strategy, by_user, tmp_path, mixed_float16):
    scaled = keras.optimizers.LossScaleOptimizer
    options = {"initial_scale": 8.0, "dynamic_growth_steps": 2} if by_user else {}
    for first, second in ((strategy, None), (None, strategy)):
        given = scaled(keras.optimizers.Adam(0.1), **options) if by_user else keras.optimizers.Adam(0.1)
        model, data = trained(first, given)
        assert isinstance(model.optimizer, scaled)
        assert isinstance(model.optimizer.inner_optimizer, keras.optimizers.Adam)
        model.save(tmp_path / "model.keras")
        with contextlib.nullcontext() if second is None else second.scope():
            loaded = keras.models.load_model(tmp_path / "model.keras")
        assert isinstance(loaded.optimizer, scaled)
        for one in (model, loaded):
            one.fit(*data, batch_size=4, shuffle=False, verbose=0)
        for mine, theirs in zip(model.get_weights(), loaded.get_weights(), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-3)
        each = [(one.optimizer, getattr(one.optimizer, "loss_scale", None)) for one in (model, loaded)]
        kept = [(one.dynamic_scale, one.step_counter) if s is None else (s.value, s.good_steps) for one, s in each]
        assert len({(float(scale.numpy()), int(steps.numpy())) for scale, steps in kept}) == 1


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("Adafactor", "means over the rows"),
        ("Muon", "as a matrix"),
        ("ScheduleFreeAdamW", "the values of the variables"),
    ],
)
def test_exact_training_refuses_optimizers_that_need_whole_tables(name, cause):
    strategy = CollectiveStrategy(exact=True)
    with strategy.scope(), strategy.embedding_scope(shard_above=0):
        model = keras.Sequential([Embedding(9, 2), keras.layers.Dense(1)])
        refused(f"{name}(.|\n)*{cause}", model.compile, getattr(keras.optimizers, name)(0.01), "mse")


# With options that are not the defaults.
THEIRS = [
    keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    keras.optimizers.Adagrad(0.05),
    keras.optimizers.AdamW(0.01, weight_decay=0.1),
    keras.optimizers.Adam(0.01, amsgrad=True),
    keras.optimizers.Adamax(0.01, beta_2=0.9, weight_decay=0.1),
    keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True, weight_decay=0.1),
    keras.optimizers.RMSprop(0.01),
    keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.1, l2_regularization_strength=0.1, beta=0.2),
    keras.optimizers.Ftrl(0.1, -0.7, l2_shrinkage_regularization_strength=0.1),
]


@pytest.mark.parametrize("theirs", THEIRS, ids=lambda one: one.name)
def test_row_wise_forms_equal_keras_if_each_step_touches_each_row(theirs):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 3)).astype(np.float32)
    table, plain = make_table("t", 6, 3, initializer=values), tf.Variable(values)
    ours = row_wise_of(theirs)
    for step in range(20):
        gradient = tf.constant(rng.normal(size=(6, 3)), tf.float32)
        update_rows(ours, table, tf.range(6), gradient, step + 1)
        theirs.apply_gradients([(gradient, plain)])
    np.testing.assert_allclose(table.variable, plain, atol=1e-6)
    assert len(ours.slots) == len(theirs.variables) - 2  # the step and the rate


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("theirs", [THEIRS[0], *THEIRS[1:4], *THEIRS[5:7]], ids=lambda one: one.name)
def test_exact_updates_equal_keras_and_read_each_row_once(theirs, traced, monkeypatch):
    monkeypatch.setattr("xmc_tf.collective.optimizers.row_wise.updating._NUMBERS_OF_BLOCK", 14)  # 4 rows
    rng, options = np.random.default_rng(0), theirs.get_config() | {"weight_decay": 0.1, "use_ema": True}
    values = rng.normal(size=(11, 3)).astype(np.float32)
    plain, theirs = tf.Variable(values), type(theirs).from_config(options)
    strategy = CollectiveStrategy(Solo(), exact=True)
    variable = strategy.table("items", 11, 3, values).variable
    ours = strategy.optimizer(type(theirs).from_config(options))
    ours._form = exact_form_of(ours.inner, size=2)  # one process lets Keras update all rows
    rows = rng.integers(0, 9, (30, 6)) * (rng.random((30, 1)) < 0.7)  # rows repeat, and rest for some steps
    gradients = [
        tf.IndexedSlices(tf.constant(rng.normal(size=(6, 3)), tf.float32), tf.constant(one), tf.constant([11, 3]))
        for one in rows
    ]
    for gradient in gradients:
        theirs.apply_gradients([(gradient, plain)])
    monkeypatch.setattr(type(theirs), "update_step", None)  # it reads and writes all rows several times
    step = tf.function(ours.apply_gradients, autograph=False) if traced else ours.apply_gradients
    for gradient in gradients:
        step([(gradient, variable)])
    for own, one in zip([variable, *ours.inner.variables], [plain, *theirs.variables], strict=True):
        np.testing.assert_allclose(own.numpy(), one.numpy(), atol=2e-6, err_msg=one.name)


@pytest.mark.parametrize(
    "options",
    [{"clipnorm": 0.3}, {"gradient_accumulation_steps": 2}, {"gradient_accumulation_steps": 2, "global_clipnorm": 0.3}],
    ids=str,
)
def test_clipped_and_accumulated_gradients_are_those_of_keras(strategy, options):
    """Without momentum, and with each id once in a batch, row-wise updates are those of Keras."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=size).astype(np.float32) for size in ((9, 2), (2, 3), 3)]
    ids = np.concatenate([rng.permutation(9)[:8].reshape(4, 2) for _ in range(4)])
    targets, found = rng.normal(size=(16, 2, 3)), []
    for scope in (strategy.embedding_scope(shard_above=0), contextlib.nullcontext()):
        with scope:
            model = keras.Sequential([keras.Input([2]), Embedding(9, 2), keras.layers.Dense(3)])
        with contextlib.nullcontext() if found else strategy.scope():
            model.compile(keras.optimizers.SGD(0.2, **options), "mse")
        model.set_weights(values)
        model.fit(ids, targets, batch_size=4, shuffle=False, verbose=0)
        found.append(model.get_weights())
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_exact_forms_are_those_that_square_gradients_as_keras_does():
    exact = {type(one).__name__ for one in THEIRS if exact_form_of(one, size=2) is not None}
    assert exact == {"SGD", "Adagrad", "AdamW", "Adam", "RMSprop"}
    assert exact_form_of(keras.optimizers.SGD(0.1), size=2) is None
    assert exact_form_of(keras.optimizers.Adam(0.1), size=1) is None


def test_all_row_wise_forms_are_compared_with_keras():
    assert {type(one).__name__ for one in THEIRS} == set(names_of_forms())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda table: lookup(table, [1], "max"), "combiner"),
        (lambda table: lookup(table, [1.5]), "whole numbers"),
        (lambda table: lookup(table, [1], weights=tf.ones([1])), "without a combiner"),
        (lambda table: lookup(table, [1], wire="fp8"), "wire format"),
        (lambda table: lookup(table, 1, "sum"), "one dimension or more"),
        (lambda table: PairScorer(table, "both"), "route"),
        (lambda table: PairScorer(table).scores(tf.ones([2, 3]), tf.constant([1, 2])), "ids of pairs"),
    ],
)
def test_invalid_calls_are_refused(call, said):
    refused(said, call, make_table("t", 5, 3))


def test_a_table_name_with_a_space_is_part_of_the_error():
    line = "^table my table has rows 0 to 9; ids out of range on rank 0: 99$"
    with pytest.raises(InputError, match=line), ids_out_of_range_in_one_line():
        lookup(make_table("my table", 10, 2), tf.constant([1, 99]))


def test_metrics_of_the_first_rank_are_those_of_all_ranks():
    def work(world):
        variable = keras.Variable(float(world.rank + 1), aggregation="only_first_replica")
        with metrics_of_all_ranks(SimpleNamespace(metrics=[SimpleNamespace(variables=[variable])]), world):
            return float(variable.numpy())

    assert results_of(on_ranks(2, work)) == [1.0, 1.0]


def test_sparse_ids_are_bags():
    table = make_table("t", 5, 3)
    ids = tf.SparseTensor([[0, 0], [0, 3], [2, 1]], tf.constant([4, 1, 2], tf.int64), [3, 4])
    whole = table.variable.numpy()
    np.testing.assert_allclose(lookup(table, ids, "sum"), [whole[4] + whole[1], np.zeros(3), whole[2]], rtol=1e-6)


@pytest.mark.parametrize(("accumulate", "per_step"), [(None, 100), (2, 200)])
def test_traffic_is_shown_in_tensorboard(tmp_path, accumulate, per_step):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(gradient_accumulation_steps=accumulate), "mse")
    count_bytes("rows", 0)
    step = keras.callbacks.LambdaCallback(on_batch_begin=lambda batch, logs: count_bytes("rows", 100))
    model.fit(np.ones((8, 2)), np.ones(8), batch_size=2, callbacks=[TrafficSummaries(tmp_path), step], verbose=0)
    seen = {}
    for file in tmp_path.glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            seen |= {value.tag: float(tf.make_ndarray(value.tensor)) for value in event.summary.value}
    assert seen["bytes sent/rows"] == 400
    assert seen["bytes sent per step/rows"] == per_step


def names_in(tree):
    """Return the names with one underscore that code uses, and those that it defines."""
    used, own = set(), {"_flatten", "_initial_value", "_is_initialized_op"}  # those of TensorFlow
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            (own if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self" else used).add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.keyword | ast.Constant):
            used.add(node.arg if isinstance(node, ast.keyword) else node.value)
    return used, own


def test_all_private_names_of_keras_are_listed_and_exist():
    folder = Path(keras_names.__file__).parent
    each = [names_in(ast.parse(path.read_text())) for path in folder.rglob("*.py") if path.stem != "keras_names"]
    used, own = (set().union(*kind) for kind in zip(*each, strict=True))
    private = {one for one in used - own if re.fullmatch("_[a-z]+(_[a-z]+)*", str(one)) and "xmc_tf" not in one}
    names = [path.rpartition(".")[::2] for path in keras_names.KERAS_NAMES]
    assert private <= {name for _, name in names}
    assert len(names) <= 15

    def has(owner, name):
        classes = owner.__mro__[:-1] if isinstance(owner, type) else [owner]
        return hasattr(owner, name) or any(name in inspect.getsource(one) for one in classes)

    assert [f"{path}.{name}" for path, name in names if not has(pydoc.locate(path), name)] == []
