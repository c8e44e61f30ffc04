"""Every method with every form of documents and labels, and what people try that is none."""

import logging
from io import StringIO

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix

from tests.refusals import refused
from xmc_tf import XRLinear, XRLinearParams
from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile
from xmc_tf.models.documents import read_documents
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.params import TfidfParams
from xmc_tf.sklearn import XMCClassifier

TITLES = ["rye bread", "herbs in pots", "bread ovens", "soil for pots"]
LABELS = [["baking", "bread"], ["gardening"], ["baking", "bread"], ["gardening"]]
JOINED = ["; ".join(labels) for labels in LABELS]
ROWS = [{"title": text, "subjects": labels} for text, labels in zip(TITLES, JOINED, strict=True)]
NAMES = ["baking", "bread", "gardening"]
MATRIX = csr_matrix(np.array([[name in labels for name in NAMES] for labels in LABELS], np.float32))
PARAMS = XRLinearParams(tfidf=TfidfParams.plain(min_df=1))


def _file(texts, folder):
    path = folder / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in texts))
    return TextFile(path)


COLUMNS = {"title": TITLES, "subjects": JOINED}
FRAMES = {
    "dictionary": dict, "pandas": pd.DataFrame, "Polars": pl.DataFrame, "lazy": pl.LazyFrame, "Arrow": pa.table,
    "Arrow's batch": pa.RecordBatch.from_pydict, "rows": lambda _: ROWS,
}  # fmt: skip
TEXTS = {
    "list": list,
    "array": np.array,
    "column": lambda texts: np.array(texts, dtype=object)[:, None],
    "pandas": pd.Series,
    "Arrow in pandas": lambda texts: pd.Series(texts, dtype="string[pyarrow]"),
    "Polars": pl.Series,
    "generator": lambda texts: (text for text in texts),
    "bytes": lambda texts: [text.encode() for text in texts],
    "arrow": lambda texts: pa.table({"text": texts})["text"],
    "file": None,
}
LISTS = {
    "lists": lambda: LABELS,
    "sets": lambda: list(map(set, LABELS)),
    "arrays": lambda: list(map(np.array, LABELS)),
    "generator": lambda: (iter(labels) for labels in LABELS),
    "pandas": lambda: pd.Series(LABELS),
    "Polars": lambda: pl.Series(LABELS),
    "joined": lambda: JOINED,
    "joined in pandas": lambda: pd.Series(JOINED),
    "bars": lambda: ["|".join(labels) for labels in LABELS],
    "indicators": lambda: pd.DataFrame({name: MATRIX.toarray()[:, at] for at, name in enumerate(NAMES)}),
    "indicators as texts": lambda: pl.DataFrame({name: _zeros_and_ones(at) for at, name in enumerate(NAMES)}),
}


def _zeros_and_ones(at):
    return ["01"[int(one)] for one in MATRIX.toarray()[:, at]]


def _texts(form, folder):
    return _file(TITLES, folder) if form == "file" else TEXTS[form](TITLES)


@pytest.fixture(scope="module")
def model():
    return XRLinear.train(TITLES, LABELS, params=PARAMS, keep_training_data=True)


@pytest.fixture(scope="module")
def framed():
    """Trained on a table, whose columns it remembers."""
    return XRLinear.train(COLUMNS, "subjects", text="title", params=PARAMS, keep_training_data=True)


@pytest.fixture(scope="module")
def other():
    """Trained on other texts, so that these can be appended."""
    return XRLinear.train([f"{title} again" for title in TITLES], LABELS, params=PARAMS, keep_training_data=True)


@pytest.fixture(scope="module")
def classifier():
    return XMCClassifier(tfidf=TfidfParams.plain(min_df=1), n_jobs=1).fit(TITLES, LABELS)


@pytest.mark.parametrize("form", TEXTS)
def test_texts_in_every_form(model, other, classifier, form, tmp_path):
    expected = model.predict(TITLES)
    assert (XRLinear.train(_texts(form, tmp_path), LABELS, params=PARAMS).predict(TITLES) != expected).nnz == 0
    assert (model.predict(_texts(form, tmp_path)) != expected).nnz == 0
    assert model.best(_texts(form, tmp_path), k=1) == model.best(TITLES, k=1)
    assert model.evaluate(_texts(form, tmp_path), LABELS, ks=(1,), rows="all").at("P", 1) == 1
    grown = other.with_documents(_texts(form, tmp_path), LABELS)
    assert (grown.predict(TITLES) != other.with_documents(TITLES, LABELS).predict(TITLES)).nnz == 0
    assert classifier.predict(_texts(form, tmp_path)) == classifier.predict(TITLES)
    fitted = XMCClassifier(tfidf=TfidfParams.plain(min_df=1), n_jobs=1).fit(_texts(form, tmp_path), LABELS)
    assert fitted.score(_texts(form, tmp_path), LABELS) == classifier.score(TITLES, LABELS)
    one = TEXTS[form](TITLES[:1]) if form != "file" else _file(TITLES[:1], tmp_path)
    assert model.explain(one, k=1) == model.explain(TITLES[0], k=1)


@pytest.mark.parametrize("form", LISTS)
def test_labels_in_every_form(model, other, classifier, form):
    trained = XRLinear.train(TITLES, LISTS[form](), params=PARAMS)
    assert trained.names == NAMES
    assert (trained.predict(TITLES) != model.predict(TITLES)).nnz == 0
    assert model.evaluate(TITLES, LISTS[form](), ks=(1,), rows="all").at("P", 1) == 1
    grown = other.with_documents(TITLES, LISTS[form]())
    assert (grown.predict(TITLES) != other.with_documents(TITLES, LABELS).predict(TITLES)).nnz == 0
    fitted = XMCClassifier(tfidf=TfidfParams.plain(min_df=1), n_jobs=1).fit(TITLES, LISTS[form]())
    assert fitted.classes_.tolist() == NAMES
    assert fitted.score(TITLES, LISTS[form]()) == classifier.score(TITLES, LABELS)


def test_single_labels_and_numbers(classifier):
    for labels in (["a", "b", "a", "b"], np.array(["a", "b", "a", "b"]), pd.Series(["a", "b", "a", "b"])):
        assert XRLinear.train(TITLES, labels, params=PARAMS).names == ["a", "b"]
    for labels in ([7, 12, 7, 12], np.array([7, 12, 7, 12]), [[7], [12], [7], [12]], [7.0, 12, None, 12]):
        assert XRLinear.train(TITLES, labels, params=PARAMS).names == ["12", "7"]
    assert XRLinear.train(TITLES, ["a|b", "c", "a|b", "c"], label_separator="", params=PARAMS).names == ["a|b", "c"]


def test_a_dense_matrix_is_one_of_indicators(model):
    dense = XRLinear.train(TITLES, MATRIX.toarray(), params=PARAMS)
    assert dense.names is None
    assert (dense.predict(TITLES) != XRLinear.train(TITLES, MATRIX, params=PARAMS).predict(TITLES)).nnz == 0
    assert model.evaluate(TITLES, MATRIX.toarray(), ks=(1,), rows="all").at("P", 1) == 1


@pytest.mark.parametrize("form", FRAMES)
def test_tables_in_every_form(model, framed, other, classifier, form):
    expected = model.predict(TITLES)
    for labels in ("subjects", None, LABELS):
        trained = XRLinear.train(FRAMES[form](COLUMNS), labels, text="title", params=PARAMS)
        assert (trained.predict(TITLES) != expected).nnz == 0
    assert (framed.predict(FRAMES[form](COLUMNS)) != expected).nnz == 0
    assert framed.best(FRAMES[form](COLUMNS), k=2) == model.best(TITLES, k=2)
    assert framed.evaluate(FRAMES[form](COLUMNS), ks=(1,), rows="all").at("P", 1) == 1
    assert framed.evaluate(FRAMES[form](COLUMNS), "subjects", ks=(1,), rows="all").at("P", 1) == 1
    assert other.with_documents(FRAMES[form](COLUMNS), "subjects", text="title").nr_labels == 3
    fitted = XMCClassifier(tfidf=TfidfParams.plain(min_df=1), n_jobs=1).fit(FRAMES[form](COLUMNS), "subjects")
    assert fitted.predict(FRAMES[form](COLUMNS)) == classifier.predict(TITLES)
    assert fitted.score(FRAMES[form](COLUMNS), "subjects") == classifier.score(TITLES, LABELS)


TOPICS = ["baking", "gardening"] * 2
NUMBERED = pd.read_csv(StringIO("rye bread,baking\nherbs in pots,gardening\n"), header=None)
DATA = pd.DataFrame({"title": TITLES, "topic": TOPICS, "subjects": JOINED})
EXPLODED = DATA.assign(subjects=LABELS).explode("subjects")
# Documents, their labels, and how `fit` reads them: as one label per document ("one"), lists, or a matrix. All have the
# labels "baking" and "gardening", or those and "bread".
OWN_WAYS = {
    "names of columns that are numbers": (NUMBERED, 1, "lists"),
    "NumPy's numbers": (NUMBERED, np.int64(1), "lists"),
    "several columns of numbers": (pd.DataFrame({0: TITLES, 1: JOINED, 2: TOPICS}), [1, 2], "lists"),
    "a column by its position": (DATA[["title", "topic"]], 1, "lists"),
    "Series named by numbers": (NUMBERED[0], NUMBERED[1], "one"),
    "levels of column names": (pd.concat({"doc": DATA}, axis=1)[[("doc", "title"), ("doc", "subjects")]],
                               ("doc", "subjects"), "lists"),
    "columns of the same name": (pd.concat([DATA, DATA[["topic"]]], axis=1), "subjects", "lists"),
    "an index of several levels": (DATA.set_index(["topic", "title"], drop=False), "subjects", "lists"),
    "an index in another order": (DATA[::-1], "subjects", "lists"),
    "a missing label": (DATA.title, pd.Series(["baking", None, "baking", "gardening"]), "one"),
    "a missing label in a list": (TITLES, ["baking", float("nan"), "", "gardening"], "one"),
    "a missing label in Polars": (pl.Series(TITLES), pl.Series(["baking", "gardening", None, None]), "one"),
    "a missing label in a table": (DATA.replace({"topic": "baking"}, None).fillna("baking"), "topic", "lists"),
    "missing lists": (DATA.assign(subjects=[LABELS[0], None, [], LABELS[3]]), "subjects", "lists"),
    "a category": (DATA.title, DATA.topic.astype("category"), "one"),
    "a category in a table": (DATA.astype({"topic": "category"}), "topic", "lists"),
    "columns of Arrow": (DATA.convert_dtypes(dtype_backend="pyarrow"), "subjects", "lists"),
    "lists of Arrow": (DATA.title, pd.Series(LABELS, dtype=pd.ArrowDtype(pa.list_(pa.string()))), "lists"),
    "tuples": (DATA.assign(subjects=list(map(tuple, LABELS))), "subjects", "lists"),
    "sets": (DATA.assign(subjects=list(map(set, LABELS))), "subjects", "lists"),
    "arrays": (DATA.assign(subjects=list(map(np.array, LABELS))), "subjects", "lists"),
    "exploded": (EXPLODED, "subjects", "lists"),
    "lists of groups": (DATA.title, EXPLODED.groupby(level=0).subjects.apply(list), "lists"),
    "DataFrames of one column": (DATA[["title"]], DATA[["topic"]], "one"),
    "an index": (DATA.title, pd.Index(TOPICS), "one"),
    "arrays of pandas": (DATA.title.array, DATA.topic.array, "one"),
    "indicators": (TITLES, DATA.subjects.str.get_dummies("; "), "matrix"),
    "indicators of bool": (TITLES, pd.get_dummies(DATA.topic), "matrix"),
    "nullable indicators": (TITLES, pd.get_dummies(DATA.topic).astype("Int64"), "matrix"),
    "Polars's lists": (pl.DataFrame({"title": TITLES, "subjects": LABELS}), "subjects", "lists"),
    "Polars's arrays": (TITLES, pl.Series([["baking", "gardening"]] * 4, dtype=pl.Array(pl.String, 2)), "lists"),
    "Polars's categories": (pl.DataFrame(DATA).cast({"topic": pl.Categorical}), "topic", "lists"),
    "an enumeration": (pl.Series(TITLES), pl.Series(TOPICS, dtype=pl.Enum(["baking", "gardening"])), "one"),
    "a structure": (pl.DataFrame({"doc": [{"title": title} for title in TITLES], "topic": TOPICS}), "topic", "lists"),
    "Arrow's dictionaries": (pa.table([TITLES, pa.array(TOPICS).dictionary_encode()], ["text", "topic"]), 1, "lists"),
}  # fmt: skip


@pytest.mark.parametrize("way", OWN_WAYS)
def test_what_pandas_polars_and_arrow_make(way):
    documents, labels, form = OWN_WAYS[way]
    trained = XRLinear.train(documents, labels, params=PARAMS)
    assert set(trained.names) - {"bread"} == {"baking", "gardening"}
    count = trained.predict(documents).shape[0]
    assert len(trained.best(documents, k=1)) == count
    columns = isinstance(labels, str | int | tuple)  # which the model remembers
    measured = trained.evaluate(documents, None if columns else labels, ks=(2,), rows="all")
    assert measured.at("R", 2) == pytest.approx(1)
    fitted = XMCClassifier(tfidf=TfidfParams.plain(min_df=1), n_jobs=1).fit(documents, labels)
    assert fitted.classes_.tolist() == trained.names
    predicted = fitted.predict(documents)
    assert len(predicted) == count
    assert isinstance(predicted, list if form == "lists" else np.ndarray)
    assert np.ndim(predicted[0]) == (form != "one")
    assert 0.4 < fitted.score(documents, labels) <= 1


@pytest.mark.parametrize("dtype", ["Int64", "float64", "int64[pyarrow]"])
def test_a_missing_number_among_labels(dtype):
    numbers = pd.Series([7, None, 7, 12], dtype=dtype)
    fitted = XMCClassifier(tfidf=TfidfParams.plain(min_df=1), n_jobs=1).fit(TITLES, numbers)
    assert (fitted.classes_.tolist(), fitted.predict(TITLES)[[0, 3]].tolist()) == ([7, 12], [7, 12])
    assert fitted.score(TITLES, numbers, sample_weight=[1, 5, 1, 1]) == 1  # of the documents that have a label


def test_scores_in_the_form_of_scikit_learn(model, classifier):
    for some in (TITLES, pd.Series(TITLES[:1])):
        found = model.predict_proba(some)
        assert found.has_sorted_indices
        assert (found != model.predict(some)).nnz == (found != classifier.predict_proba(some)).nnz == 0
    assert model.predict_proba(TITLES, k=1).nnz == 4


def test_no_row(framed):
    for none in (DATA[:0], DATA.title[:0], pl.DataFrame(DATA)[:0]):
        assert framed.best(none) == []
        assert framed.predict(none).shape == (0, 3)


def test_one_text_and_one_row(framed):
    expected = framed.best([TITLES[0]], k=2)
    for one in (TITLES[0], TITLES[0].encode(), {"title": TITLES[0]}, [{"title": TITLES[0]}], {"title": [TITLES[0]]}):
        assert framed.best(one, k=2) == expected
        assert framed.explain(one, k=1) == framed.explain(TITLES[0], k=1)
        assert framed.predict(one).shape == (1, 3)
    assert framed.evaluate(TITLES[0], "baking", ks=(1,), rows="all").documents == 1


def test_a_model_is_measured_on_documents_it_was_not_trained_on(framed, tmp_path, caplog):
    framed.save(tmp_path / "model")
    for model in (framed, XRLinear.load(tmp_path / "model")):
        caplog.clear()
        new = {"title": [*TITLES, "rye bread for all"], "subjects": [*JOINED, "baking"]}
        assert model.evaluate(new, ks=(1,)).documents == 1
        assert "4 of 5 documents were used in training" in caplog.text
        assert model.evaluate(new, ks=(1,), rows="all").documents == 5
        refused("all of these 4 documents were used in training", model.evaluate, COLUMNS)


def test_the_columns_of_the_training_are_part_of_the_model(framed, tmp_path):
    framed.save(tmp_path / "model")
    loaded = XRLinear.load(tmp_path / "model")
    assert loaded.metadata.columns.to_json() == {
        "texts": ["title"], "labels": "subjects", "separator": ";", "document": None
    }  # fmt: skip
    table = {"id": ["a much longer cell than the title is"], "abstract": ["x" * 50], "title": ["rye bread"]}
    assert loaded.best(table, k=1) == loaded.best(["rye bread"], k=1)
    with pytest.raises(InputError, match=r"no column 'title', which the model was trained on(.|\n)*text=\"NAME\""):
        loaded.best({"id": [1], "abstract": ["rye bread"]})
    assert loaded.best({"abstract": ["rye bread"]}, text="abstract", k=1) == loaded.best(["rye bread"], k=1)
    with pytest.raises(InputError, match=r"no column 'subjects', which the model was trained on(.|\n)*labels=\"NAME\""):
        loaded.evaluate({"title": ["rye bread"], "topics": ["baking"]})
    of_series = XRLinear.train(pd.Series(TITLES, name="title"), pl.Series("subjects", JOINED), params=PARAMS)
    assert of_series.metadata.columns == framed.metadata.columns


def test_rows_of_one_index_in_another_order_are_mentioned(caplog):
    """They may be right, if one of both was renumbered; rows are paired by position."""
    for ours, theirs, mentioned in (
        ([0, 1, 2, 3], [0, 2, 1, 3], 1),
        ([0, 1, 2, 3], [0, 1, 2, 3], 0),
        ([4, 5, 6, 7], [0, 1, 2, 3], 0),
    ):
        texts, labels = pd.Series(TITLES, ours), pd.Series(JOINED, theirs)
        caplog.clear()
        XRLinear.train(texts, labels, params=PARAMS)
        assert caplog.text.count("the same entries in another order; rows are paired by position") == mentioned


def test_missing_texts_are_empty_ones_and_counted(model, classifier, caplog):
    missing = (pd.Series, pl.Series, lambda values: pd.Series(values, dtype="string"))
    for texts in (
        ["rye bread", None], np.array(["rye bread", np.nan], object), *(of(["rye bread", None]) for of in missing),
    ):  # fmt: skip
        caplog.clear()
        assert model.best(texts, k=1) == model.best(["rye bread", ""], k=1)
        assert "1 of 2 are missing and count as empty; the first is document 1" in caplog.text
        assert classifier.predict(texts) == classifier.predict(["rye bread", ""])
    caplog.clear()
    assert len(model.best({"title": ["rye bread", None]}, k=1)) == 2
    assert "1 of 2 documents have no text" in caplog.text


def test_labels_that_the_model_does_not_know_are_misses(model, caplog):
    found = model.evaluate(
        TITLES, [["baking", "bread", "yeast"], ["gardening", "basil"], [], None], ks=(2,), rows="all"
    )
    assert (
        "2 of the labels are unknown to the model and count as misses: 'basil', 'yeast' (in 2 documents)" in caplog.text
    )
    assert "2 of 4 documents have no label" in caplog.text
    assert "2 of 4 documents have no text or no label and are not measured" in caplog.text
    assert found.at("R", 2) == pytest.approx((2 / 3 + 1 / 2) / 2)
    refused(r"the model knows none of the labels(.|\n)*mean 'baking'", model.evaluate, ["rye bread"], [["bakin"]])


def test_features_in_every_form():
    X = np.eye(4, dtype=np.float32)
    expected = XRLinear.train(X, LABELS).predict(X)
    frames = (pd.DataFrame(X), pd.DataFrame(X).convert_dtypes(), pd.DataFrame.sparse.from_spmatrix(csr_matrix(X)))
    for form in (csr_matrix(X), X.tolist(), *frames, pl.DataFrame(X), X.astype(int)):
        assert (XRLinear.train(form, LABELS).predict(form) != expected).nnz == 0


class _Reader:
    def __fspath__(self):
        return "data.csv"


# Ten things that people try, and what the message says.
WRONG = [
    (None, "texts is None"),
    (_Reader(), "texts is a path(.|\n)*read_csv"),
    (5, "neither texts nor features"),
    ({"a rye", "b"}, "a set, which has no order"),
    ([5], "document 0 is not a text(.|\n)*int: 5(.|\n)*str\\(text\\)"),
    (["rye bread", 3.5], "document 1 is not a text(.|\n)*float: 3.5"),
    ([["rye", "bread"], ["pots"]], "document 0 is not a text(.|\n)*join each list of words"),
    (np.array([["a", "b"]]), "a table of texts"),
    ({}, "which the model was trained on"),
    (np.ones(3), "not a matrix of numbers"),
    ({"subjects": []}, "which the model was trained on"),
]


@pytest.mark.parametrize(("documents", "message"), WRONG)
def test_documents_that_are_none(framed, documents, message):
    grown = lambda texts: framed.with_documents(texts, LABELS)  # noqa: E731
    for method in (framed.best, framed.predict, framed.explain, lambda texts: framed.evaluate(texts, LABELS), grown):
        refused(message, method, documents)


@pytest.mark.parametrize("train", [XRLinear.train, XTransformer.train])
@pytest.mark.parametrize(
    ("texts", "labels", "columns", "message"),
    [
        (TITLES, LABELS, {"text": "title"}, "not a DataFrame"),
        (TITLES, "subjects", {}, "not a DataFrame"),
        (COLUMNS, "topics", {}, "no column 'topics'(.|\n)*labels=\"NAME\""),
        (COLUMNS, "subjects", {"text": "abstract"}, "no column 'abstract'(.|\n)*text=\"NAME\""),
        ("data.csv", "subjects", {}, "a single text(.|\n)*read_csv"),
        (TITLES, None, {}, "labels is missing"),
        (TITLES, LABELS[:3], {}, "different numbers of documents"),
        (TITLES, [["a"], ["b"], [3], ["b"]], {}, "received: int, str"),
        (TITLES, [["a"], {"b": 1}, [], []], {}, "document 1 has no list of labels"),
        (TITLES, {"a", "b"}, {}, "not a list with the labels of each document"),
        (TITLES, 5, {}, "not a list with the labels of each document"),
        (TITLES, np.array([0.5, 1.5, 2.5, 3.5]), {}, "Unknown label type"),
        (TITLES, np.full((4, 2), 3), {}, "values other than 0 and 1"),
        (TITLES, [[], [], [], []], {}, "contain no label"),
        (pd.DataFrame({0: TITLES, 1: [None] * 4}), 1, {"text": 0}, "contain no label"),
        (pd.DataFrame(COLUMNS).iloc[:0], "subjects", {}, "contain no label"),
        (DATA[["title", "subjects", "title"]], "subjects", {"text": "title"}, "has 2 columns 'title'"),
        (pl.DataFrame({"a": [1.5, 2], "b": [0, 1], "y": ["c", "d"]}), "y", {}, "no column of texts(.|\\n)*'a'"),
        (
            pl.DataFrame({"title": TITLES, "labels": [[{"name": "a"}]] * 4}),
            "labels",
            {},
            "expected: one of labels.*name",
        ),
    ],
)
def test_training_data_that_is_none(train, texts, labels, columns, message):
    refused(message, train, texts, labels, **columns)


def test_what_a_method_does_not_take(model):
    refused("texts contains features", XTransformer.train, np.eye(4), LABELS)
    refused(r"one document is explained at a time(.|\n)*for text in texts", model.explain, TITLES)
    for method, argument, known in (
        (XRLinear.train, "label_column", "labels"), (XRLinear.train, "txt", "text"), (model.evaluate, "y", "labels"),
        (model.predict, "text_column", "text"), (model.best, "top_k", "k"), (XTransformer.train, "y", "labels"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"{argument!r}: did you mean {known}=\\?"):
            method(COLUMNS, **{argument: "title"})
    with pytest.raises(TypeError, match=r"'label_column'$"):
        model.predict(TITLES, label_column="subjects")


def test_columns_are_joined_and_separators_guessed():
    table = {**COLUMNS, "body": ["flour\nand water", None, "", "in spring"]}
    read = read_documents(table, "subjects", {"text": ["title", "body"]})
    assert read.texts == ["rye bread flour and water", "herbs in pots", "bread ovens", "soil for pots in spring"]
    assert read.labels.lists == LABELS
    assert read_documents(table, "subjects", {"text": "body", "label_separator": ""}).labels.lists[0] == [JOINED[0]]


def test_rows_of_one_document_are_one():
    from xmc_tf.models.documents import documents_of_source
    from xmc_tf.tables.columns import ColumnOptions
    from xmc_tf.tables.reading.structured import Frame as Source

    table = Source({"id": [1, 1, 2], "text": ["rye", "rye", "pots"], "label": ["baking", "bread", "gardening"]})
    texts, labels, used, ids = documents_of_source(table, ColumnOptions(document="id"), labelled=True)
    assert (texts, labels) == (["rye", "pots"], [["baking", "bread"], ["gardening"]])
    assert (used.document, ids) == ("id", ["1", "2"])


def test_guesses_are_visible_in_a_notebook(caplog):
    with caplog.at_level(logging.WARNING):
        read = read_documents(COLUMNS, "subjects", training=True)
        assert "texts: column 'title' (text)" in caplog.text
        caplog.clear()
        read_documents(COLUMNS, trained=read.columns)
    assert not caplog.text


@pytest.mark.parametrize("of", ["a frame", "a list"])
def test_labels_of_a_few_spellings_and_missing_ones(of, caplog):
    table = {"text": ["rye bread", "white bread", "pots", "soil", "herbs"],
             "label": ["Baking", "baking", "nan", " baking", "Herbs  in pots; herbs in Pots"]}  # fmt: skip

    def labels(**options):
        documents, own = (table, "label") if of == "a frame" else (table["text"], table["label"])
        read = read_documents(documents, own, {"label_separator": ";", **options}, training=True)
        return read.labels.lists, read.columns

    found, _ = labels()
    assert found == [["Baking"], ["baking"], [], ["baking"], ["Herbs  in pots", "herbs in Pots"]]
    assert "2 of 4 labels differ from another one only in case or blanks, such as 'Baking' and 'baking'" in caplog.text
    assert "fold_labels=True trains them as one" in caplog.text
    assert "keep_na_labels" in caplog.text
    caplog.clear()
    found, columns = labels(fold_labels=True, keep_na_labels=True)
    assert found == [["baking"], ["baking"], ["nan"], ["baking"], ["Herbs  in pots"]]
    assert "fold_labels" not in caplog.text
    if columns is not None:  # evaluated on the same table, the labels are those of the model
        assert read_documents(table, trained=columns, labelled=True).labels.lists == found
