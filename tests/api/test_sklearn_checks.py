"""scikit-learn's own checks of estimators, on features; those that do not apply are listed with the reason."""

import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator

from xmc_tf.sklearn import XMCClassifier

_DENSE_ONLY = "it compares scores as dense arrays; they are sparse by default"
# By the value of sparse_output.
FAIL = {
    True: {
        "check_classifiers_classes": _DENSE_ONLY,
        "check_classifiers_train": _DENSE_ONLY,
        "check_classifiers_multilabel_output_format_predict_proba": _DENSE_ONLY,
        "check_classifiers_multilabel_output_format_decision_function": _DENSE_ONLY,
        "check_decision_proba_consistency": _DENSE_ONLY,
    },
    False: {
        "check_classifiers_multilabel_output_format_predict_proba": "it wants scores below 1; the post-processor "
        "l3-hinge gives 1 to every label beyond its margin",
    },
}
# These skip themselves, the second when it has passed with arrays.
SKIP = {
    "check_array_api_input": "SCIPY_ARRAY_API",
    "check_classifier_data_not_an_array": "pandas",
}


@pytest.mark.parametrize("sparse_output", [True, False])
def test_checks_of_estimators(sparse_output):
    """A check that is expected to fail and passes is a failure too."""
    found = XMCClassifier(sparse_output=sparse_output, n_jobs=1)
    results = check_estimator(found, expected_failed_checks=FAIL[sparse_output], on_skip=None, on_fail=None)
    failed = {f"{one['check_name']}: {one['exception']}" for one in results if one["status"] == "failed"}
    assert not failed
    assert {one["check_name"] for one in results if one["status"] == "xfail"} == set(FAIL[sparse_output])
    for one in results:
        if one["status"] == "skipped":
            assert SKIP[one["check_name"]] in str(one["exception"])
    passed = {one["check_name"] for one in results if one["status"] == "passed"}
    assert not passed & set(FAIL[sparse_output])
    assert len(passed) > 45


def test_a_transformer_reads_no_features_and_is_not_checked():
    with pytest.warns(SkipTestWarning, match="requires input  of type"):
        results = check_estimator(XMCClassifier("transformer"))
    assert [one["check_name"] for one in results] == ["check_estimator_cloneable"]
