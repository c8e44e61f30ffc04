"""The arrangement for search: clusters of any size, rows that are stored whole, and its checksum."""

import numba
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.linear.cases import random_chain, random_model
from xmc_tf.data import as_features
from xmc_tf.rankers.kernels import layout
from xmc_tf.rankers.kernels.layout import LINE, child_bytes
from xmc_tf.rankers.layout.stored import build_chunks

checksum = numba.njit(layout.checksum)


@pytest.mark.parametrize(
    ("labels", "size", "density"), [(300, 1, 0.05), (300, 1, 1.0), (600, 2, 0.05), (600, 2, 1.0), (140_000, 4, 0.05)]
)
def test_clusters_of_many_labels(labels, size, density):
    """Rows with weights of most siblings are stored whole, others with the places of their weights."""
    model = random_model(random_chain(labels, [2]), 3, density=density, posts="noop")
    _, chunks = build_chunks(model.levels, 3, 0, 2)
    for ours, again in zip(chunks, build_chunks(model.levels, 3, 0, 1)[1], strict=True):
        np.testing.assert_array_equal(ours, again)
    assert child_bytes(chunks.child_start[2] - chunks.child_start[1]) == size
    expected = model.levels[1].weights.toarray()
    found = model.predict(as_features(csr_matrix(np.ones((1, 3), np.float32))), beam_size=2, only_topk=labels)
    np.testing.assert_allclose(found.toarray()[0], expected.sum(axis=0), atol=1e-5)


def test_a_checksum_notices_each_changed_bit():
    numbers = np.random.default_rng(0).integers(0, 2**63, 4 * LINE).astype(np.uint64)
    right = checksum(numbers, 0, len(numbers))
    for place in range(len(numbers)):
        for bit in (0, 31, 63):
            numbers[place] ^= np.uint64(1 << bit)
            assert checksum(numbers, 0, len(numbers)) != right
            numbers[place] ^= np.uint64(1 << bit)
    assert checksum(numbers, 0, len(numbers)) == right
