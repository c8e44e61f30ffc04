"""Columns, separators and names of a training table are part of the model: no flag is repeated afterwards."""

import csv
import json
import re

import pytest

from tests.jobs.conftest import TOPICS, documents
from tests.refusals import refused
from xmc_tf import XRLinear
from xmc_tf.append import main as append
from xmc_tf.common.errors import InputError
from xmc_tf.evaluate import main as evaluate
from xmc_tf.linear.predict import main as predict
from xmc_tf.train import main as train

IDS = {topic: f"gnd:{number}" for number, topic in enumerate(TOPICS)}
HEAD = ["id", "title", "abstract", "subjects"]


def _write(path, rows, head=HEAD):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def _rows(count, seed=0):
    """Titles say the first label, abstracts the second; every seventh row has no label."""
    found = []
    for number, (text, labels) in enumerate(documents(count, 2, seed)):
        words = text.split()
        cell = "" if number % 7 == 0 else " ; ".join(IDS[label] for label in labels)
        found.append([f"row{number}", " ".join(words[:4]), " ".join(words[4:8]), cell])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained model beside its table, of which rows lack labels, and labels are identifiers."""
    folder = tmp_path_factory.mktemp("remembered")
    (folder / "names.tsv").write_text("".join(f"{key}\t{topic}\n" for topic, key in IDS.items()))
    table = _write(folder / "data.csv", _rows(210))
    train([
        str(table), "-m", str(folder / "model"), "--text-column", "title,abstract", "--names-file",
        str(folder / "names.tsv"), "--keep-training-data", "--verbose-level", "0",
    ])  # fmt: skip
    return folder


def test_the_model_knows_its_table(folder, capsys):
    model = XRLinear.load(folder / "model")
    assert sorted(model.names) == sorted(TOPICS)
    columns = model.metadata.columns
    assert (columns.texts, columns.labels, columns.separator) == (("title", "abstract"), "subjects", ";")
    assert dict(columns.label_ids) == {key: topic for topic, key in IDS.items()}
    assert len((folder / "data.left-out.csv").read_text().splitlines()) == 31


def test_prediction_reads_the_same_columns(folder, tmp_path):
    table = _write(tmp_path / "new.csv", _rows(20, seed=3))
    predict([str(table), "-m", str(folder / "model"), "-o", str(tmp_path / "out.jsonl"), "-k", "2"])
    found = [json.loads(line)["labels"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = [labels for _, labels in documents(20, 2, 3)]
    assert [sorted(labels) for labels in found] == [sorted(labels) for labels in expected]


def test_a_table_without_a_column_is_refused_with_its_name(folder, tmp_path):
    table = _write(tmp_path / "notext.csv", [["row1", "x" * 40]], ["id", "note"])
    for command in (predict, evaluate, append):
        flags = ["-o", str(tmp_path / "out.csv")] if command is predict else []
        with pytest.raises(InputError, match=r"no column 'title', which the model was trained on(.|\n)*--text-column"):
            command([str(table), "-m", str(folder / "model"), *flags])


def test_a_model_that_remembers_nothing_takes_no_identifiers_for_texts(tmp_path):
    XRLinear.train(["rye bread", "rye bread", "pots"], [["baking"], ["baking"], ["gardening"]]).save(tmp_path / "model")
    table = _write(tmp_path / "notext.csv", [["row1"]], ["id"])
    with pytest.raises(InputError, match="cannot tell which column holds the texts"):
        predict([str(table), "-m", str(tmp_path / "model"), "-o", str(tmp_path / "out.csv")])


def test_appending_reads_all_columns_and_names_and_counts_what_it_leaves_out(folder, tmp_path, caplog):
    table = _write(tmp_path / "new.csv", _rows(14, seed=5))
    append([str(table), "-m", str(folder / "model"), "-o", str(tmp_path / "grown")])
    assert "2 of 14 documents have no text or no label and are not appended" in caplog.text
    grown = XRLinear.load(tmp_path / "grown")
    assert sorted(grown.names) == sorted(TOPICS)
    assert grown.metadata.columns == XRLinear.load(folder / "model").metadata.columns
    assert grown.training_data.nr_documents == 162 + 12


def test_a_model_is_measured_on_another_table(folder, tmp_path, capsys, caplog):
    rows = [*_rows(28, seed=7), ["last", "goal team", "score", "gnd:0 ; gnd:99"]]
    table = _write(tmp_path / "new.csv", rows)
    evaluate([str(table), "-m", str(folder / "model"), "--json", "-k", "1,2", "--report", str(tmp_path / "report")])
    result = json.loads(capsys.readouterr().out)
    assert "4 of 29 documents have no text or no label and are not measured" in caplog.text
    assert "1 of the labels are unknown to the model and count as misses: 'gnd:99' (in 1 documents)" in caplog.text
    (system,) = result["systems"]
    assert system["name"] == "model"
    assert system["P@1"] == 1
    assert system["R@2"] == pytest.approx((24 + 0.5) / 25)
    assert "gnd:99" in (tmp_path / "report" / "labels.csv").read_text()
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<summary>(?:<[^>]*>)*row\d+", page)  # examples have the documents' ids


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "-y and -p missing"),
        (["{table}"], "-m is missing"),
        (["{table}", "-m", "{model}", "-y", "Y.npz"], "-y cannot be used with a table"),
        (["{table}", "-m", "{model}", "--tags", "one", "two"], "--tags does not match the model"),
        (["{table}", "-m", "{model}", "--report", "{model}"], "is part of the model|-m"),
    ],
)
def test_command_lines_that_are_not_clear(folder, flags, message):
    refused(message, evaluate, [flag.format(table=folder / "data.csv", model=folder / "model") for flag in flags])


def test_a_training_says_whether_documents_can_be_appended(folder, tmp_path, capsys):
    table = _write(tmp_path / "data.csv", _rows(60))
    flags = [str(table), "-m", str(tmp_path / "model"), "--effort", "fast", "--verbose-level", "0"]
    train(flags)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"are kept \([1-9]\d* KB\), so that documents can be appended and labels corrected", shown)
    assert (tmp_path / "model" / "training" / "X.npz").is_file()
    train([*flags, "--keep-training-data", "false"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "documents cannot be appended to this model, nor labels corrected; to allow it, train with --keep" in shown
    assert not (tmp_path / "model" / "training").exists()
