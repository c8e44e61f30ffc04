import numpy as np
import pytest

from tests.refusals import refused
from xmc_tf.metrics import FrequencyBuckets, inverse_propensity


def test_bounds_are_included():
    buckets = FrequencyBuckets.by_frequency(np.array([0, 1, 10, 11, 50, 51]), [10, 50])
    assert buckets.names == ("0", "1 to 10", "11 to 50", "over 50")
    assert buckets.of_label.tolist() == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("bounds", [[], [0, 5], [5, 5], [9, 5]])
def test_bounds_that_make_no_buckets(bounds):
    refused("ascending", FrequencyBuckets.by_frequency, np.array([1]), bounds)


def test_propensities_by_hand():
    # C = (ln 1000 - 1) * 2.5^0.55 = 9.7797…
    weights = inverse_propensity(np.array([0, 10, 1000]), 1000)
    c = (np.log(1000) - 1) * 2.5**0.55
    assert weights == pytest.approx([1 + c / 1.5**0.55, 1 + c / 11.5**0.55, 1 + c / 1001.5**0.55])
    assert np.all(np.diff(weights) < 0)


def test_few_documents_never_give_weights_below_one():
    assert inverse_propensity(np.array([0, 1]), 2).tolist() == [1, 1]


def test_impossible_propensity_parameters():
    refused("training documents", inverse_propensity, np.array([0]), 0)
    refused("parameter B", inverse_propensity, np.array([0]), 10, b=-1)
    for numbers in ({"a": np.nan}, {"a": np.inf}, {"b": np.nan}, {"b": np.inf}):
        refused(f"parameter {next(iter(numbers)).upper()} is", inverse_propensity, np.array([0]), 10, **numbers)
