"""A model with an encoder and a linear one, compared on the same test documents."""

import pytest
from scipy.sparse import csr_matrix

from xmc_tf.jobs.comparison import Side, _lines

TRUTH = csr_matrix([[1, 0, 0]] * 40)
RIGHT, WRONG = [3, 2, 1], [1, 2, 3]


ENCODER, LINEAR = ("with the encoder", 100.0, 31.25, 9.1e7), ("linear", 2.0, 0.5, 4.2e6)


def lines(encoder, linear, *, single):
    """The lines on two models that have the right label first for some of the 40 documents."""
    labels = [csr_matrix([RIGHT] * right + [WRONG] * (40 - right), dtype=float) for right in (encoder, linear)]
    sides = [Side(name, own, *costs) for own, (name, *costs) in zip(labels, (ENCODER, LINEAR), strict=True)]
    return _lines(TRUTH, *sides, single=single)


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
    header, _, *rows, last = lines(encoder, linear, single=True)
    assert last.startswith(said)
    assert header.split() == ["%", "P@1", "training", "s", "answer", "ms", "model"]
    assert [row.split() for row in rows] == [
        ["with", "the", "encoder", f"{2.5 * encoder:.2f}", "100", "31.2", "91.0", "MB"],
        ["linear", f"{2.5 * linear:.2f}", "2", "0.5", "4.2", "MB"],
    ]


def test_several_cut_offs_share_a_sentence():
    header, *_, said = lines(40, 0, single=False)
    assert header.split()[:4] == ["%", "P@1", "P@3", "training"]
    assert said == "the encoder improves the mean of P@1 and P@3 by 50.0 points"
