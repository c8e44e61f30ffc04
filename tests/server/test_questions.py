"""Requests in the REST format of TensorFlow Serving, good and bad."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refused
from xmc_tf.server.questions import BestLabels, answer_about_model, answer_of, parse_question

LIMIT = 1 << 20


def _question(content):
    return parse_question(json.dumps(content).encode(), LIMIT)


@given(st.lists(st.text()))
def test_the_forms_of_a_request_are_equal(texts):
    encoded = [{"b64": base64.b64encode(text.encode()).decode()} for text in texts]
    forms = [
        {"inputs": texts},
        {"inputs": {"text": texts}},
        {"inputs": {"text": encoded}, "signature_name": "serving_default"},
        {"instances": texts},
        {"instances": [{"text": text} for text in texts]},
        {"instances": encoded},
    ]
    for form in forms:
        question = _question(form)
        assert question.texts == texts
        assert question.by_row == ("instances" in form)
        assert not question.ks


def test_a_request_may_name_the_labels_of_its_answer():
    assert _question({"inputs": ["a"], "only_labels": ["baking", 7]}).only_labels == ("baking", 7)
    for wrong in ("baking", [], [["a"]], [True], [1.5], {"a": 1}):
        refused("only_labels is not a list of labels", _question, {"inputs": ["a"], "only_labels": wrong})


def test_top_k_has_a_number_for_each_text():
    by_column = _question({"signature_name": "top_k", "inputs": {"text": ["a", "b"], "k": [1, 3]}})
    by_row = _question({"signature_name": "top_k", "instances": [{"text": "a", "k": 1}, {"text": "b", "k": 3}]})
    assert by_column.texts == by_row.texts == ["a", "b"]
    assert by_column.ks == by_row.ks == [1, 3]
    assert _question({"inputs": ["a", "b"], "k": 2}).ks == [2, 2]


def test_text_that_is_not_unicode_is_replaced():
    assert _question({"inputs": [{"b64": base64.b64encode(b"a\xff").decode()}]}).texts == ["a\ufffd"]
    assert parse_question(b'{"inputs": ["a\\ud800"]}', LIMIT).texts == ["a?"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "neither inputs nor instances"),
        ({"inputs": ["a"], "instances": ["a"]}, "both inputs and instances"),
        ({"inputs": ["a"], "top_k": 2}, r"unknown keys(.|\n)*received: top_k"),
        ({"inputs": ["a", "b"], "k": 1.5}, "k at position 0 is not a whole number"),
        ({"inputs": {"text": ["a"], "k": [1]}, "signature_name": "top_k", "k": 1}, r"for each text\n.*\n.*leave it"),
        ({"inputs": "a"}, "inputs does not match the signature"),
        ({"inputs": {"text": "a"}}, "input text is not a list"),
        ({"inputs": {"texts": ["a"]}}, "inputs does not match the signature"),
        ({"inputs": [1]}, r"text\[0\] is not a string"),
        ({"inputs": ["a", None]}, r"text\[1\] is not a string"),
        ({"inputs": [{"b64": "!"}]}, r"text\[0\] is not valid base64\n.*a UTF-8 text"),
        ({"inputs": ["a"], "signature_name": "classify"}, "no signature 'classify'"),
        ({"inputs": ["a"], "signature_name": ["x"]}, "no signature"),
        ({"signature_name": "top_k", "inputs": ["a"]}, "inputs does not match the signature"),
        ({"signature_name": "top_k", "inputs": {"text": ["a"], "k": [1, 2]}}, "one number for each text"),
        ({"signature_name": "top_k", "inputs": {"text": ["a"], "k": [1.5]}}, "k at position 0 is not a whole number"),
        ({"signature_name": "top_k", "inputs": {"text": ["a"], "k": [True]}}, "k at position 0 is not a whole number"),
        ({"signature_name": "top_k", "instances": ["a"]}, r"instances\[0\] is not an object"),
        ({"instances": [{"text": "a", "k": 1}]}, r"instances\[0\] does not match the signature"),
        ({"instances": {"text": "a"}}, "instances is not a list"),
    ],
)
def test_bad_requests_are_refused(content, message):
    refused(message, _question, content)


def test_too_long_and_too_deep_requests_are_refused():
    refused("too long", parse_question, b'{"inputs": ["' + b"a" * LIMIT + b'"]}', LIMIT)
    refused("nested too deeply", parse_question, b'{"inputs": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", LIMIT)


def test_answers_are_padded():
    best = [
        BestLabels(np.array([2, 0]), np.array([0.5, 0.25], np.float32)),
        BestLabels(np.array([], int), np.array([])),
    ]
    names = ["zero", "one", "two"]
    row = _question({"instances": ["a", "b"]})
    rows = [
        {"labels": [2, 0, -1], "scores": [0.5, 0.25, 0.0], "names": ["two", "zero", ""]},
        {"labels": [-1] * 3, "scores": [0.0] * 3, "names": [""] * 3},
    ]
    assert answer_of(row, best, names, 3) == {"predictions": rows}
    columns = {"outputs": {key: [one[key] for one in rows] for key in rows[0]}}
    assert answer_of(_question({"inputs": ["a", "b"]}), best, names, 3) == columns
    assert answer_of(row, best, None, 3)["predictions"][0]["names"] == ["2", "0", ""]


def test_about_has_numbers_for_each_text():
    numbers = {"nr_labels": 7, "k": 5, "most": 6}
    assert answer_about_model(_question({"signature_name": "about", "inputs": [""]}), numbers) == {
        "outputs": {"nr_labels": [7], "k": [5], "most": [6]}
    }
