"""A model with an encoder and a linear one, compared on the same test documents."""

import pytest
from scipy.sparse import csr_matrix

from xmc_tf.jobs.comparison import _lines

TRUTH = csr_matrix([[1, 0, 0]] * 40)
RIGHT, WRONG = [3, 2, 1], [1, 2, 3]


def answers(right):
    return csr_matrix([RIGHT] * right + [WRONG] * (40 - right), dtype=float)


@pytest.mark.parametrize(
    ("encoder", "linear", "said"),
    [
        (30, 10, "the encoder improves P@1 by 50.0 points"),
        (11, 10, "the encoder changes P@1 by +2.5 points, which is within the noise of 40 test documents"),
        (10, 10, "the encoder changes P@1 by +0.0 points, which is within the noise"),
        (10, 30, "the encoder lowers P@1 by 50.0 points: train without --model-shortcut"),
    ],
)
def test_the_smaller_model_is_recommended_unless_the_encoder_is_better(encoder, linear, said):
    lines = _lines(TRUTH, answers(encoder), answers(linear), 100.0, 2.0, single=True)
    assert lines[-1].startswith(said)
    assert lines[2:-1] == [
        f"  with the encoder  {2.5 * encoder:.2f}      100",
        f"  linear            {2.5 * linear:.2f}        2",
    ]


def test_several_cut_offs_share_a_sentence():
    *table, said = _lines(TRUTH, answers(40), answers(0), 1.0, 1.0, single=False)
    assert table[0].split() == ["%", "P@1", "P@3", "seconds"]
    assert said == "the encoder improves the mean of P@1 and P@3 by 50.0 points"
