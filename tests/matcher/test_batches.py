"""Training batches: the same on any number of ranks and from any start."""

from itertools import islice

import numpy as np
import pytest

from tests.matcher.trees import random_matrix, random_tree, store_of
from xmc_tf.data import epoch_batches
from xmc_tf.matcher.candidates import CandidateSampler, LevelData, TrainingBatches, parents_matched
from xmc_tf.matcher.tasks import levels_of

DOCUMENTS = 53


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path / "tokens", DOCUMENTS)


@pytest.fixture
def sampler():
    tree = random_tree(5, depth=2, largest=9, empty=False)
    top, labels = levels_of(tree, random_matrix(5, DOCUMENTS, tree.nr_labels, 0.1), max_match_clusters=10**9)
    return CandidateSampler(labels, parents_matched(labels, "tfn", top.targets), cap=6, seed=1)


def batches_of(store, sampler, rows=None, **others):
    return TrainingBatches(LevelData(store, sampler, pad_id=1, rows=rows), **({"batch": 8, "seed": 4} | others))


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_batch_holds_its_documents_and_their_candidates(store, sampler):
    batches = batches_of(store, sampler)
    batch = batches.make(epoch=2, step=1)
    assert (batch.epoch, batch.step, batch.global_count) == (2, 1, 8)
    expected = epoch_batches(store.lengths, 8, seed=4, epoch=2)[1]
    assert batch.documents.tolist() == expected.tolist()
    assert batch.ids.shape == batch.mask.shape == (8, store.lengths[expected].max())
    assert batch.ids.tolist() == np.where(batch.mask, 10 + expected[:, None], 1).tolist()
    assert batch.mask.sum(axis=1).tolist() == store.lengths[expected].tolist()
    assert equal(batch[5:9], sampler.of(expected, epoch=2))


def test_an_epoch_has_every_document_once_and_the_next_another_order(store, sampler):
    batches = batches_of(store, sampler)
    assert batches.steps_of(0) == 7
    seen = [*islice(batches.stream(), 14)]
    assert [(batch.epoch, batch.step) for batch in seen] == [(e, s) for e in (0, 1) for s in range(7)]
    orders = [np.concatenate([batch.documents for batch in seen if batch.epoch == epoch]) for epoch in (0, 1)]
    assert [sorted(order.tolist()) for order in orders] == [list(range(DOCUMENTS))] * 2
    assert orders[0].tolist() != orders[1].tolist()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("budget", [None, 40])
def test_global_batches_are_the_same_on_any_number_of_ranks(store, sampler, size, budget):
    alone = batches_of(store, sampler, token_budget=budget)
    ranks = [batches_of(store, sampler, token_budget=budget, rank=rank, size=size) for rank in range(size)]
    for step in range(alone.steps_of(1)):
        whole, parts = alone.make(1, step), [rank.make(1, step) for rank in ranks]
        assert {part.global_count for part in parts} == {len(whole.documents)} == {whole.global_count}
        rows = {row: i for i, row in enumerate(whole.documents.tolist())}
        assert sorted(row for part in parts for row in part.documents.tolist()) == sorted(rows)
        for part in parts:
            for i, row in enumerate(part.documents.tolist()):
                here, there = slice(*part.splits[i : i + 2]), slice(*whole.splits[rows[row] : rows[row] + 2])
                for name in ("candidates", "targets", "weights"):
                    assert getattr(part, name)[here].tolist() == getattr(whole, name)[there].tolist()
                length = store.lengths[row]
                assert part.ids[i, :length].tolist() == whole.ids[rows[row], :length].tolist()


def test_a_rank_without_documents_gets_an_empty_batch(store, sampler):
    batch = batches_of(store, sampler, batch=2, rank=3, size=4).make(0, 0)
    assert batch.documents.shape == (0,)
    assert batch.ids.shape == batch.mask.shape == (0, 1)
    assert batch.splits.tolist() == [0]
    assert batch.candidates.size == batch.targets.size == batch.weights.size == 0
    assert batch.global_count == 2


@pytest.mark.parametrize("budget", [None, 40])
def test_a_stream_can_start_at_any_batch(store, sampler, budget):
    batches = batches_of(store, sampler, token_budget=budget)
    steps = batches.steps_of(0)
    assert steps == len(batches.plan(0))
    whole = [*islice(batches.stream(), steps + 4)]
    for start in (1, steps - 1, steps):
        stream = batches_of(store, sampler, token_budget=budget).stream(0, start)
        assert all(equal(next(stream), batch) for batch in whole[start:])
    assert equal(next(batches.stream(1, 2)), whole[steps + 2])


def test_held_out_documents_are_in_no_batch(store, sampler):
    rows = np.arange(0, DOCUMENTS, 3)
    batches = batches_of(store, sampler, rows=rows)
    assert batches.steps_of(0) == 3
    assert sorted(np.concatenate(batches.plan(0)).tolist()) == rows.tolist()
    batch = batches.make(0, 0)
    assert batch.ids[:, 0].tolist() == (10 + batch.documents).tolist()
    assert equal(batch[5:9], sampler.of(batch.documents, epoch=0))
