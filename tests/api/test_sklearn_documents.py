"""``XMCClassifier``: texts and features in every form."""

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csr_array, csr_matrix
from sklearn.exceptions import NotFittedError

from tests.api.sklearn_data import LISTS, TEST_TEXTS, TEXTS, X_TEST, X, small
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features


def test_features_in_any_form_give_the_same():
    expected = small().fit(X, LISTS).decision_function(X_TEST)
    for form in (csr_matrix, csr_array, coo_matrix, np.ndarray.tolist, lambda given: Features(dense=given)):
        found = small().fit(form(X), LISTS)
        assert found.n_features_in_ == X.shape[1]
        assert np.allclose(found.decision_function(form(X_TEST)).toarray(), expected.toarray(), atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a text", 3.5], "X: document 1 is not a text"),
        (np.array([["a", "b"]]), "a table of texts"),
        (X[:, :3], "X contains features(.|\n)*texts, as in fit"),
    ],
)
def test_documents_that_cannot_be_used(of_texts, given, message):
    with pytest.raises(InputError, match=message):
        of_texts.predict(given)


def test_other_documents_than_in_fit_are_refused(of_texts):
    found = small().fit(X, LISTS)
    with pytest.raises(InputError, match="X contains texts"):
        found.predict(TEST_TEXTS)
    with pytest.raises(ValueError, match="X has 3 features, but XMCClassifier is expecting 10 features"):
        found.predict(X_TEST[:, :3])
    with pytest.raises(ValueError, match="X has 3 features"):
        found.predict(Features(dense=X_TEST[:, :3].copy()))
    assert not hasattr(found.fit(TEXTS, LISTS), "n_features_in_")
    with pytest.raises(NotFittedError):
        small().predict(TEXTS)
