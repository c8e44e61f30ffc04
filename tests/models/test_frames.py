"""Training on a DataFrame: a dictionary of columns, PyArrow's table, and stand-ins for pandas and Polars."""

import pytest

from xmc_tf import XRLinear, XRLinearParams
from xmc_tf.common.errors import InputError
from xmc_tf.models.frames import documents_of
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import TfidfParams

COLUMNS = {
    "title": ["rye bread", "herbs in pots", "bread ovens", None],
    "body": ["flour\nand water", "basil", "", "soil for pots"],
    "subjects": ["baking|bread", "gardening", "baking|bread", "gardening"],
}
TEXTS = ["rye bread flour and water", "herbs in pots basil", "bread ovens", "soil for pots"]
LABELS = [["baking", "bread"], ["gardening"], ["baking", "bread"], ["gardening"]]
PARAMS = XRLinearParams(tfidf=TfidfParams(min_df=1))


class _Missing:
    """pandas' NA: a comparison with it is neither true nor false."""

    def __ne__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None

    def __repr__(self):
        return "<NA>"


class _Column:
    def __init__(self, values):
        self._values = values

    def to_list(self):
        return [_Missing() if value is None else value for value in self._values]


class _Frame:
    """A DataFrame whose columns do not iterate over Python's values."""

    def __init__(self, columns):
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, name):
        return _Column(self._columns[name])


@pytest.mark.parametrize("make", [dict, _Frame])
def test_columns_become_texts_and_labels(make):
    found = documents_of(make(COLUMNS), "subjects", {"text": ["title", "body"]})
    assert found == (TEXTS, LABELS)


def test_an_arrow_table():
    arrow = pytest.importorskip("pyarrow")
    lists = {**COLUMNS, "subjects": LABELS}
    assert documents_of(arrow.table(lists), "subjects", {"text": ["title", "body"]}) == (TEXTS, LABELS)


def test_the_separator_can_be_given():
    _, labels = documents_of(COLUMNS, "subjects", {"text": "body", "label_separator": ""})
    assert labels[0] == ["baking|bread"]


def test_training_and_evaluation_equal_those_on_lists():
    ours = XRLinear.train(COLUMNS, text=["title", "body"], labels="subjects", params=PARAMS)
    expected = XRLinear.train(TEXTS, LABELS, params=PARAMS)
    assert ours.names == expected.names == ["baking", "bread", "gardening"]
    assert (ours.predict(TEXTS) != expected.predict(TEXTS)).nnz == 0
    found = ours.evaluate(COLUMNS, "subjects", text=["title", "body"], ks=(1,))
    assert found.at("P", 1) == expected.evaluate(TEXTS, LABELS, ks=(1,)).at("P", 1) == 1.0


def test_a_frame_without_columns_of_labels_takes_other_labels():
    assert documents_of({"text": ["a", "b"]}, [["x"], ["y"]], {}) == (["a", "b"], [["x"], ["y"]])


@pytest.mark.parametrize(
    ("texts", "labels", "columns", "message"),
    [
        (TEXTS, LABELS, {"text": "title"}, "not a DataFrame"),
        (TEXTS, "subjects", {}, "not a DataFrame"),
        (COLUMNS, "topics", {}, "no column 'topics'"),
        (COLUMNS, "subjects", {"text": "abstract"}, "no column 'abstract'"),
    ],
)
@pytest.mark.parametrize("model", [XRLinear, XTransformer])
def test_columns_that_do_not_exist(model, texts, labels, columns, message):
    with pytest.raises(InputError, match=message):
        model.train(texts, labels, **columns)


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="'txt'"):
        XRLinear.train(COLUMNS, "subjects", txt="title")
