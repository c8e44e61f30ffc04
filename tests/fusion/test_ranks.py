"""The calibration by rank, and the counts of documents without those of a fold."""

import numpy as np
import pytest

from xmc_tf.fusion.held_out import HeldOutCandidates
from xmc_tf.fusion.rank_calibration import (
    SAME,
    best_first,
    calibrated,
    learn_rank_weights,
    learn_short_rank_weights,
    rank_in_document,
)
from xmc_tf.fusion.weighted_numbers import NAMES, first_weights


def made_up(seed=0, rows=4000, width=8):
    """Return probabilities that are too small for the best labels of a document, ranks, and what is right."""
    rng = np.random.default_rng(seed)
    probability = np.sort(rng.beta(1, 4, (rows, width)), axis=1)[:, ::-1].ravel().astype(np.float32)
    ranks = np.tile(np.arange(width), rows)
    raw = np.log(probability / (1 - probability)) + 0.8 - 0.5 * np.log1p(ranks)
    return probability, ranks, rng.random(len(raw)) < 1 / (1 + np.exp(-raw))


def test_each_rank_is_calibrated_on_other_documents():
    weights = learn_rank_weights(*made_up())
    probability, ranks, right = made_up(seed=1)
    found = calibrated(probability, ranks, weights)
    for rank in range(8):
        some = ranks == rank
        assert abs(found[some].mean() - right[some].mean()) < 0.02
    assert abs(probability[ranks == 0].mean() - right[ranks == 0].mean()) > 0.05


def test_the_order_of_labels_stays():
    probability, ranks, right = made_up()
    found = calibrated(probability, ranks, learn_rank_weights(probability, ranks, right)).reshape(-1, 8)
    assert (np.diff(found, axis=1) <= 0).all()
    # What would reverse the order is not learned.
    assert np.array_equal(learn_rank_weights(probability, ranks, ranks > 3), SAME)
    assert np.allclose(calibrated(probability, ranks, SAME), probability, atol=2e-4)  # log-odds have a limit


def cut(seed):
    """Return probabilities in texts of a few words, of which less is true than they say; all else as `made_up`."""
    rng = np.random.default_rng(seed)
    probability, ranks, _ = made_up(seed)
    raw = 0.4 * np.log(probability / (1 - probability)) - 1.2
    right = rng.random(len(raw)) < 1 / (1 + np.exp(-raw))
    return probability, ranks, right, np.repeat(rng.uniform(0.7, 0.99, len(raw) // 8), 8)


def test_texts_of_a_few_words_are_calibrated_apart():
    of_whole = learn_rank_weights(*made_up())
    learned = learn_short_rank_weights(*cut(seed=2), of_whole)
    probability, ranks, right, scarcity = cut(seed=3)
    found = calibrated(probability, ranks, of_whole, learned, scarcity)
    before = calibrated(probability, ranks, of_whole, SAME, scarcity)
    for low, high in ((0.0, 0.1), (0.1, 0.2), (0.2, 1.0)):
        some = (found >= low) & (found < high)
        assert abs(found[some].mean() - right[some].mean()) < 0.03
        assert some.sum() > 500
    assert before[ranks == 0].mean() > right[ranks == 0].mean() + 0.15
    assert (np.diff(found.reshape(-1, 8), axis=1) <= 0).all()
    whole = calibrated(probability, ranks, of_whole, learned, np.zeros_like(scarcity))
    assert np.array_equal(whole, calibrated(probability, ranks, of_whole))
    unknown = calibrated(probability, ranks, of_whole, learned, np.ones_like(scarcity))
    assert np.allclose(unknown, probability, atol=2e-4)


def candidates(seed, scarcity):
    """Return candidates of documents by score alone. In short texts, even the highest scores are often wrong."""
    rng = np.random.default_rng(seed)
    probability, _, right = made_up(seed)
    raw = np.log(probability / (1 - probability))
    if scarcity:
        right = rng.random(len(raw)) < np.where(raw > -1, 0.25, 0.3 * probability)
    numbers = np.zeros((len(raw), len(NAMES)))
    values = {"constant": 1.0, "score": raw, "little known": scarcity, "score × little known": scarcity * raw}
    for name, value in values.items():
        numbers[:, NAMES.index(name)] = value
    every = np.ones(len(raw), bool)
    rows = np.repeat(np.arange(len(raw) // 8), 8)
    return HeldOutCandidates(rows, numbers, right, every, every, ~every, np.full(len(raw), float(scarcity)))


def test_weights_of_short_texts_are_learned_from_cut_documents():
    weights = candidates(0, 0).fit(short=candidates(1, 0.9))
    new = candidates(2, 0.9)

    def errors(weights):
        found, ranks = new.probabilities(weights)
        return abs(found[ranks == 0].mean() - new.right[ranks == 0].mean())

    assert errors(weights) < 0.02 < errors(weights._replace(short_ranks=SAME))
    # Whole documents do not depend on them.
    whole = candidates(3, 0)
    assert np.array_equal(whole.probabilities(weights)[0], whole.probabilities(candidates(0, 0).fit())[0])
    # Weights for a part of the documents start from those of all, and keep these.
    assert np.array_equal(candidates(4, 0).fit(guess=weights).short_ranks, weights.short_ranks)


def test_if_all_features_would_reorder_labels_fewer_are_learned():
    probability, ranks, _ = made_up()
    rng = np.random.default_rng(4)
    raw = np.log(probability / (1 - probability))
    right = rng.random(len(raw)) < 1 / (1 + np.exp(-(0.6 * raw - 1 + 0.4 * np.log1p(ranks))))  # later ones are better
    weights = learn_rank_weights(probability, ranks, right)
    assert weights[4] == 0 < weights[1]
    assert not np.array_equal(weights, SAME)
    found = calibrated(probability, ranks, weights)
    assert abs(found.mean() - right.mean()) < 0.01


def test_ranks_of_candidates():
    rows, known = np.array([0, 0, 0, 2, 2]), np.array([True, False, True, True, True])
    order = best_first(rows, np.array([0.2, 0.9, 0.2, 0.0, 1e-30]))
    assert order.tolist() == [1, 0, 2, 4, 3]  # of one probability: in their order
    assert rank_in_document(rows, order, known | True).tolist() == [1, 0, 2, 1, 0]
    # Labels without documents are not counted.
    assert rank_in_document(rows, order, known).tolist() == [0, 0, 1, 1, 0]


def test_weights_of_few_right_candidates_stay_close_to_those_of_other_vocabularies():
    draw, moved = np.random.default_rng(0), []
    for count in (100, 20_000):
        numbers = np.zeros((count, len(NAMES)))
        numbers[:, 0], numbers[:, NAMES.index("name present")] = 1, 1
        numbers[:, NAMES.index("score")] = draw.normal(size=count)
        right, every = numbers[:, NAMES.index("score")] < -1, np.ones(count, bool)  # elsewhere, high scores are right
        found = HeldOutCandidates(np.arange(count), numbers, right, every, every, ~every, np.zeros(count))
        moved.append(np.abs(found.fit().known - first_weights()).max())
    assert 0 < moved[0] < 1 < moved[1]


@pytest.mark.parametrize("encoded", [True, False])
def test_labels_without_documents_begin_with_what_an_encoder_was_worth_elsewhere(encoded):
    numbers = np.zeros((100, len(NAMES)))
    numbers[:, 0], numbers[:, NAMES.index("name present")] = 1, 1
    numbers[:, NAMES.index("similarity")] = np.random.default_rng(0).normal(size=100)
    right, every = np.arange(100) % 9 == 0, np.ones(100, bool)
    found = HeldOutCandidates(np.arange(100), numbers, right, ~every, ~every, every, np.zeros(100))
    place = [NAMES.index(name) for name in ("similarity", "whole name", "score above -2")]
    assert found.fit(encoded=encoded).new[place] == pytest.approx(first_weights(encoded)[place], abs=0.1)
    assert np.abs(first_weights(True) - first_weights(False))[place].min() > 0.05
