"""Planted errors are found; each finding says why; labels without errors are left alone."""

import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.audit.cases import planted
from tests.fusion.made_up import documents
from tests.refusals import refused
from xmc_tf import XRLinear
from xmc_tf.audit import KINDS
from xmc_tf.audit.kernels import LEAST_SIMILARITY
from xmc_tf.audit.neighbours import alike_documents
from xmc_tf.audit.pairs import LabelPairs, random_pairs


@pytest.fixture(scope="module")
def collection():
    return planted()


@pytest.fixture(scope="module")
def model(collection):
    return XRLinear.train(collection.texts, collection.labels, names=collection.names)


@pytest.fixture(scope="module")
def audit(collection, model):
    return model.audit(collection.texts, collection.labels)


@pytest.mark.parametrize(("kind", "errors"), [("missing", "removed"), ("wrong", "wrong")])
def test_planted_errors_come_first(audit, collection, kind, errors):
    planted_ones = getattr(collection, errors)
    found = [(one.row, one.label) for one in audit.of_kind(kind)[: len(planted_ones)]]
    assert len(planted_ones.intersection(found)) >= 0.75 * len(planted_ones)


def test_findings_are_sorted_by_gain_and_are_of_the_documents(audit, collection):
    gains = [one.gain for one in audit]
    assert gains == sorted(gains, reverse=True)
    assert all(0 <= one.strength <= 1 and one.kind in KINDS and one.why for one in audit)
    given = collection.labels.toarray() > 0
    assert not any(given[one.row, one.label] for one in audit.of_kind("missing"))
    assert all(given[one.row, one.label] for one in audit.of_kind("wrong"))


def test_reasons_name_the_evidence(audit, collection):
    row, label = next((one.row, one.label) for one in audit.of_kind("missing"))
    why = next(one.why for one in audit.of_kind("missing"))
    assert "prediction" in why
    assert "most similar documents have it" in why
    assert "other documents with" in why
    named = any(word in collection.texts[row] for word in collection.names[label].split())
    assert named == ("its name is in the text" in why)


def test_at_most_so_many_of_each_kind_with_any_number_of_threads(collection, model, audit):
    few = model.audit(collection.texts, collection.labels, most=5, threads=1)
    for kind in ("missing", "wrong"):
        assert few.of_kind(kind) == audit.of_kind(kind)[:5]


def test_a_number_that_is_a_limit_is_said_to_be_one(audit):
    one = dataclasses.replace(audit, findings=audit.of_kind("missing")[:3], most=3)
    assert str(one).startswith("the first 3 missing labels, 0 wrong labels")
    assert str(dataclasses.replace(one, most=4)).startswith("3 missing")


def test_names_of_labels_and_tables_give_the_same_and_unknown_labels_are_counted(collection, model, audit, caplog):
    lists = [[*own, "unknown"] if row < 3 else own for row, own in enumerate(collection.lists)]
    frame = {"text": collection.texts, "labels": ["|".join(own) for own in lists]}
    table = model.audit(frame, "labels", label_separator="|")
    assert [(one.kind, one.row, one.label) for one in table] == [(one.kind, one.row, one.label) for one in audit]
    assert "3 labels of documents are unknown" in caplog.text


def test_near_duplicates_with_different_labels(collection, model):
    texts, Y = [*collection.texts, collection.texts[7]], collection.labels.toarray()
    other = np.zeros(Y.shape[1], np.float32)
    other[[0, 1]] = 1.0
    audit = model.audit(texts, csr_matrix(np.vstack([Y, other])))
    found = audit.of_kind("duplicates")
    assert (found[0].row, found[0].other) == (7, len(texts) - 1)
    assert repr(collection.names[0]) in found[0].why or repr(collection.names[1]) in found[0].why


def test_labels_that_nobody_can_tell_apart():
    """Half of the documents of a label get another one at random."""
    collection = planted(errors=0)
    Y = collection.labels.toarray()
    rows = np.flatnonzero(Y[:, 4])
    split = np.column_stack([Y, np.zeros(len(Y), np.float32)])
    moved = np.random.default_rng(1).permutation(rows)[: len(rows) // 2]
    split[moved, 4], split[moved, -1] = 0.0, 1.0
    names = [*collection.names, "its double"]
    model = XRLinear.train(collection.texts, csr_matrix(split), names=names)
    audit = model.audit(collection.texts, csr_matrix(split))
    assert [(one.label, one.other) for one in audit.of_kind("same labels")] == [(4, len(names) - 1)]
    assert [one.label for one in audit.of_kind("silent name")] == [len(names) - 1]
    can_be_accepted = [one.kind in ("missing", "wrong") for one in audit.findings]
    assert can_be_accepted == sorted(can_be_accepted, reverse=True)  # once by gain, which is large for silent names


def test_features_without_names(collection, model):
    X = csr_matrix(model.features(collection.texts).sparse)
    audit = XRLinear.train(X, collection.labels).audit(X, collection.labels)
    found = {(one.row, one.label) for one in audit.of_kind("wrong")[: len(collection.wrong)]}
    assert len(found & collection.wrong) >= 0.6 * len(collection.wrong)


def test_what_cannot_be_audited_is_refused(collection, model):
    unknown = [["of another collection"]] * len(collection.texts)
    refused("too few documents", model.audit, collection.texts[:5], collection.labels[:5])
    refused("no document has a label that the model knows", model.audit, collection.texts, unknown)
    refused("number of document names", model.audit, collection.texts, collection.labels, documents=["one"])


@pytest.fixture(scope="module")
def made_up():
    X, Y = documents(count=150, labels=20)
    pairs = LabelPairs.of(Y, random_pairs(Y, 1.0, 0))
    return X, Y, pairs, pairs.values(Y) > 0


def test_the_most_similar_words_come_first(made_up):
    X, Y, pairs, has = made_up
    near, _ = alike_documents(X, Y, pairs, has, most=10)
    similar = (X @ X.T).toarray()
    np.fill_diagonal(similar, -1.0)
    for row in range(X.shape[0]):
        found = near[row]
        expected = np.sort(similar[row][similar[row] >= LEAST_SIMILARITY])[::-1][:10]
        np.testing.assert_allclose(found.data, expected, rtol=1e-5)
        np.testing.assert_allclose(similar[row][found.indices], found.data, rtol=1e-5)
