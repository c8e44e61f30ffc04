"""Batches by length: every document once, little padding, still random, and balanced shares of ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmc_tf.data import epoch_batches, share_of_batch

few = st.lists(st.integers(0, 1), max_size=60)  # mostly empty documents
many = st.lists(st.integers(0, 70), max_size=200)
lengths_of = st.one_of(few, many).map(lambda values: np.array(values, np.int32))


def like_titles(count, seed=0):
    """Return lengths like those of library records cut at 64 tokens: mostly titles, some abstracts."""
    return np.random.default_rng(seed).lognormal(2.8, 0.8, count).clip(4, 64).astype(np.int32)


def tokens_of(batch, lengths):
    """Return the padded tokens of a batch, an empty document taking one place."""
    return len(batch) * max(1, lengths[batch].max())


def padding_share(lengths, batches):
    return 1 - sum(lengths[one].sum() for one in batches) / sum(tokens_of(one, lengths) for one in batches)


@given(
    lengths=lengths_of,
    batch=st.integers(1, 9),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 5),
    budget=st.integers(0, 99),
)
def test_every_document_once(lengths, batch, seed, epoch, budget):
    batches = epoch_batches(lengths, batch, seed=seed, epoch=epoch, token_budget=budget or None)
    together = np.concatenate([*batches, np.empty(0, np.int64)])
    assert together.dtype == np.int64
    assert sorted(together.tolist()) == list(range(len(lengths)))
    assert all(0 < len(one) <= batch for one in batches)
    if budget:
        assert all(len(one) == 1 or tokens_of(one, lengths) <= budget for one in batches)
    else:
        assert len(batches) == -(-len(lengths) // batch)
        assert sum(len(one) < batch for one in batches) <= 1
    again = epoch_batches(lengths, batch, seed=seed, epoch=epoch, token_budget=budget or None)
    assert [one.tolist() for one in again] == [one.tolist() for one in batches]


def test_a_budget_is_used_up():
    lengths = like_titles(3000)
    batches = epoch_batches(lengths, 1000, seed=0, epoch=0, token_budget=512)
    assert np.mean([tokens_of(one, lengths) for one in batches]) > 0.9 * 512
    assert len({len(one) for one in batches}) > 10
    assert max(len(one) for one in epoch_batches(lengths, 20, seed=0, epoch=0, token_budget=512)) == 20


@pytest.mark.parametrize("count", [1_700, 7_500])
def test_little_padding(count):
    lengths = like_titles(count)
    at_random = np.array_split(np.random.default_rng(1).permutation(count), count // 32)
    assert padding_share(lengths, at_random) > 0.5
    assert padding_share(lengths, epoch_batches(lengths, 32, seed=0, epoch=0)) < 0.05
    shares = [
        share_of_batch(one, lengths, rank, 4)
        for one in epoch_batches(lengths, 128, seed=0, epoch=0)
        for rank in range(4)
    ]
    assert padding_share(lengths, shares) < 0.1


def test_still_random():
    lengths = like_titles(20_000)
    one, two = (epoch_batches(lengths, 32, seed=0, epoch=epoch) for epoch in (0, 1))
    other = epoch_batches(lengths, 32, seed=1, epoch=0)
    batch_of = np.empty(len(lengths), np.int64)
    for number, batch in enumerate(one):
        batch_of[batch] = number
    for batches in (two, other):
        meet_again = [np.unique(batch_of[batch], return_counts=True)[1].max() for batch in batches]
        assert np.mean(meet_again) < 32 / 4
    means = np.array([lengths[batch].mean() for batch in one])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.1
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.1


@given(lengths=lengths_of, size=st.integers(1, 9), data=st.data())
def test_shares_are_the_batch_and_balanced(lengths, size, data):
    batch = np.array(data.draw(st.permutations(range(len(lengths)))), np.int64)[
        : data.draw(st.integers(0, len(lengths)))
    ]
    shares = [share_of_batch(batch, lengths, rank, size) for rank in range(size)]
    assert sorted(np.concatenate(shares).tolist()) == sorted(batch.tolist())
    place = {document: i for i, document in enumerate(batch.tolist())}
    for share in shares:
        assert [place[document] for document in share.tolist()] == sorted(
            place[document] for document in share.tolist()
        )
    counts = [len(share) for share in shares]
    assert max(counts) - min(counts) <= 1
    if len(batch) >= size:
        # Each has one of the longest, so all rectangles are about as wide.
        as_wide_as = np.sort(lengths[batch])[-size]
        assert all(lengths[share].max() >= as_wide_as for share in shares)
    tokens = [int(lengths[share].sum()) for share in shares]
    if len(batch) % (2 * size) == 0:
        assert max(tokens) - min(tokens) <= int(lengths[batch].max(initial=0))
