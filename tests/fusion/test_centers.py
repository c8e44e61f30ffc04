"""Centers of labels: by hand, and what is learned from them."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random

from tests.fusion.made_up import assert_calibrated, mentions_of
from tests.refusals import refused
from xmc_tf.fusion import Fusion
from xmc_tf.fusion import centers as module
from xmc_tf.fusion.centers import NAME_COUNTS_AS, HeldOutCenters, LabelCenters

LABELS, DIM = 40, 6


def unit(rng, count):
    vectors = rng.normal(size=(count, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_centers_are_mean_directions_of_documents_and_name():
    rng = np.random.default_rng(0)
    documents, names = unit(rng, 5), unit(rng, 3)
    Y = csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    found = LabelCenters.of(Y, 7 * documents, names)  # of any common length
    first = documents[0] + documents[1] + documents[3] + NAME_COUNTS_AS * names[0]
    assert np.allclose(found.vectors[0], first / np.linalg.norm(first), atol=1e-6)
    assert np.allclose(found.vectors[2], names[2], atol=1e-6)
    without = LabelCenters.of(Y, documents, None)
    assert np.allclose(without.vectors[1], documents[4], atol=1e-6)
    assert not without.vectors[2].any()
    pairs = found.of_pairs(documents, np.array([0, 4]), np.array([1, 0]))
    assert np.allclose(pairs, [documents[0] @ found.vectors[1], documents[4] @ found.vectors[0]], atol=1e-6)


def test_held_out_documents_are_not_in_the_centers_that_are_learned_with():
    rng = np.random.default_rng(1)
    documents, names = unit(rng, 30), unit(rng, LABELS)
    Y = random(30, LABELS, 0.2, format="csr", dtype=np.float32, rng=rng)
    held_out, others = np.arange(0, 30, 3), np.setdiff1d(np.arange(30), np.arange(0, 30, 3))
    found = HeldOutCenters.of(Y, documents, held_out, documents[held_out], lambda labels: names[labels])
    expected = LabelCenters.of(Y[others], documents[others], names)
    assert np.allclose(found.elsewhere.vectors, expected.vectors, atol=1e-6)
    assert np.allclose(found.every.vectors, LabelCenters.of(Y, documents, names).vectors, atol=1e-6)


@pytest.fixture(scope="module")
def learned():
    """Return a fusion of rankers that know little and an encoder that knows more; and new documents with labels."""
    rng = np.random.default_rng(2)
    names = unit(rng, LABELS)

    def texts(count):
        vectors = unit(rng, count)
        right = rng.random((count, LABELS)) < 1 / (1 + np.exp(3 - 7 * (vectors @ names.T)))
        scores = np.where(rng.random(right.shape) < 0.4, 0.1 + 0.3 * right + 0.5 * rng.random(right.shape), 0)
        return vectors, csr_matrix(right, dtype=np.float32), csr_matrix(scores, dtype=np.float32)

    vectors, Y, scores = texts(2500)
    Y = Y.tolil()
    Y[:, 0] = 0  # a label without documents
    Y = Y.tocsr()
    held_out = np.arange(0, 2500, 2)
    centers = HeldOutCenters.of(Y, vectors, held_out, vectors[held_out], lambda labels: names[labels])
    nothing = mentions_of(csr_matrix((len(held_out), LABELS), dtype=np.float32))
    fusions = [
        Fusion.learn(scores[held_out], nothing, Y[held_out], Y, fold_sizes=[len(held_out)], centers=some)
        for some in (None, centers)
    ]  # fmt: skip
    return fusions, texts(2500)


def precision(found, truth, k):
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    first = np.arange(found.nnz) - found.indptr[rows] < k
    return np.asarray(truth[rows[first], found.indices[first]]).sum() / (k * found.shape[0])


def test_answers_are_better_and_probabilities_right(learned):
    (without, with_centers), (vectors, truth, scores) = learned
    before, found = (one.combine(scores, None, 10, vectors=vectors) for one in (without, with_centers))
    assert precision(found, truth, 3) > precision(before, truth, 3) + 0.05
    assert_calibrated(found, truth, (0.0, 0.2, 0.5, 1.0), 0.05, least=100)


def test_labels_that_are_added_change_no_probability(learned):
    (_, fusion), (vectors, _, scores) = learned
    wider = fusion.with_added(2)
    assert wider.centers.vectors.shape == (LABELS + 2, DIM)
    scores = scores.copy()
    scores.resize(scores.shape[0], LABELS + 2)
    named = csr_matrix((np.full(2500, 0.3, np.float32), (np.arange(2500), np.full(2500, LABELS))), scores.shape)
    plain = wider.combine(scores, None, 50, vectors=vectors).toarray()
    more = wider.combine(scores, mentions_of(named), 50, vectors=vectors).toarray()
    assert (more[:, LABELS] > 0).all()
    assert np.array_equal(plain[:, :LABELS], more[:, :LABELS])


def test_a_folder_keeps_them_and_damage_is_named(learned, tmp_path):
    (_, fusion), (vectors, _, scores) = learned
    fusion.save(tmp_path / "fusion")
    again = Fusion.load(tmp_path / "fusion")
    expected, found = (one.combine(scores[:, :LABELS], None, 10, vectors=vectors) for one in (fusion, again))
    assert (expected != found).nnz == 0
    np.save(tmp_path / "fusion" / "centers.npy", fusion.centers.vectors[:-1])
    refused(r"centers\.npy does not belong to this model", Fusion.load, tmp_path / "fusion")
    (tmp_path / "fusion" / "centers.npy").write_bytes(b"broken")
    refused(r"centers\.npy cannot be read", Fusion.load, tmp_path / "fusion")


def test_too_many_labels_have_none(monkeypatch):
    monkeypatch.setattr(module, "_MOST_VALUES", LABELS * DIM - 1)
    documents = unit(np.random.default_rng(0), 4)
    Y = csr_matrix((4, LABELS), dtype=np.float32)
    assert HeldOutCenters.of(Y, documents, np.arange(2), documents[:2], None) is None
