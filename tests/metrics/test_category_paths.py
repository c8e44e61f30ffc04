"""Labels that are paths of categories, compared with numbers by hand."""

import pytest
from scipy.sparse import csr_matrix

from xmc_tf.metrics.category_paths import CategoryPaths

NAMES = ["Shoes > Boots > Red", "Shoes > Boots > Blue", "Shoes > Sandals", "Hats > Caps", "Hats > Berets"]


@pytest.mark.parametrize(
    "names",
    [
        None,
        ["baking", "bread"],
        ["AC/DC", "rock", "pop"],
        ["a > b", "c > d", "e > f"],  # nothing is shared
        ["http://example.org/a", "http://example.org/b", "http://example.org/c"],
    ],
)
def test_other_names_are_no_paths(names):
    assert CategoryPaths.of(names) is None


def test_measures_by_level():
    paths = CategoryPaths.of(NAMES)
    truth = csr_matrix([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]])
    best = csr_matrix([[0.9, 0, 0, 0, 0], [0, 0.9, 0, 0, 0], [0.9, 0, 0.1, 0, 0], [0, 0, 0, 0, 0]])
    assert paths.right_by_level(truth, best) == [0.75, 0.5, 0.25]


def test_backing_off():
    paths = CategoryPaths.of(NAMES)
    labels = [(0, 0.4), (1, 0.3), (2, 0.2), (3, 0.1)]
    for least, expected in ((0.3, (NAMES[0], 0.4)), (0.7, ("Shoes > Boots", 0.7)), (0.8, ("Shoes", 0.9))):
        name, sure = paths.back_off(labels, least)
        assert (name, pytest.approx(sure)) == expected
    assert paths.back_off(labels, 0.99)[0] == "Shoes"  # the top is always named
    assert paths.back_off([(3, 0.2), (4, 0.2)], 0.9) == ("Hats", 1.0)  # scaled to a sum of 1
    assert paths.back_off([], 0.5) is None
