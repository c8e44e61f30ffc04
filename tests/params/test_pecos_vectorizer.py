"""PECOS's vectorizer configurations: what our TF-IDF does of them, and which keys it cannot."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.params import TfidfParams, tfidf_of_pecos

# As PECOS's documentation shows them.
NESTED = {"type": "tfidf", "kwargs": {"base_vect_configs": [{"ngram_range": [1, 2], "max_df_ratio": 1.0}], "norm_p": 1}}
EVERYTHING = {
    "type": "tfidf",
    "kwargs": {
        "ngram_range": [1, 3], "truncate_length": -1, "max_feature": 5000, "min_df_ratio": 0.015, "max_df_ratio": 1.0,
        "min_df_cnt": 2, "max_df_cnt": -1, "binary": False, "use_idf": True, "smooth_idf": True, "add_one_idf": True,
        "sublinear_tf": True, "keep_frequent_feature": True, "norm": "l2", "analyzer": "word", "buffer_size": 0,
        "threads": 4,
    },
}  # fmt: skip


def read(config, documents=200):
    return tfidf_of_pecos(json.dumps(config), "config.json", documents)


def test_defaults_are_pecos_ones():
    assert read({"type": "tfidf", "kwargs": {}}) == TfidfParams.plain(
        ngram_max=1, min_df=1, max_features=2**31 - 1, sublinear_tf=False, lowercase=False, min_word_length=1, norm="l2"
    )


def test_what_can_be_done_is_done():
    assert (read(NESTED).ngram_max, read(NESTED).norm) == (2, "l1")
    params = read(EVERYTHING)
    assert (params.ngram_max, params.max_features, params.min_df, params.sublinear_tf) == (3, 5000, 3, True)
    assert read(EVERYTHING, documents=100).min_df == 2  # the larger of both bounds


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ngram_range", [2, 3]), ("ngram_range", "1,2"), ("ngram_range", [1, 99]), ("truncate_length", 10),
        ("max_df_ratio", 0.98), ("max_df_cnt", 100), ("binary", True), ("use_idf", False), ("smooth_idf", False),
        ("add_one_idf", False), ("keep_frequent_feature", False), ("analyzer", "char_wb"), ("norm", "l3"),
        ("min_df_ratio", 2), ("min_df_ratio", "1"), ("min_df_cnt", -1), ("max_feature", 0.5), ("sublinear_tf", "yes"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_done_is_named(key, value):
    ours = {"ngram_range": "ngram", "max_feature": "max_feature"}
    for config in ({key: value}, {"base_vect_configs": [{key: value}]}):
        if key == "norm" and "base_vect_configs" in config:
            continue  # norm_p counts there
        refused(rf"config\.json: .*{ours.get(key, key)}(.|\n)*expected", read, {"type": "tfidf", "kwargs": config})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "type is not supported"),
        ('{"type": "sklearntfidf", "kwargs": {}}', r"type is not supported(.|\n)*received: 'sklearntfidf'"),
        ('{"type": "tfidf", "kwargs": []}', "kwargs is not an object"),
        ('{"type": "tfidf", "kwargs": {"max_features": 3}}', "unknown key max_features"),
        ('{"type": "tfidf", "kwargs": {"base_vect_configs": []}}', "must have one vectorizer"),
        ('{"type": "tfidf", "kwargs": {"base_vect_configs": [{}, {}]}}', r"one vectorizer(.|\n)*received: 2"),
        ('{"type": "tfidf", "kwargs": {"base_vect_configs": [{}], "norm_p": 3}}', "norm_p"),
        ('{"type": "tfidf", "kwargs": {"base_vect_configs": [{}], "binary": false}}', "unknown key binary"),
    ],
)
def test_what_is_no_configuration(text, said):
    refused(said, tfidf_of_pecos, text, "config.json", 10)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner))


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(list(EVERYTHING["kwargs"])), JSON))
def test_any_values_are_taken_or_refused(kwargs):
    said = "config.json: fine"
    try:
        assert isinstance(read({"type": "tfidf", "kwargs": kwargs}), TfidfParams)
    except InputError as error:
        said = str(error)
    assert said.startswith("config.json: ")
