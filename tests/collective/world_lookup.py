"""Checks on any number of ranks: lookups and their gradients equal those of an unsharded table."""

import numpy as np
import pytest
import tensorflow as tf

from tests.collective.cases import STRIDE, as_dense, bags, draw_case, summed_gradient
from xmc_tf.collective.engines.operations import has_32_bit_sizes
from xmc_tf.collective.meters.traffic import bytes_sent
from xmc_tf.collective.tables import row_exchange as wires
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import make_table

CASES = 24
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def _flat(rows):
    return (rows.flat_values if isinstance(rows, tf.RaggedTensor) else tf.reshape(rows, [-1, rows.shape[-1]])).numpy()


def check_rows_and_gradients(world):
    for number in range(0, CASES, STRIDE):
        case = draw_case(number, world.size)
        table, ids = case.table(world.rank), case.tensor(world.rank, tf.int32 if number % 2 else tf.int64)
        factors = tf.constant(case.factors[world.rank])

        def forward(table=table, ids=ids, factors=factors):
            with tf.GradientTape() as tape:
                rows = lookup(table, ids)
                flat = rows.flat_values if isinstance(rows, tf.RaggedTensor) else tf.reshape(rows, [-1, table.dim])
                loss = tf.reduce_sum(flat * factors)
            return rows, tape.gradient(loss, table.variable)

        rows, gradient = (tf.function(forward) if number % 6 == 0 else forward)()
        assert rows.shape[:-1].as_list() == ids.shape.as_list()
        if case.shape == "ragged":
            np.testing.assert_array_equal(rows.row_splits, ids.row_splits)
        np.testing.assert_array_equal(_flat(rows), case.values[case.flat(world.rank)])
        mine = as_dense(gradient, table.local_rows, table.dim)
        np.testing.assert_allclose(mine, case.share(summed_gradient(case), table), **CLOSE)


def check_combiners(world):
    for number in range(0, CASES, 2 * STRIDE):
        case = draw_case(number, world.size, ["matrix", "cube", "ragged"][number % 3])
        table, ids = case.table(world.rank), case.tensor(world.rank)
        rng = np.random.default_rng(number)
        for combiner in ("sum", "mean"):
            for weighted in (False, True):
                every = [rng.uniform(0.5, 2, one.shape[0]).astype(np.float32) for one in case.factors]
                weights = tf.constant(every[world.rank]) if weighted else None
                if weighted:
                    weights = (
                        ids.with_flat_values(weights) if case.shape == "ragged" else tf.reshape(weights, ids.shape)
                    )
                with tf.GradientTape() as tape:
                    out = lookup(table, ids, combiner, weights=weights)
                    loss = tf.reduce_sum(out * (2.0 + world.rank))
                gradient = tape.gradient(loss, table.variable)
                wanted, whole = [], np.zeros(case.values.shape)
                for rank in range(world.size):
                    at = 0
                    for bag in bags(case, rank):
                        share = every[rank][at : at + len(bag)] if weighted else np.ones(len(bag))
                        share = share / share.sum() if combiner == "mean" and len(bag) else share
                        at += len(bag)
                        np.add.at(whole, np.asarray(bag, np.int64), share[:, None] * (2.0 + rank))
                        if rank == world.rank:
                            wanted.append(share @ case.values[np.asarray(bag, np.int64)])
                assert out.shape == [*ids.shape[:-1], table.dim]
                np.testing.assert_allclose(_flat(out), np.reshape(wanted, [-1, table.dim]), **CLOSE)
                mine = as_dense(gradient, table.local_rows, table.dim)
                np.testing.assert_allclose(mine, case.share(whole, table), **CLOSE)


def check_narrow_wires(world):
    """Rows are rounded once, and the sum of a rank's gradients of a row once: halves relatively, int8 by its largest.

    In int8, zeros, NaN and infinities stay what they are.
    """
    for wire, step in (("fp16", 2.0**-11), ("bf16", 2.0**-8), ("int8", None)):
        for number in (0, 3, 7, 11, 14, 18):  # of one column and of several on any number of ranks
            case = draw_case(number, world.size, "matrix")
            table = case.table(world.rank)
            with tf.GradientTape() as tape:
                rows = lookup(table, case.tensor(world.rank), wire=wire)
                loss = tf.reduce_sum(tf.reshape(rows, [-1, table.dim]) * case.factors[world.rank])
            exact = np.abs(case.values[case.ids[world.rank]])
            room = exact.max(axis=-1, keepdims=True) / 254 if step is None else step * exact
            assert (
                np.abs(rows - case.values[case.ids[world.rank]]) <= (1.001 if step is None else 1.0) * room + 1e-7
            ).all()
            gradient = as_dense(tape.gradient(loss, table.variable), table.local_rows, table.dim)
            room = np.zeros(case.values.shape)
            for rank in range(world.size):
                mine = np.zeros(case.values.shape)
                np.add.at(mine, case.flat(rank), case.factors[rank] if step is None else np.abs(case.factors[rank]))
                room += np.abs(mine).max(axis=1, keepdims=True) / 254 if step is None else step * mine
            error = np.abs(gradient - case.share(summed_gradient(case), table))
            assert (error <= 1.01 * case.share(room, table) + (1e-5 if step is None else 1e-6)).all()
            if world.size > 1 and number == 7 and wire == "bf16":
                assert world.allgather(float(error.sum())) != [0.0] * world.size  # values were rounded
    special = np.zeros((3, 5), np.float32)
    special[1, 2], special[2, 0] = np.nan, np.inf
    table = make_table("special", 3, 5, size=world.size, rank=world.rank, initializer=lambda ids: special[ids])
    found = lookup(table, [0, 1, 2], wire="int8").numpy()
    assert (found[0] == 0).all()
    if world.size > 1:
        assert not np.isfinite(found[1:]).any()


def check_ids_out_of_range(world):
    """All ranks raise an error that names the rank and its ids; later lookups work."""
    table = make_table("words", 5, 2, size=world.size, rank=world.rank)
    guilty = world.size - 1
    for call in (lookup, tf.function(lookup, reduce_retracing=True)):
        for wrong in (5, -7, 10**12):
            ids = tf.constant([1, wrong, 2] if world.rank == guilty else [0, 1, 1], tf.int64)
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                call(table, ids)
            said = str(caught.value)
            named = wrong if world.size == 1 else min(wrong, 2**31 - 1)
            assert f"table words has rows 0 to 4; ids out of range on rank {guilty}: {named}" in said
            assert world.allgather(world.rank) == list(range(world.size))
        np.testing.assert_array_equal(call(table, tf.constant([4, 0], tf.int64)).shape, [2, 2])


def check_constant_ids_in_a_graph(world):
    """TensorFlow would run operations with only constant inputs while it traces."""
    values = np.arange(60, dtype=np.float32).reshape(20, 3)
    table = make_table("constant", 20, 3, size=world.size, rank=world.rank, initializer=values)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            rows = lookup(table, [3, 19, 3], wire="bf16")
            loss = tf.reduce_sum(rows)
        return rows, tape.gradient(loss, table.variable)

    before = bytes_sent().get("rows", 0)
    for _ in range(2):
        rows, gradient = step()
        np.testing.assert_array_equal(rows, values[[3, 19, 3]])
    whole = np.zeros((20, 3))
    whole[[3, 19]] = [[2.0 * world.size], [1.0 * world.size]]
    mine = as_dense(gradient, table.local_rows, table.dim)
    np.testing.assert_array_equal(mine, whole[table.start : table.start + table.local_rows])
    # Twice, and not a third time during tracing.
    sent = bytes_sent().get("rows", 0) - before
    owned = sum(table.start <= row < table.start + table.local_rows for row in (3, 19))
    assert sent == 2 * owned * (world.size - 1) * 3 * 2


def check_more_than_can_be_counted(world):
    """Horovod counts numbers in 32 bits, MPI rows."""
    if world.size == 1:
        return  # nothing is sent
    table = make_table("too_much", 20, 3, size=world.size, rank=world.rank)
    try:
        wires.MOST_NUMBERS = 59
        for call in (lookup, tf.function(lookup)) if has_32_bit_sizes() else ():
            message = r"too_much/rows: one exchange would move \d+ rows of 3 numbers .*; the maximum is 59 numbers"
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                call(table, tf.range(20))
        wires.MOST_NUMBERS = 20 * world.size * 3
        assert lookup(table, tf.range(20)).shape == (20, 3)
    finally:
        wires.MOST_NUMBERS = 2**31 - 1


def check_only_one_rank_retraces(world):
    """Names match even if one rank traces again, for example for a smaller last batch."""
    table = make_table("words", 9, 2, size=world.size, rank=world.rank)
    traces = []

    @tf.function
    def twice(ids):
        traces.append(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(lookup(table, ids) * 2.0) + tf.reduce_sum(lookup(table, ids + 1) * 3.0)
        return loss, tape.gradient(loss, table.variable)

    for count in (4, 4, 3 if world.rank == 0 else 4, 4):
        ids = tf.range(count) + world.rank
        loss, _ = twice(ids)
        whole = np.concatenate(world.allgather(table.variable.numpy()))
        wanted = 2 * whole[ids.numpy()].sum() + 3 * whole[ids.numpy() + 1].sum()
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    assert len(traces) == (2 if world.rank == 0 else 1)


def check_bytes_of_rows(world):
    """Traffic is 2·U·d numbers for U different rows of other ranks, and the ids."""
    dim, rows = 64, 1000
    table = make_table("counted", rows, dim, size=world.size, rank=world.rank)
    ids = np.random.default_rng(3).integers(0, rows, (world.size, 600))
    for wire, width in (("fp32", 4 * dim), ("bf16", 2 * dim), ("int8", dim + 4)):
        before = bytes_sent()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.function(lookup)(table, tf.constant(ids[world.rank]), wire=wire))
        tape.gradient(loss, table.variable)
        sent = {kind: count - before.get(kind, 0) for kind, count in bytes_sent().items()}
        if world.size == 1:
            assert sum(sent.values()) == 0
            continue
        away = [np.unique(one) for one in ids]
        last = table.partition.bounds[1:]
        away = [one[np.searchsorted(last, one, side="right") != rank] for rank, one in enumerate(away)]
        total = sum(world.allgather(sum(sent.values())))
        formula = sum(len(one) for one in away) * (2 * width + 4)
        assert abs(total / formula - 1) < 0.1
        wanted_here = len(away[world.rank])
        assert sent["gradients of rows"] == wanted_here * width
