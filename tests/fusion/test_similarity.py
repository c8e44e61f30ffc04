"""Similarity of documents and label names: candidates by brute force, and what is learned."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random, vstack

from tests.fusion.made_up import assert_calibrated, mentions_of
from tests.refusals import refused
from xmc_tf.fusion import Fusion, hidden_labels
from xmc_tf.fusion import similarity as similarity_module
from xmc_tf.fusion.held_out import HeldOutCandidates
from xmc_tf.fusion.similarity import LOWEST, MOST, EmbeddedNames, Similarity
from xmc_tf.fusion.weighted_numbers import first_weights

LABELS, DIM = 60, 8


def unit(rng, count):
    vectors = rng.normal(size=(count, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_candidates_are_the_most_similar_labels():
    rng = np.random.default_rng(0)
    documents, vectors = unit(rng, 1100), unit(rng, LABELS)
    labels = np.arange(LABELS, dtype=np.int32) * 2
    similarity = Similarity(labels, vectors, least=-0.1, scale=0.5)
    found = similarity.candidates(documents, 200)
    cosines = documents @ vectors.T
    for row in (0, 1, 999, 1000, 1099):
        best = [place for place in np.argsort(-cosines[row])[:MOST] if cosines[row, place] >= -0.1]
        assert found[row].indices.tolist() == sorted(labels[best].tolist())
    pairs = similarity.of_pairs(documents, np.array([3, 3, 7]), np.array([4, 5, 118]))
    expected = np.maximum((cosines[[3, 7], [2, 59]] + 0.1) / 0.5, LOWEST)
    assert np.allclose(pairs[[0, 2]], expected, atol=1e-6)
    assert pairs[1] == 0
    ranks = similarity.ranks_of_pairs(documents, np.array([3, 3, 7]), np.array([4, 6, 118]))
    assert ranks == pytest.approx([(cosines[row] < cosines[row, at]).mean() for row, at in ((3, 2), (3, 3), (7, 59))])


def test_the_limit_is_the_same_if_documents_are_compared_in_parts(monkeypatch):
    rng = np.random.default_rng(3)
    vectors, documents, labels = unit(rng, 200), unit(rng, 300), np.arange(200, dtype=np.int32)
    whole = Similarity.measured(labels, vectors, documents)
    best = np.sort((documents @ vectors.T).ravel())[-MOST * 300 :]
    assert (whole.least, whole.scale) == pytest.approx((best[0], best.std()), abs=1e-4)
    monkeypatch.setattr(similarity_module, "_AT_ONCE", 1000)
    parts = Similarity.measured(labels, vectors, documents)
    assert (whole.least, whole.scale) == (parts.least, parts.scale)
    assert (whole.candidates(documents, 200) != parts.candidates(documents, 200)).nnz == 0


@pytest.mark.parametrize("many", [False, True])
def test_probabilities_of_new_labels_follow_the_similarity(tmp_path, monkeypatch, many):
    monkeypatch.setattr(similarity_module, "MOST_VALUES", LABELS * DIM - many)
    rng = np.random.default_rng(1)
    names, hidden = unit(rng, LABELS), np.arange(0, LABELS, 6)
    documents = np.zeros(LABELS, np.int64) + 20
    documents[hidden] = 0

    def texts(count):
        vectors = unit(rng, count)
        raw = 6 * (vectors @ names.T) - 3
        return vectors, csr_matrix((rng.random(raw.shape) < 1 / (1 + np.exp(-raw))).astype(np.float32))

    vectors, truth = texts(3000)
    Y = truth.tolil()
    Y[:, hidden] = 0
    scores = random(3000, LABELS, 0.1, format="csr", dtype=np.float32, rng=rng)
    nothing = mentions_of(csr_matrix((3000, LABELS), dtype=np.float32))
    read_as_new = hidden_labels(documents > 0, 0)
    new = documents == 0
    embedded = EmbeddedNames.of(new, read_as_new | new, lambda some: names[some], vectors, nothing)
    fusion = Fusion.learn(scores, nothing, truth, vstack([truth, Y]), [read_as_new], embedded, fold_sizes=[3000])
    fusion.log_documents[hidden] = 0
    kept = hidden if many else np.arange(LABELS)
    assert fusion.similarity.labels.tolist() == kept.tolist()
    fusion.save(tmp_path / "fusion")
    vectors, truth = texts(3000)
    found = Fusion.load(tmp_path / "fusion").combine(scores, nothing, LABELS, vectors=vectors)
    assert_calibrated(found, truth, (0.0, 0.2, 0.5, 1.0), 0.06, hidden, 100)
    nobody = csr_matrix(scores.shape, dtype=np.float32)
    some = fusion.combine(nobody, nothing, LABELS, vectors=vectors, allowed=np.array([0, 1, 2]))
    assert set(some.indices.tolist()) == {0, 1, 2} & set(kept.tolist())
    (tmp_path / "fusion" / "similarity.npz").write_bytes(b"broken")
    refused(r"similarity\.npz cannot be read", Fusion.load, tmp_path / "fusion")


def test_starting_weights_of_an_encoder_are_used_if_it_knows_the_language(monkeypatch):
    used, fit = [], HeldOutCandidates.fit
    monkeypatch.setattr(
        HeldOutCandidates, "fit", lambda *a, encoded, **k: used.append(encoded) or fit(*a, encoded=encoded, **k)
    )
    rng = np.random.default_rng(2)
    names, truth = unit(rng, LABELS), csr_matrix(np.eye(LABELS, dtype=np.float32))
    new = np.ones(LABELS, bool)
    # Each text mentions its label; few texts mention too few labels to know.
    for vectors, count, expected in ((names, LABELS, True), (unit(rng, LABELS), LABELS, False), (names, 40, False)):
        Y = truth[:count]
        embedded = EmbeddedNames.of(new, new, lambda some: names[some], vectors[:count], mentions_of(Y))
        fusion = Fusion.learn(Y, mentions_of(Y), Y, Y, [new], embedded, fold_sizes=[count])
        assert {*used} == {expected}
        assert np.allclose(fusion.weights, first_weights(expected))  # no label is known here: nothing else is learned
        used.clear()
