"""Examples with the deciding words, and the command that writes a report of a model."""

import json
import sqlite3

import pytest
from scipy.sparse import csr_matrix

from tests.linear.command_data import run_train, write_corpus
from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile, load_matrix
from xmc_tf.models.incremental.training_data import TrainedDocuments
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.report import ReportInputs, make_report
from xmc_tf.report.command import main
from xmc_tf.report.page.labels import highlighted
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.splits import SplitOptions
from xmc_tf.tables.store import TableStore


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with a table, the data set made of it, and a model."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus"))
    flags = ["--labels", folder / "labels.txt", "--max-leaf-size", 3, "--nr-splits", 2]
    run_train("-t", folder / "X.txt", "-y", folder / "Y.npz", "-m", folder / "model", *flags)
    names = (folder / "labels.txt").read_text().splitlines()
    rows = zip(TextFile(folder / "X.txt"), load_matrix(folder / "Y.npz").tocsr(), strict=True)
    lines = [f'"{text}",{";".join(names[label] for label in row.indices)}' for text, row in rows if row.nnz]
    (folder / "table.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    prepare(folder / "table.csv", folder / "table.sqlite", PrepareOptions(splits=SplitOptions(0.1, 0.4))).close()
    return folder


def test_words_are_highlighted_by_their_contribution():
    amounts = {"red": 1.0, "apple pie": 0.8, "sour": -2.0, "of": 0.01}
    assert highlighted("Red & sour <b>Apple pie</b> of red", amounts, 100) == [
        ("Red", 1.0), (" & sour <b>", 0), ("Apple", 0.4), (" ", 0), ("pie", 0.4), ("</b> of ", 0), ("red", 1.0)
    ]  # fmt: skip


def test_capitals_and_scripts_without_spaces_are_highlighted():
    assert highlighted("US us", {"US": 1.0}, 100) == [("US", 1), (" us", 0)]
    assert highlighted("黒猫の", {"猫": 1.0}, 100) == [("黒", 0), ("猫", 1), ("の", 0)]
    assert highlighted("黒猫の 猫", {"黒猫の": 1.0}, 100) == [("黒猫の", 1), (" 猫", 0)]


def test_examples_explain_the_label_that_they_show(corpus):
    model = XRLinear.load(corpus / "model")
    inputs = ReportInputs.of_model(model, TextFile(corpus / "X.txt"), load_matrix(corpus / "Y.npz"), "A model")
    report = make_report(inputs)
    assert report.examples
    for example in report.examples:
        assert example.explained is not None
        scores = {one.label: one.score for one in example.labels}
        assert example.explained.score == pytest.approx(scores[example.explained.label])
        if example.kind == "wrong":
            assert not next(one for one in example.labels if one.label == example.explained.label).true
    assert report.confusion.kind == "labels"


def test_the_command_reports_on_a_split_of_a_data_set(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([str(corpus / "table.sqlite"), "-m", str(corpus / "model"), "-o", "out"])
    assert capsys.readouterr().out.strip().endswith("out/report.html")
    data = json.loads((tmp_path / "out/report.json").read_text())
    with sqlite3.connect(corpus / "table.sqlite") as connection:
        (count,) = connection.execute("SELECT count(*) FROM documents WHERE split = 2").fetchone()
    assert data["evaluation"]["documents"] == count > 10
    assert data["evaluation"]["systems"][0]["P@1"] > 0.5  # labels of table and model are matched by name
    assert data["coverage"] is not None
    assert "can be found only by its name" in (tmp_path / "out/report.html").read_text()
    assert data["examples"][0]["explained"]["evidence"][0]["path"]


def test_the_command_compares_models(corpus, tmp_path, capsys):
    models = [str(corpus / "model"), str(corpus / "model") + "/"]
    main([str(corpus / "table.sqlite"), "-m", *models, "--split", "validation", "-o", str(tmp_path / "out")])
    data = json.loads((tmp_path / "out/report.json").read_text())
    first, second = data["evaluation"]["systems"]
    assert first["name"] != second["name"]
    assert first["P@1"] == second["P@1"]


def test_documents_of_the_training_are_counted_and_on_no_card(corpus, tmp_path, caplog):
    """The test documents of a data set that was divided again, or that were appended to the model."""
    texts = list(TableStore.open(corpus / "table.sqlite").texts("test"))
    for name, seen in (("seen", texts[1:]), ("unseen", ["another text"])):
        XRLinear.load(corpus / "model").knowing(TrainedDocuments.of(seen)).save(tmp_path / name)
        main([str(corpus / "table.sqlite"), "-m", str(tmp_path / name), "-o", str(tmp_path / f"of {name}")])
        assert (tmp_path / name / "README.md").exists() == (name == "unseen")
    assert f"{len(texts) - 1} of {len(texts)} documents were used in training; metrics" in caplog.text
    assert caplog.text.count("used in training") == 1
    model = XRLinear.load(tmp_path / "seen")
    ReportInputs.of_model(model, texts, csr_matrix((len(texts), model.nr_labels)), "In Python")
    assert caplog.text.count("used in training") == 2


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--split", "tset"], "unknown split 'tset'"), (["-k", "0"], "-k is out of range")]
)
def test_bad_input_is_named(corpus, tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        main([
            str(corpus / "table.sqlite"), "-m", str(corpus / "model"), "-o", str(tmp_path / "out"), *arguments
        ])  # fmt: skip


def test_a_report_does_not_replace_the_data_set(corpus, tmp_path):
    with pytest.raises(InputError, match="model"):
        main([str(corpus / "table.sqlite"), "-m", str(corpus / "model"), "-o", str(corpus / "model" / "ranker")])
