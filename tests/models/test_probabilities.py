"""Probabilities, mostly of models without label names: calibration, promises, folder, export, growing, and refusals."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_matrix, save_npz

from tests.fusion.made_up import assert_calibrated, documents
from tests.refusals import refused
from tests.serving.cases import assert_export_answers
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.linear.train import main as train_command
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.server.__main__ import main as serve
from xmc_tf.server.versions import ServedModel


@pytest.fixture(scope="module")
def model():
    return XRLinear.train(*documents(), threads=1)


def test_scores_of_a_model_of_features_are_probabilities_and_rank_better(model):
    X, Y = documents(2000, seed=1)
    assert_calibrated(model.predict(X), Y, (0.1, 0.3, 0.6, 1.0), 0.08, least=200)
    plain = XRLinear.train(*documents(), threads=1, probabilities=False)
    assert plain.evidence is None
    assert np.array_equal(plain.predict(X).toarray(), model.predict(X, scores="ranker").toarray())


def test_labels_with_few_documents_are_ranked_better():
    old, new = documents(600, 300), documents(2000, 300, seed=1)
    better, plain = (XRLinear.train(*old, threads=1, probabilities=one).evaluate(*new) for one in (True, False))
    for k in (1, 3, 5):
        assert better.at("P", k) > plain.at("P", k)


def test_a_promise_of_precision_is_kept(model):
    X, Y = documents(2000, seed=1)
    found = model.predict(X, min_precision=0.6)
    assert found.nnz > 500
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    assert np.asarray(Y[rows, found.indices]).mean() >= 0.6


def of_one_document_each(first, last, rng):
    """Return texts and labels: one of 20 labels that repeat, and one that only this document has."""
    texts, labels = [], []
    for number in range(first, last):
        labels.append([f"{rng.integers(20):02}usual", f"{number:04}rare"])
        by_chance = [f"{rng.integers(20):02}usual", *(f"{other:04}rare" for other in rng.integers(0, first or last, 2))]
        words = [f"word{word}" for word in rng.integers(0, 3000, 10)]
        texts.append(" and ".join(rng.permutation([*labels[-1], *by_chance, *words])))
    return texts, labels


def test_a_promise_is_kept_if_most_labels_have_one_document(tmp_path):
    """The label of a held-out document is in the vocabulary because of it; labels of new documents are not.

    Its name may be as rare as can be because no other document has it. A new document that mentions it is another.
    """
    rng = np.random.default_rng(0)
    model = XRLinear.train(*of_one_document_each(0, 1000, rng), threads=1, effort="fast")
    texts, labels = of_one_document_each(1000, 2000, rng)
    for promised in (0.3, 0.4, 0.45, 0.5):
        found = model.best(texts, min_precision=promised)
        right = [name in true for row, true in zip(found, labels, strict=True) for name, _ in row]
        assert len(right) > 50
        assert np.mean(right) >= promised
    refused(r"cannot promise a precision of 0\.7", model.best, texts, min_precision=0.7)
    model.save(tmp_path / "model")
    served = ServedModel(tmp_path / "model", min_precision=0.5).current.predict(texts[:100], 5)
    assert [label for one in served for label in one.labels.tolist()] == model.predict(
        texts[:100], k=5, min_precision=0.5
    ).indices.tolist()
    refused("cannot promise", ServedModel, tmp_path / "model", min_precision=0.7)
    flags = ["-m", str(tmp_path / "model"), "--threshold", "0.5", "--min-precision", "0.5"]
    refused("mutually exclusive", serve, flags)


def test_the_folder_has_no_names_and_gives_the_same_answers(model, tmp_path):
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "fusion").is_dir()
    assert not (tmp_path / "model" / "label_names").exists()
    loaded, X = XRLinear.load(tmp_path / "model"), documents(50, seed=2)[0]
    assert np.array_equal(loaded.predict(X).toarray(), model.predict(X).toarray())
    some = loaded.predict(X, only_labels=[50, 1, 40], k=2)
    loaded.set_output_constraint([1, 40, 50])
    assert set(some.indices.tolist()) <= {1, 40, 50}
    assert np.array_equal(some.toarray(), loaded.predict(X, only_topk=2).toarray())
    assert np.array_equal(loaded.predict(X, only_labels=[1, 2]).indices, np.ones(50))  # what both allow
    refused("none of the labels may be predicted", loaded.predict, X, only_labels=[2])
    loaded.set_output_constraint(None)
    assert np.array_equal(loaded.predict(X).toarray(), model.predict(X).toarray())
    refused("label 'baking' does not exist", loaded.predict, X, only_labels=["baking"])
    assert loaded.evaluate(X, documents(50, seed=2)[1], k=3).ks == (3,)
    refused("k and only_topk are the same", loaded.predict, X, k=1, only_topk=2)
    for options, named in (({"k": 0}, "k"), ({"only_topk": 0}, "only_topk")):
        refused(f"^{named} is out of range\n  expected: a whole number at least 1\n", loaded.predict, X, **options)


def test_the_export_answers_as_the_model(model, tmp_path):
    X = documents(60, seed=3)[0]
    width = int(np.diff(X.indptr).max())
    ids, weights = np.zeros((60, width), np.int32), np.zeros((60, width), np.float32)
    for row in range(60):
        own = slice(X.indptr[row], X.indptr[row + 1])
        ids[row, : own.stop - own.start], weights[row, : own.stop - own.start] = X.indices[own], X.data[own]
    for number, options in enumerate(({}, {"scores": "ranker"}), start=1):
        folder = tmp_path / str(number)
        model.export(folder, k=5, **options)
        expected = model.predict(X, only_topk=5, **options)
        signature = tf.saved_model.load(str(folder)).signatures["features"]
        found = signature(feature_ids=tf.constant(ids), feature_weights=tf.constant(weights))
        for row in range(60):
            own = slice(expected.indptr[row], expected.indptr[row + 1])
            kept = found["scores"][row].numpy() > 0
            assert found["labels"][row].numpy()[kept].tolist() == expected.indices[own].tolist()
            assert np.allclose(found["scores"][row].numpy()[kept], expected.data[own], atol=1e-5)


def test_a_model_of_texts_without_names_and_its_export(tmp_path):
    X, Y = documents()
    texts = [" ".join(f"word{number}" for number in X[row].indices) for row in range(600)]
    model = XRLinear.train(texts, Y, threads=1)
    assert model.evidence is not None
    assert model.evidence.names is None
    assert assert_export_answers(model, tmp_path / "1", texts[:50], min_precision=0.5).nnz > 50


def test_an_explanation_says_that_the_score_is_a_probability(model):
    X = documents(1, seed=4)[0]
    found, predicted = model.explain(X, k=3), model.predict(X, only_topk=3)
    assert [label.score for label in found.labels] == predicted.data.tolist()
    assert {label.combined for label in found.labels} == {"probability from rankers"}
    for label in found.labels:
        assert [(one.source, one.amount) for one in label.shares] == [("tree", pytest.approx(label.score, abs=1e-6))]


def test_a_growing_model_keeps_its_probabilities(tmp_path):
    X, Y = documents()
    model = XRLinear.train(X, Y, threads=1, keep_training_data=True)
    more, labels = documents(100, seed=5)
    labels = csr_matrix((labels.data, labels.indices, labels.indptr), shape=(100, 61)).tolil()
    labels[0, 60] = 1
    grown = model.with_documents(more, csr_matrix(labels), new_labels=True, threads=1)
    assert grown.nr_labels == len(grown.evidence.fusion.log_documents) == 61
    assert grown.evidence.names is None
    documents_of = np.rint(np.expm1(grown.evidence.fusion.log_documents))
    assert np.array_equal(
        documents_of[:60], np.asarray(Y.sum(axis=0)).ravel() + documents(100, seed=5)[1].sum(axis=0).A1
    )
    smaller = grown.without_labels([0, 3])
    smaller.save(tmp_path / "smaller")
    assert np.array_equal(XRLinear.load(tmp_path / "smaller").predict(more).toarray(), smaller.predict(more).toarray())
    assert smaller.with_merged_labels([[1, 2]], threads=1).predict(more).shape == (100, 58)


def test_few_documents_have_scores_and_the_log_says_why(caplog):
    with caplog.at_level(logging.INFO, logger="xmc_tf"):
        model = XRLinear.train(*documents(150), threads=1)
    assert model.evidence is None
    assert "not calibrated probabilities: 150 documents are too few" in caplog.text
    refused("probabilities cannot be learned", XRLinear.train, *documents(19), threads=1, probabilities=True)
    assert XRLinear.train(*documents(150), threads=1, probabilities=True).evidence is not None
    refused("mutually exclusive", XRLinear.train, ["a", "b"], [["c"], ["d"]], label_names=True, probabilities=False)


def test_the_command_of_pecos_keeps_scores_unless_asked(tmp_path, caplog):
    X, Y = documents()
    save_npz(tmp_path / "X.npz", X)
    save_npz(tmp_path / "Y.npz", Y)
    flags = ["-x", str(tmp_path / "X.npz"), "-y", str(tmp_path / "Y.npz"), "-n", "1"]
    train_command([*flags, "-m", str(tmp_path / "scores")])
    assert "scores are those of PECOS" in caplog.text
    caplog.clear()
    train_command([*flags, "-m", str(tmp_path / "probable"), "--probabilities", "true"])
    assert "scores are those of PECOS" not in caplog.text
    scores, probable = (XRLinear.load(tmp_path / name) for name in ("scores", "probable"))
    assert scores.evidence is None
    refused("--probabilities true", scores.predict, X, min_precision=0.5)
    expected = XRLinear.train(X, Y, threads=1)
    assert np.array_equal(probable.predict(X).toarray(), expected.predict(X).toarray())
    assert json.loads((tmp_path / "probable" / "fusion" / "fusion.json").read_text())["names"] is False


def test_a_folder_that_lacks_its_names_is_refused(model, tmp_path):
    model.evidence.save(tmp_path)
    header = tmp_path / "fusion" / "fusion.json"
    header.write_text(header.read_text().replace('"names": false', '"names": true'))
    refused("label_names/ is missing", ProbabilityModel.load, tmp_path)
