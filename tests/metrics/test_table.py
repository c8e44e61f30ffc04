import numpy as np
import pytest
from scipy.sparse import csr_matrix

from xmc_tf.metrics import format_table, percent, precision_and_recall


def test_columns_are_aligned():
    text = format_table(["system", "P@1"], [["a", "5.00"], ["longer name", "42.91"]])
    assert text.splitlines() == [
        "system         P@1",
        "-----------  -----",
        "a             5.00",
        "longer name  42.91",
    ]


def test_a_wide_table_is_folded_and_repeats_its_names():
    text = format_table(["s", *"abcdef"], [["x", *(["12.34"] * 6)]], width=24)
    assert all(len(line) <= 24 for line in text.splitlines())
    assert text.count("12.34") == 6
    assert text.count("x") == 2


def test_a_missing_figure_is_a_dash():
    assert percent(float("nan")) == "–"
    assert percent(0.42914) == "42.91"


@pytest.mark.parametrize(("most", "shown"), [(0, "@1"), (2, "@1"), (3, "@1 @3"), (5, "@1 @3 @5"), (19, "@1 @3 @5 @10")])
def test_precision_and_recall_are_shown_up_to_the_number_of_predicted_labels(most, shown):
    predicted = csr_matrix(np.arange(most, 0, -1, dtype=np.float32)[None] if most else np.zeros((1, 1), np.float32))
    assert (
        precision_and_recall(predicted, csr_matrix(np.ones(predicted.shape))).splitlines()[0].split() == shown.split()
    )
