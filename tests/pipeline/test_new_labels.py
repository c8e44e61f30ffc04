"""Labels without training documents beside an encoder: similar names, added labels, the export."""

import numpy as np
import pytest

from tests.pipeline.corpus import TOPICS, run_train, texts_and_labels
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.models.incremental.added_labels import add_labels
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.serving.local import LocalModel

HIDDEN = 2


@pytest.fixture(scope="module")
def extended(corpus):
    """A model one of whose labels has no documents, and to which two labels are added."""
    Y = load_matrix(corpus / "Y.trn.npz").tolil()
    Y[:, HIDDEN] = 0
    save_matrix(corpus / "Y.hidden.npz", Y.tocsr())
    flags = ["--no-fine-tune", "--labels", corpus / "labels.txt", "-y", corpus / "Y.hidden.npz"]
    run_train(corpus, corpus / "hidden", *flags)
    assert add_labels(corpus / "hidden", ["airport\thangar", "unknown word39"], corpus / "extended") == 26
    return XTransformer.load(corpus / "extended")


def test_names_of_new_labels_are_embedded(corpus, extended):
    similarity = extended.evidence.fusion.similarity
    assert similarity.labels.tolist() == [*range(26)]
    names = [f"{TOPICS[HIDDEN]} 1", "airport", "unknown word39"]
    assert np.allclose(similarity.vectors[[HIDDEN, 24, 25]], extended.encode(names))
    before = XTransformer.load(corpus / "hidden").evidence.fusion.similarity
    assert before.labels.tolist() == [*range(24)]
    assert (before.least, before.scale) == (similarity.least, similarity.scale)


def test_they_are_predicted_and_others_keep_their_probabilities(corpus, extended):
    texts = list(texts_and_labels(corpus, "tst")[0].lines())
    first, second = (one.predict(texts, only_topk=26) for one in (XTransformer.load(corpus / "hidden"), extended))
    assert second.shape == (60, 26)
    assert np.allclose(first.toarray(), second.toarray()[:, :24], atol=1e-6)
    assert second[:, [HIDDEN]].nnz
    assert "airport" in [name for name, _ in extended.best(["hangar of the airport"], k=26)[0]]
    assert extended.predict(["hangar"], only_topk=26)[0, 24] > 0
    pieces = extended.predict(texts, only_topk=26, max_pred_chunk=7)
    assert np.allclose(pieces.toarray(), second.toarray(), atol=1e-5)
    extended.set_output_constraint([1, 25])
    assert set(extended.predict([*texts, "airport"], only_topk=26).indices.tolist()) == {1, 25}
    extended.set_output_constraint(None)


def test_the_export_answers_as_the_model(corpus, extended, tmp_path):
    texts = [*texts_and_labels(corpus, "tst")[0].lines(), b"the hangar of an airport", b"word39", b""]
    extended.export(tmp_path / "served" / "1", only_topk=8)
    expected = extended.predict(texts, only_topk=8)
    found = LocalModel(tmp_path / "served" / "1").predict(texts)
    assert expected.nnz == 8 * len(texts)
    assert found.shape == expected.shape
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.allclose(found.data, expected.data, atol=1e-5)
    same = found.indices == expected.indices
    assert same.all() or np.allclose(found.data[~same], expected.data[~same], atol=1e-6)


def test_the_explanation_names_the_evidence(extended):
    explained = str(extended.explain("hangar of an airport", k=26))
    assert "probability from rankers, label names and the encoder" in explained
