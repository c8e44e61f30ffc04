"""Windows, their order, masks, and leave-one-out, against versions that are written with loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.sequences.data.batches import MASK, PAD, BatchShape, HeldOut, HistoryWindows, TrainBatches, shuffled
from xmc_tf.sequences.data.folder import UserHistories

HISTORIES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=6)


def parts_of(histories, cut):
    """Return the histories as parts; the first ``cut`` of them in a part of their own."""
    groups = [histories[:cut], histories[cut:]] if 0 < cut < len(histories) else [histories]
    return [
        UserHistories(
            np.array([item for one in group for item in one], np.int32),
            np.concatenate([[0], np.cumsum([len(one) for one in group])]),
            np.array([f"u{number}".encode() for number in range(len(group))]),
        )
        for group in groups
    ]


def naive_windows(history, width, step):
    """Return the windows of one history, the last first."""
    trained = history[:-2] if len(history) > 2 else history
    if len(trained) < 2:
        return []
    found, end = [], len(trained)
    while True:
        window = trained[max(0, end - width) : end]
        found.append([PAD] * (width - len(window)) + window)
        if end <= width:
            return found
        end -= step


@given(HISTORIES, st.integers(0, 6), st.integers(2, 5), st.integers(1, 5))
def test_windows_equal_those_of_a_loop(histories, cut, width, step):
    step = min(step, width)
    windows = HistoryWindows(parts_of(histories, cut), width, step)
    expected = [window for history in histories for window in naive_windows(history, width, step)]
    assert len(windows) == len(expected)
    assert windows.take(np.arange(len(windows))).tolist() == expected
    backwards = np.arange(len(windows))[::-1]
    assert windows.take(backwards).tolist() == expected[::-1]


@given(st.integers(1, 3000), st.integers(0, 100))
def test_the_order_is_a_permutation(count, key):
    assert np.array_equal(np.sort(shuffled(np.arange(count), count, key)), np.arange(count))


@given(HISTORIES, st.integers(0, 6), st.booleans(), st.sampled_from(["validation", "test"]), st.integers(1, 3))
def test_leave_one_out_equals_a_loop(histories, cut, causal, split, size):
    shape = BatchShape(4, causal)
    expected = []
    for history in histories:
        if len(history) < 3:
            continue
        seen, target = (history[:-1], history[-1]) if split == "test" else (history[:-2], history[-2])
        row = seen[-4:] if causal else [*seen[-3:], MASK]
        expected.append(([PAD] * (4 - len(row)) + row, target))
    parts = parts_of(histories, cut)
    ranks = [list(HeldOut(parts, shape, split, 3, rank, size)) for rank in range(size)]
    assert len({len(batches) for batches in ranks}) == 1
    found = [
        (row.tolist(), int(target))
        for batches in zip(*ranks, strict=True)
        for inputs, targets in batches
        for row, target in zip(inputs, targets, strict=True)
    ]
    assert found == expected


def batches_of(histories, causal, size, *, mask_prob=0.4, seed=3):
    shape = BatchShape(4, causal, mask_prob)
    return [TrainBatches(parts_of(histories, 1), shape, 2, 6, seed, rank, size) for rank in range(size)]


@pytest.mark.parametrize("causal", [True, False])
def test_ranks_share_the_batches_of_one_process(causal):
    histories = [list(range(number, number + 9)) for number in range(7)]
    (alone,) = batches_of(histories, causal, 1)
    three = batches_of(histories, causal, 3)
    assert alone.steps > 2
    for epoch, step in ((0, 0), (0, alone.steps - 1), (4, 1)):
        whole = alone.make(epoch, step)
        parts = [one.make(epoch, step) for one in three]
        assert np.array_equal(whole.inputs, np.concatenate([part.inputs for part in parts]))
        assert np.array_equal(whole.targets, np.concatenate([part.targets for part in parts]))


def test_masks():
    histories = [list(range(8)) for _ in range(200)]
    (batches,) = batches_of(histories, False, 1)
    made = [batches.make(epoch, step) for epoch in (0, 1) for step in range(batches.steps)]
    inputs = np.concatenate([one.inputs for one in made])
    targets = np.concatenate([one.targets for one in made])
    assert (inputs[:, -1] == MASK).all()
    assert np.array_equal(inputs == MASK, targets >= 0)
    assert 0.35 < np.mean((inputs == MASK)[:, :-1]) < 0.45
    first, second = made[0].inputs, batches.make(0, 0).inputs
    assert np.array_equal(first, second)
    assert not np.array_equal(np.sort(inputs[: len(inputs) // 2], axis=0), np.sort(inputs[len(inputs) // 2 :], axis=0))


def test_causal_targets_are_the_next_items():
    (batches,) = batches_of([[5, 6, 7, 8, 9], [1, 2, 3, 4]], True, 1)
    rows = {tuple(row): tuple(target) for row, target in zip(*batches.make(0, 0)[:2], strict=True)}
    assert rows == {(PAD, PAD, 5, 6): (PAD, PAD, 6, 7), (PAD, PAD, PAD, 1): (PAD, PAD, PAD, 2)}


def test_the_stream_continues_at_any_batch():
    (batches,) = batches_of([list(range(30))], True, 1)
    with batches.stream(0, 0, threads=3) as stream:
        first = [next(stream) for _ in range(2 * batches.steps + 1)]
    with batches.stream(1, 1, threads=1) as stream:
        later = [next(stream) for _ in range(3)]
    assert [(one.epoch, one.step) for one in first[: batches.steps + 1]][-1] == (1, 0)
    for one, other in zip(first[batches.steps + 1 :], later, strict=False):
        assert np.array_equal(one.inputs, other.inputs)


def test_no_sequences():
    refused("no sequences", batches_of, [[1, 2, 3]], False, 1)
