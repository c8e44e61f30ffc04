"""The arrangement for search contains each weight of the model once."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.linear.cases import chains, random_chain, random_model
from xmc_tf.data import as_features
from xmc_tf.rankers.kernels import layout
from xmc_tf.rankers.kernels.layout import (
    LINE,
    SHARE,
    SMALL_SHARE,
    blocks_of,
    child_bytes,
    padded,
    row_count,
    row_words,
    table_at,
)
from xmc_tf.rankers.layout.stored import build_chunks

checksum, entry_of = numba.njit(layout.checksum), numba.njit(layout.entry_of)


def weights_of(chunks, t, level, nr_sparse, nr_dense):
    """Return a level's W from its chunks, dense."""
    out = np.zeros((nr_sparse + nr_dense + 1, level.clusters.shape[0]), np.float32)
    whole_rows = 0
    for chunk in range(chunks.level_start[t], chunks.level_start[t + 1]):
        begin, rows = chunks.start[chunk], chunks.rows[chunk]
        children = chunks.children[chunks.child_start[chunk] : chunks.child_start[chunk + 1]]
        width, size, slots = len(children), child_bytes(len(children)), 32 * blocks_of(rows)
        table = begin + table_at(width, nr_dense)
        entries = table + slots // 16
        stream = entries + 2 * (rows + 1)
        for feature in range(nr_sparse):
            entry = entry_of(chunks.words, table, slots, entries, feature)
            if entry < 0:
                continue
            row, length = stream + chunks.words[entry + 1], chunks.words[entry + 3] - chunks.words[entry + 1]
            if length == padded(width):
                whole_rows += 1
                out[feature, children] = chunks.weights[row : row + width]
            else:
                count = row_count(length, size)
                at = chunks.bytes[4 * (row + count) :][: count * size].view(f"u{size}")
                assert len(set(at)) == count > 0
                out[feature, children[at]] = chunks.weights[row : row + count]
        dense = chunks.weights[begin + width : table].reshape(width, nr_dense)
        out[nr_sparse : nr_sparse + nr_dense, children] = dense.T
        out[-1, children] = chunks.weights[begin : begin + width]
    return out, whole_rows


@given(
    chain=chains(), nr_sparse=st.sampled_from([0, 1, 40]), nr_dense=st.sampled_from([0, 5]), threads=st.integers(1, 3),
    bias=st.sampled_from([0.0, 2.0]), density=st.sampled_from([0.02, 0.3, 1.0]),
)  # fmt: skip
def test_every_weight_is_there(chain, nr_sparse, nr_dense, threads, bias, density):
    model = random_model(chain, nr_sparse, nr_dense, bias=bias, density=density)
    _, chunks = build_chunks(model.levels, nr_sparse, nr_dense, threads)
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
    _, chunks = build_chunks(model.levels, 20, 0)
    whole = weights_of(chunks, 1, model.levels[1], 20, 0)[1]
    assert (whole > 0) == some_whole
    for threads in (2, 3):
        for ours, again in zip(chunks, build_chunks(model.levels, 20, 0, threads)[1], strict=True):
            np.testing.assert_array_equal(ours, again)


@pytest.mark.parametrize("share", [SHARE, SMALL_SHARE])
@pytest.mark.parametrize("width", [1, 5, 256, 257, 70_000])
def test_the_length_of_a_row_says_how_many_weights_it_has(width, share):
    for count in range(1, min(width, 2000) + 1):
        length = row_words(count, width, share)
        if share * count >= padded(width) or count + -(-count * child_bytes(width) // 4) >= padded(width):
            assert length == padded(width)
        else:
            assert length < padded(width)
            assert row_count(length, child_bytes(width)) == count


@pytest.mark.parametrize(("labels", "size"), [(300, 1), (600, 2), (140_000, 4)])
def test_clusters_of_many_labels(labels, size):
    model = random_model(random_chain(labels, [2]), 3, density=0.05, posts="noop")
    _, chunks = build_chunks(model.levels, 3, 0, 2)
    assert child_bytes(chunks.child_start[2] - chunks.child_start[1]) == size
    ours, whole = weights_of(chunks, 1, model.levels[1], 3, 0)
    assert whole == 0
    expected = model.levels[1].weights.toarray()
    np.testing.assert_array_equal(ours, expected)
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
