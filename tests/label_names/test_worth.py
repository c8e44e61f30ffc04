"""The worth of matches, learned from documents, without a document's own labels."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.label_names.cases import many
from xmc_tf.common.errors import InputError
from xmc_tf.label_names import LabelNames, label_vocabulary
from xmc_tf.label_names.label_names import _FILE


def test_names_qualifiers_and_alternatives():
    found = label_vocabulary(["Mercury (planet)", "cat\tfeline [animal]\t\tcat", "(1970)"])
    assert found.preferred == ["Mercury (planet)", "cat", "(1970)"]
    assert found.names == ["Mercury", "cat", "feline", "(1970)"]
    assert found.labels.tolist() == [0, 1, 1, 2]


def test_a_name_that_is_always_right_is_worth_more():
    texts = ["alpha"] * 40 + ["gamma"] * 40
    Y = csr_matrix(np.array([[1, 0]] * 40 + [[0, 1]] * 10 + [[0, 0]] * 30, np.float32))
    names, _ = LabelNames.learn(["alpha", "gamma"], texts, Y)
    alpha, gamma = names.evidence(["alpha", "gamma"]).diagonal()
    assert alpha > 0.85
    assert 0.2 < gamma < 0.4


def test_a_document_does_not_count_in_its_own_evidence():
    names, texts, Y = many()
    _, evidence = LabelNames.learn(names, texts, Y)
    row = 17
    others = np.setdiff1d(np.arange(len(texts)), [row])
    changed = Y.tolil()
    changed[row] = 1 - changed[row].toarray()
    _, again = LabelNames.learn(names, texts, changed.tocsr())
    first, second = evidence[row].toarray(), again[row].toarray()
    # Only through the share of similar names, which counts little.
    assert np.abs(first - second).max() < 0.02
    assert (abs(evidence[others] - again[others])).max() > 0.005


def test_labels_without_documents_are_found_by_their_names():
    names, texts, Y = many()
    Y = Y.tolil()
    Y[:, 3] = 0
    found, _ = LabelNames.learn(names, texts, Y.tocsr())
    assert found.evidence([names[3]])[0, 3] > 0.02


def test_saved_names_are_the_same(tmp_path):
    names, texts, Y = many()
    learned, _ = LabelNames.learn(names, texts, Y)
    learned.save(tmp_path / "names")
    loaded = LabelNames.load(tmp_path / "names")
    assert (learned.evidence(texts) != loaded.evidence(texts)).nnz == 0
    learned.save(tmp_path / "again")
    assert (tmp_path / "names" / _FILE).read_bytes() == (tmp_path / "again" / _FILE).read_bytes()


def test_damaged_files_are_named(tmp_path):
    names, texts, Y = many()
    LabelNames.learn(names, texts, Y)[0].save(tmp_path / "names")
    path = tmp_path / "names" / _FILE
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"names\.npz cannot be read"):
        LabelNames.load(tmp_path / "names")
