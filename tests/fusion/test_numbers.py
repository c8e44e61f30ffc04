"""Numbers about candidates and the probabilities of a small fusion, calculated by hand."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import expit, logit

from xmc_tf.fusion import Fusion
from xmc_tf.fusion.candidates import NOT_MENTIONED, LabelCandidates, join_candidates
from xmc_tf.fusion.thresholds import PrecisionCurve
from xmc_tf.fusion.weighted_numbers import NAMES, weighted_numbers
from xmc_tf.label_names import Mentions
from xmc_tf.label_names.kernels import EXACT, INFLECTED, PARTIAL

log = np.log
MENTIONS = Mentions(
    rows=np.array([0, 0, 1, 1]),
    labels=np.array([0, 1, 0, 4]),
    precision=np.array([0.75, 0.125, 1 / 32, 0], np.float32),
    grade=np.array([EXACT, PARTIAL, INFLECTED, EXACT], np.int8),
    coverage=np.array([1, 0.5, 1, 1], np.float32),
    counts=np.array([4, 2, 1, 3], np.int32),
    position=np.array([0.25, 0.75, 0, 0.5], np.float32),
    inside=np.array([0, 1, 0, 0], np.int8),
    rarity=np.array([320, 160, 80, 240], np.int32),
    words=np.array([2, 3, 1, 1], np.int32),
)
WITH_NONE = Mentions(*(np.append(column, column.dtype.type(0)) for column in MENTIONS))
# Three labels of one text, of which the last is not mentioned, and three of a text of which little is known.
FOUND = LabelCandidates(
    rows=np.array([0, 0, 0, 1, 1, 1]),
    labels=np.array([0, 1, 2, 0, 3, 4]),
    score=np.array([0.8, 0.25, 0.05, 0, 0, 0]),
    mention=np.array([0, 1, NOT_MENTIONED, 2, NOT_MENTIONED, 3]),
    mentions=WITH_NONE,
    similarity=np.array([0, 0, 0, 0, 2.5, 0]),
    closeness=np.array([0.6, 0.1, -0.2, 0.3, -1, 0.5]),
    scarcity=np.array([0.2, 0.2, 0.2, 0.95, 0.95, 0.95]),
)
DOCUMENTS = np.array([9, 4, 1, 9, 0, 2])
STRENGTHS = [2 * (1 + log(4)), 0.5 * (1 + log(2)), 0.5, 1.5 * (1 + log(3))]
SUMS = [0.001 + STRENGTHS[0] + STRENGTHS[1]] * 2 + [0.001 + STRENGTHS[2] + STRENGTHS[3]] * 2
SHARES = [log(one / of + 0.001) for one, of in zip(STRENGTHS, SUMS, strict=True)]
NUMBERS = {
    "constant": [1, 1, 1, 1, 1, 1],
    "score": [log(4), -log(3), -log(19), 0, 0, 0],
    "score above -2": [log(4), -log(3), -2, 0, 0, 0],
    "score above 0": [log(4), 0, 0, 0, 0, 0],
    "no ranker": [0, 0, 0, 1, 1, 1],
    "name": [log(3), -log(7), 0, -log(31), 0, 0],
    "name above -3": [log(3), -log(7), 0, -3, 0, 0],
    "name above -1": [log(3), -1, 0, -1, 0, 0],
    "name present": [1, 1, 0, 1, 0, 0],
    "score × name": [log(4) * log(3), log(3) * log(7), 0, 0, 0, 0],
    "score × name present": [log(4), -log(3), 0, 0, 0, 0],
    "documents": [log(10), log(5), log(2), log(10), 0, log(3)],
    "best score of the text": [log(4)] * 3 + [-9] * 3,
    "sum of scores of the text": [log(1.2)] * 3 + [log(0.1)] * 3,
    "similarity": [0, 0, 0, 0, 2.5, 0],
    "similarity above 1": [0, 0, 0, 0, 1.5, 0],
    "similarity above 2": [0, 0, 0, 0, 0.5, 0],
    "closeness": [0.6, 0.1, -0.2, 0.3, -1, 0.5],
    "closeness below the best": [0, -0.5, -0.8, -0.2, -1.5, 0],
    "part of a name": [0, 1, 0, 0, 0, 0],
    "whole name": [1, 0, 0, 1, 0, 1],
    "whole name as written": [1, 0, 0, 0, 0, 1],
    "covered part of a name": [0, 0.5, 0, 0, 0, 0],
    "rarity of the name": [2, 1, 0, 0.5, 0, 1.5],
    "whole name of several words": [1, 0, 0, 0, 0, 0],
    "score × mentioned": [log(4), -log(3), 0, 0, 0, 0],
    "mentions": [log(4), log(2), 0, 0, 0, log(3)],
    "position": [0.25, 0, 0, 0, 0, 0.5],
    "inside a longer name": [0, 1, 0, 0, 0, 0],
    "share of the mentions of the text": [SHARES[0], SHARES[1], 0, SHARES[2], 0, SHARES[3]],
    "little known": [0, 0.2, 0.2, 0, 0.95, 0],
    "almost nothing known": [0, 0, 0, 0, 0.5, 0],
    "score × little known": [0, -0.2 * log(3), -0.2 * log(19), 0, 0, 0],
    "documents × little known": [0, 0.2 * log(5), 0.2 * log(2), 0, 0, 0],
    "best score × little known": [0, 0.2 * log(4), 0.2 * log(4), 0, -0.95 * 5, 0],
}


def test_all_numbers_are_calculated_by_hand():
    assert {*NUMBERS} == {*NAMES}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_about_candidates(name):
    found = weighted_numbers(FOUND, log(1.0 + DOCUMENTS))[:, NAMES.index(name)]
    np.testing.assert_allclose(found, NUMBERS[name], atol=1e-9)


def weights(**given):
    """Return the weights with these values, of names in which _ stands for a blank."""
    return np.array([given.pop(name.replace(" ", "_"), 0.0) for name in NAMES])


def test_probabilities_of_a_fusion_with_written_down_weights():
    """Of a text with two mentions, and of one without a known word, whose label has only its frequency."""
    fusion = Fusion(
        weights(constant=-1, score=1, part_of_a_name=-2, mentions=0.5, documents=0.25),
        weights(constant=-3, whole_name=2, score=0.5),
        log(1.0 + np.array([9, 4, 0])).astype(np.float32),
        PrecisionCurve([], [], [], [], []),
        rank_weights=np.array([0.1, 0.9, 0.0, 0.0, -0.2]),
        typical=8.0,
        nr_documents=20,
    )
    scores = csr_matrix(np.array([[0.8, 0.25, 0.5], [0.9, 0, 0]], np.float32))
    named = MENTIONS.only(np.array([0, 1]))
    found = fusion.combine(scores, named, 3, information=np.array([6.0, 0.0]))
    # The sums of weighted numbers, and then of the calibration: the third label has no documents, so it has no rank.
    sums = np.array([
        -1 + log(4) + 0.5 * log(4) + 0.25 * log(10),
        -1 - log(3) - 2 + 0.5 * log(2) + 0.25 * log(5),
        -3 + 0.5 * 0,
    ])  # fmt: skip
    calibrated = 0.1 + 0.9 * sums - 0.2 * log([1, 2, 2])
    order = np.argsort(-sums)
    expected = expit(calibrated + 0.25 * (sums - calibrated))
    assert found[0].indices.tolist() == order.tolist()
    np.testing.assert_allclose(found[0].data, expected[order], rtol=1e-6)
    np.testing.assert_allclose(found[1].data, [9 / 20], rtol=1e-6)
    often = fusion.combine(scores[1], None, 3, information=np.array([8.0]))
    whole = -1 + logit(np.float32(0.9)) + 0.25 * log(10)
    np.testing.assert_allclose(often.data, [expit(0.1 + 0.9 * whole)], rtol=1e-6)


def test_a_partly_named_label_with_documents_needs_a_score():
    scores = csr_matrix(np.array([[0.5, 0, 0]], np.float32))
    named = MENTIONS.only(np.array([0, 1]))
    for needed, labels in ((np.array([False, True]), [0]), (np.array([False, False]), [0, 1])):
        assert join_candidates(scores, named, needs_score=needed).labels.tolist() == labels
