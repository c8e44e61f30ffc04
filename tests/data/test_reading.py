"""Documents as windows: where each begins and ends, and one embedding from theirs."""

import numpy as np
import pytest

from xmc_tf.data.reading import Reading, combine_windows, window_bounds


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (4, [(0, 4)]),  # exactly full
        (5, [(0, 2), (2, 5)]),  # one token more
        (8, [(0, 4), (4, 8)]),
        (12, [(0, 4), (4, 8), (8, 12)]),
        (13, [(0, 4), (4, 8), (8, 12)]),  # the most windows: the rest is ignored
        (10**9, [(0, 4), (4, 8), (8, 12)]),
    ],
)
def test_windows_have_equal_lengths(tokens, expected):
    assert window_bounds(tokens, limit=4, max_windows=3) == expected


def test_every_token_is_in_one_window_that_is_not_too_long():
    for tokens in range(1, 200):
        bounds = window_bounds(tokens, limit=7, max_windows=100)
        lengths = [high - low for low, high in bounds]
        assert [at for low, high in bounds for at in range(low, high)] == list(range(tokens))
        assert max(lengths) <= 7
        assert max(lengths) - min(lengths) <= 1
        assert len(bounds) == -(-tokens // 7)


def test_windows_become_one_embedding():
    vectors = np.array([[1, 5], [3, 1], [2, 2], [9, 9]], np.float32)
    splits = np.array([0, 2, 3, 4])
    assert combine_windows(vectors, splits, "mean").tolist() == [[2, 3], [2, 2], [9, 9]]
    assert combine_windows(vectors, splits, "max").tolist() == [[3, 5], [2, 2], [9, 9]]
    assert combine_windows(vectors[:0], np.array([0]), "mean").shape == (0, 2)


def test_options_and_readings():
    assert Reading.of(64, "truncate", 16) == Reading(64) == Reading(64, 1)
    assert Reading.of(64, "max", 16) == Reading(64, 16, "max")
    assert [Reading.of(64, name, 16).long_texts for name in ("truncate", "mean", "max")] == ["truncate", "mean", "max"]
