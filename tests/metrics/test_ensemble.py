import numpy as np
import pytest
import scipy.sparse as smat
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.metrics import ENSEMBLES, ensemble

A = smat.csr_matrix(np.array([[0.9, 0.0, 0.3, 0.0], [0.0, 0.5, 0.0, 0.0]]))
B = smat.csr_matrix(np.array([[0.2, 0.6, 0.0, 0.0], [0.0, 0.0, 0.0, 0.4]]))


@pytest.mark.parametrize(
    ("way", "first_row"),
    [
        ("average", [0.55, 0.3, 0.15, 0]),
        ("root_average", [((0.9**0.5 + 0.2**0.5) / 2) ** 2, 0.6 / 4, 0.3 / 4, 0]),
        # The longest list has two labels, so a first place gives 2 and a second 1.
        ("rank_average", [(2 + 1) / 2, 2 / 2, 1 / 2, 0]),
        ("sigmoid_average", [(0.7109495 + 0.549834) / 2, 0.6456563 / 2, 0.5744425 / 2, 0]),
        ("softmax_average", [(0.6456563 + 0.4013123) / 2, 0.5986877 / 2, 0.3543437 / 2, 0]),
        ("round_robin", [(2 + 2 / 3) / 2, (2 + 1 / 3) / 2, (1 + 2 / 3) / 2, 0]),
    ],
)
def test_an_example_by_hand(way, first_row):
    assert ensemble(way, [A, B]).toarray()[0] == pytest.approx(first_row)


def test_round_robin_takes_turns():
    one = smat.csr_matrix(np.array([[9.0, 8, 7, 0, 0, 0]]))
    two = smat.csr_matrix(np.array([[0, 0, 0.1, 0.3, 0.2, 0]]))
    assert ensemble("round_robin", [one, two]).indices.tolist() == [0, 3, 1, 4, 2]


def test_softmax_of_large_scores_and_sigmoid_of_small_ones_stay_finite():
    large = smat.csr_matrix(np.array([[1e4, -1e4, 0, 3]]))
    for way in ENSEMBLES:
        assert np.isfinite(ensemble(way, [large, large]).data).all()


def test_a_score_of_zero_stays_a_prediction():
    zero = smat.csr_matrix((np.array([0.0]), np.array([2]), np.array([0, 1])), shape=(1, 4))
    assert ensemble("average", [zero, zero]).indices.tolist() == [2]


def test_empty_predictions():
    nothing = smat.csr_matrix((2, 4))
    for way in ENSEMBLES:
        assert ensemble(way, [nothing, nothing]).nnz == 0


def test_what_cannot_be_made_one():
    refused("at least 2", ensemble, "average", [A])
    refused("round_robin", ensemble, "best", [A, B])
    refused("prediction 2", ensemble, "average", [A, B[:1]])


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(ENSEMBLES)))
def test_every_ensemble_is_sorted_and_has_the_union_of_the_labels(seed, way):
    rng = np.random.default_rng(seed)
    matrices = [smat.random(4, 9, 0.4, "csr", rng=rng) for _ in range(3)]
    kept = [m.copy() for m in matrices]
    result = ensemble(way, matrices)
    union = sum((m != 0).astype(int) for m in matrices) > 0
    assert np.array_equal(result.toarray() != 0, union.toarray())
    for begin, end in zip(result.indptr, result.indptr[1:], strict=False):
        assert np.all(np.diff(result.data[begin:end]) <= 0)
    assert all((a != b).nnz == 0 for a, b in zip(kept, matrices, strict=True))
