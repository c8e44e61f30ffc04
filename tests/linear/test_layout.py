"""The arrangement for search contains each weight of the model once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.linear.cases import chains, random_chain, random_model
from xmc_tf.linear.chunks import build_chunks
from xmc_tf.linear.kernels.layout import FREE, HASH, WHOLE


def row_of(chunks, chunk, feature):
    """Return the position of a feature's row in a chunk, by the search's method; None if there is none."""
    shift, base = int(chunks.table_shift[chunk]), chunks.table_start[chunk]
    slot = ((int(feature) * int(HASH)) % 2**64) >> shift
    while (found := chunks.table[base + slot, 0]) != FREE:
        if found == feature:
            return chunks.stream_start[chunk] + chunks.table[base + slot, 1]
        slot = (slot + 1) % 2 ** (64 - shift)
    return None


def weights_of(chunks, t, level, nr_sparse, nr_dense):
    """Return a level's W from its chunks, dense."""
    out = np.zeros((nr_sparse + nr_dense + 1, level.clusters.shape[0]), np.float32)
    whole_rows = 0
    for chunk in range(chunks.level_start[t], chunks.level_start[t + 1]):
        begin, end = chunks.child_start[chunk : chunk + 2]
        children = chunks.children[begin:end]
        for feature in range(nr_sparse):
            row = row_of(chunks, chunk, feature)
            if row is None:
                continue
            if chunks.stream[row] == WHOLE:
                whole_rows += 1
                out[feature, children] = chunks.weights[row + 1 : row + 1 + len(children)]
            else:
                at = row + 1 + 2 * np.arange(chunks.stream[row])
                assert len(set(chunks.stream[at])) == len(at) > 0
                out[feature, children[chunks.stream[at]]] = chunks.weights[at + 1]
        out[nr_sparse : nr_sparse + nr_dense, children] = chunks.dense[begin:end].T
        out[-1, children] = chunks.bias[begin:end]
    return out, whole_rows


@given(
    chain=chains(), nr_sparse=st.sampled_from([0, 1, 40]), nr_dense=st.sampled_from([0, 5]), threads=st.integers(1, 3),
    bias=st.sampled_from([0.0, 2.0]), density=st.sampled_from([0.02, 0.3, 1.0]),
)  # fmt: skip
def test_every_weight_is_there(chain, nr_sparse, nr_dense, threads, bias, density):
    model = random_model(chain, nr_sparse, nr_dense, bias=bias, density=density)
    chunks = build_chunks(model.levels, nr_sparse, nr_dense, threads)
    for t, level in enumerate(model.levels):
        expected = level.weights.toarray()
        if bias:
            expected[-1] *= bias
        else:
            expected = np.vstack([expected, np.zeros(expected.shape[1])])
        ours, _ = weights_of(chunks, t, level, nr_sparse, nr_dense)
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(("density", "some_whole"), [(0.05, False), (1.0, True)])
def test_rows_with_weights_of_most_siblings_are_stored_whole(density, some_whole):
    model = random_model(random_chain(64, [2]), 20, density=density)
    chunks = build_chunks(model.levels, 20, 0)
    whole = weights_of(chunks, 1, model.levels[1], 20, 0)[1]
    assert (whole > 0) == some_whole
    for threads in (2, 3):
        for ours, again in zip(chunks, build_chunks(model.levels, 20, 0, threads), strict=True):
            np.testing.assert_array_equal(ours, again)
