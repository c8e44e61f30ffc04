"""Checks on any number of ranks: both routes of pair scoring equal an unsharded table."""

import numpy as np
import pytest
import tensorflow as tf

from tests.collective.cases import STRIDE, as_dense, draw_case
from xmc_tf.collective.meters.traffic import bytes_sent
from xmc_tf.collective.tables.pairs import PairScorer, features_bytes, rows_bytes
from xmc_tf.collective.tables.table import make_table

CASES = 12
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def squared_hinge(scores, targets):
    return tf.square(tf.nn.relu(1.0 - scores * targets))


def _draw(number, size):
    """Return a case and, for each rank, vectors, ids of pairs, targets and weights."""
    case = draw_case(number, size, "ragged" if number % 2 else "matrix")
    rng = np.random.default_rng(number)
    dim, ranks = case.values.shape[1], []
    for ids in case.ids:
        lengths = [len(one) for one in ids]
        pairs = sum(lengths)
        vectors = rng.normal(size=(len(ids), dim)).astype(np.float32)
        targets = rng.choice([-1.0, 1.0], pairs).astype(np.float32)
        weights = rng.uniform(0, 2, pairs).astype(np.float32)
        ranks.append((vectors, np.repeat(np.arange(len(ids)), lengths), targets, weights))
    return case, ranks


def _like(ids, flat):
    return ids.with_flat_values(flat) if isinstance(ids, tf.RaggedTensor) else tf.reshape(flat, ids.shape)


def _numpy(values):
    return np.reshape(values.flat_values if isinstance(values, tf.RaggedTensor) else values, -1)


def _gradients(case, ranks, slopes, mine):
    """Return the gradients of all rows, and of the vectors of rank ``mine``, from those of each rank's pairs."""
    whole = np.zeros(case.values.shape)
    for rank, (vectors, instances, *_) in enumerate(ranks):
        np.add.at(whole, case.flat(rank), slopes[rank][:, None] * vectors[instances])
    of_vectors = np.zeros(ranks[mine][0].shape)
    np.add.at(of_vectors, ranks[mine][1], slopes[mine][:, None] * case.values[case.flat(mine)])
    return whole, of_vectors


def check_scores(world):
    for number in range(0, CASES, STRIDE):
        case, ranks = _draw(number, world.size)
        table, ids = case.table(world.rank), case.tensor(world.rank)
        whole, of_vectors = _gradients(case, ranks, [targets for _, _, targets, _ in ranks], world.rank)
        vectors, instances, targets, _ = ranks[world.rank]
        wanted = (vectors[instances] * case.values[case.flat(world.rank)]).sum(axis=1)
        for route in ("rows", "features", "auto"):
            scorer, given = PairScorer(table, route), tf.constant(vectors)

            def forward(scorer=scorer, given=given, ids=ids, targets=targets, table=table):
                with tf.GradientTape() as tape:
                    tape.watch(given)
                    scores = scorer.scores(given, ids)
                    flat = scores.flat_values if isinstance(scores, tf.RaggedTensor) else tf.reshape(scores, [-1])
                    loss = tf.reduce_sum(flat * targets)
                return scores, tape.gradient(loss, [given, table.variable])

            scores, gradients = (tf.function(forward) if number % 6 == 0 else forward)()
            assert scores.shape.as_list() == ids.shape.as_list()
            np.testing.assert_allclose(_numpy(scores), wanted, **CLOSE)
            np.testing.assert_allclose(gradients[0], of_vectors, **CLOSE)
            mine = as_dense(gradients[1], table.local_rows, table.dim)
            np.testing.assert_allclose(mine, case.share(whole, table), **CLOSE)


def check_losses_computed_by_the_owner(world):
    for number in range(0, CASES, STRIDE):
        case, ranks = _draw(number, world.size)
        table, ids = case.table(world.rank), case.tensor(world.rank)
        factor, slopes = 0.5 + world.rank, []
        for rank, (vectors, instances, targets, weights) in enumerate(ranks):
            scores = (vectors[instances] * case.values[case.flat(rank)]).sum(axis=1)
            slack = np.maximum(0, 1 - targets * scores)
            slopes.append((0.5 + rank) * weights * -2 * slack * targets)
            if rank == world.rank:
                expected = np.zeros(len(vectors))
                np.add.at(expected, instances, weights * slack**2)
        whole, of_vectors = _gradients(case, ranks, slopes, world.rank)
        vectors, _, targets, weights = ranks[world.rank]
        for route in ("rows", "features"):
            scorer, given = PairScorer(table, route), tf.constant(vectors)
            with tf.GradientTape() as tape:
                tape.watch(given)
                losses = scorer.losses(given, ids, _like(ids, targets), squared_hinge, weights=_like(ids, weights))
                loss = tf.reduce_sum(losses) * factor
            gradients = tape.gradient(loss, [given, table.variable])
            np.testing.assert_allclose(losses, expected, **CLOSE)
            np.testing.assert_allclose(gradients[0], of_vectors, rtol=1e-5, atol=3e-5)
            rows = as_dense(gradients[1], table.local_rows, table.dim)
            np.testing.assert_allclose(rows, case.share(whole, table), rtol=1e-5, atol=3e-5)


def check_narrow_wires_of_pairs(world):
    case, ranks = _draw(6, world.size)
    table, ids = case.table(world.rank), case.tensor(world.rank)
    vectors, instances, *_ = ranks[world.rank]
    rows = case.values[case.flat(world.rank)]
    for wire, step in (("fp16", 2.0**-11), ("bf16", 2.0**-8)):
        for route in ("rows", "features"):
            scores = _numpy(PairScorer(table, route, wire).scores(tf.constant(vectors), ids))
            room = step * np.abs(vectors[instances] * rows).sum(axis=1) + 1e-6
            assert (np.abs(scores - (vectors[instances] * rows).sum(axis=1)) <= room).all()
    exact = (vectors[instances] * rows).sum(axis=1)
    for route, sent, kept in (("rows", rows, vectors[instances]), ("features", vectors[instances], rows)):
        scores = _numpy(PairScorer(table, route, "int8").scores(tf.constant(vectors), ids))
        room = (np.abs(sent).max(axis=1) / 254) * np.abs(kept).sum(axis=1)
        assert (np.abs(scores - exact) <= 1.01 * room + 1e-5).all()


def check_pairs_out_of_range(world):
    table = make_table("labels", 6, 2, size=world.size, rank=world.rank)
    wrong = world.size // 2
    for route in ("rows", "features"):
        scorer = PairScorer(table, route)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"labels has rows 0 to 5.*rank {wrong}: 6 -1"):
            scorer.scores(tf.ones([2, 2]), tf.constant([[0, 6], [-1, 3]] if world.rank == wrong else [[0, 1], [2, 3]]))
        assert world.allgather(True) == [True] * world.size


def check_the_route_with_fewer_bytes(world):
    """Vectors are sent for many rows per instance, rows for few rows of many instances; all ranks agree."""
    dim = 32
    rng = np.random.default_rng(1)
    many = tf.constant(rng.integers(0, 4000, (world.size, 4, 200)))[world.rank]
    # One rank alone would decide otherwise.
    few = tf.constant(rng.integers(0, 8, (world.size, 64, 3)))[world.rank]
    for ids, rows, wanted in ((many, 4000, "features"), (few, 8, "rows")):
        for traced in (False, True):
            table = make_table(f"auto_{wanted}_{traced}", rows, dim, size=world.size, rank=world.rank)
            scorer = PairScorer(table)
            call = tf.function(scorer.scores) if traced else scorer.scores
            call(tf.ones([ids.shape[0], dim]), ids)
            if world.size == 1:
                assert scorer.choice is None  # nothing is sent
                continue
            assert scorer.choice.route == wanted
            assert wanted in scorer.choice.reason
            assert "MiB" in scorer.choice.reason
            assert ("counted" in scorer.choice.reason) != traced
            assert len(set(world.allgather(tuple(scorer.choice)))) == 1


def check_bytes_of_features(world):
    """Traffic is 2·B·d numbers whatever the number of rows, as the formula of the choice says."""
    if world.size == 1:
        return
    rows, dim, batch, each = 5000, 64, 16, 100
    ids = np.random.default_rng(2).integers(0, rows, (world.size, batch, each))
    for route in ("features", "rows"):
        table = make_table(f"bytes_{route}", rows, dim, size=world.size, rank=world.rank)
        before = bytes_sent()
        vectors = tf.ones([batch, dim])
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = tf.reduce_sum(PairScorer(table, route).scores(vectors, tf.constant(ids[world.rank])))
        tape.gradient(loss, [vectors, table.variable])
        total = sum(world.allgather(sum(bytes_sent().values()) - sum(before.values())))
        formula = 0.0
        for rank, own in enumerate(ids):
            owners = np.searchsorted(table.partition.bounds, own.reshape(-1), side="right") - 1
            away = owners != rank
            groups = len(set(zip(np.repeat(np.arange(batch), each)[away], owners[away], strict=True)))
            if route == "features":
                formula += features_bytes(groups, away.sum(), dim, 4, "fp32")
            else:
                formula += rows_bytes(len(np.unique(own.reshape(-1)[away])), dim, 4, "fp32")
        assert abs(total / formula - 1) < 0.1
