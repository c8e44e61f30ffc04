"""From a table of findings to corrected labels: the table, its accepted rows, and the model."""

import csv
import re
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.audit.cases import planted
from tests.files import contents, largest_file
from tests.refusals import refused
from xmc_tf import InputError, XRLinear, load
from xmc_tf.append import main as append
from xmc_tf.audit import Audit, AuditData, Finding
from xmc_tf.audit.corrections import HEADER, Correction, corrected_documents, read_accepted
from xmc_tf.common.csv_cells import raw_cell, safe_cell
from xmc_tf.data import Features
from xmc_tf.report.audit import main as audit
from xmc_tf.report.audit_files import write_audit


def write_table(path, rows, header=HEADER, delimiter=","):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def finding(accept="yes", kind="missing", row="1", text="two", label="b"):
    return [accept, kind, row, row, text, label, "0", "", "why", "0.9", "0.9"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder with a table with planted errors and a model that keeps its training data; the collection."""
    folder, collection = tmp_path_factory.mktemp("place"), planted()
    documents = enumerate(zip(collection.texts, collection.lists, strict=True))
    rows = [[text, "|".join(own), f"doc-{row}", f"shelf {row}"] for row, (text, own) in documents]
    write_table(folder / "data.csv", rows, ["text", "labels", "Record ID", "place"])
    frame = {"text": collection.texts, "labels": [row[1] for row in rows]}
    XRLinear.train(frame, labels="labels", label_separator="|", keep_training_data=True).save(folder / "model")
    return folder, collection


@pytest.fixture
def in_folder(place, tmp_path, monkeypatch):
    """Return the collection; a copy of the folder is the current one."""
    folder, collection = place
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return collection


def test_from_the_table_to_a_corrected_model(in_folder, tmp_path, capsys):
    audit(["data.csv", "-m", "model", "-o", "audit", "--most", "20"])
    assert "the first 20 missing labels, the first 20 wrong labels" in capsys.readouterr().out
    with (tmp_path / "audit" / "findings.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["document"] == f"doc-{row['row']}" for row in rows if row["row"])
    place = {name: number for number, name in enumerate(in_folder.names)}
    accepted = []
    for row in rows:
        errors = {"missing": in_folder.removed, "wrong": in_folder.wrong}.get(row["kind"], ())
        if row["label"] and (int(row["row"] or -1), place[row["label"]]) in errors:
            row["accept"] = "yes"
            accepted.append(row)
    assert len(accepted) >= 15
    write_table(tmp_path / "audit" / "findings.csv", [list(row.values()) for row in rows])
    append(["data.csv", "-m", "model", "--accepted", "audit/findings.csv", "-o", "corrected"])
    changed = {row["row"] for row in accepted}
    assert f"labels of {len(changed)} documents corrected" in capsys.readouterr().out
    before, after = (load(name).training_data.Y.toarray() for name in ("model", "corrected"))
    columns = {name: number for number, name in enumerate(load("model").names)}
    expected = before.copy()
    for row in accepted:
        expected[int(row["row"]), columns[row["label"]]] = row["kind"] == "missing"
    np.testing.assert_array_equal(after, expected)
    # Rows of which one is not a training document, and one has these labels already.
    label = load("model").names[0]
    has_it = str(np.flatnonzero(before[:, 0])[0])
    kind = {int(has_it): "missing", 1: "wrong" if before[1, 0] else "missing"}
    texts = [*in_folder.texts, "a text that is new"]
    lists = [*("|".join(own) for own in in_folder.lists), label]
    write_table(tmp_path / "other.csv", list(zip(texts, lists, strict=True)), ["text", "labels"])
    findings = [finding(kind=kind[row], row=str(row), text=texts[row], label=label) for row in kind]
    findings.append(finding(kind="missing", row=str(len(texts) - 1), text=texts[-1], label=load("model").names[1]))
    write_table(tmp_path / "f.csv", findings)
    append(["other.csv", "-m", "model", "--accepted", "f.csv", "-o", "corrected"])
    assert capsys.readouterr().out == "corrected: labels of 1 documents corrected\n"


def test_a_disk_without_room_leaves_the_earlier_audit_whole(tmp_path):
    data = AuditData(Features(csr_matrix((1, 1))), csr_matrix((1, 1)), score=None, texts=["a"], names=["b"])
    audits = [Audit([Finding("missing", 0, 0, None, 0.9, 2.0, why)], data) for why in ("one", "two")]
    write_audit(audits[0], tmp_path / "audit")
    before = contents(tmp_path)
    for name in ("audit", "new"):
        with largest_file(1000), pytest.raises(OSError, match="File too large") as error:  # findings.csv is smaller
            write_audit(audits[1], tmp_path / name)
        assert error.value.filename == str(tmp_path / name)
    assert contents(tmp_path) == before


def test_the_page_shows_the_findings(in_folder, tmp_path):
    audit(["data.csv", "-m", "model", "-o", "audit", "--id-column", "place"])
    page = (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")
    for section in ("Summary", "Missing labels", "Wrong labels"):
        assert re.search(rf"<h2 [^>]*>{section}</h2>", page)
    assert "most similar documents have it" in page
    assert 'id="missing-table"' in page
    assert "shelf 7" in page


def test_a_corrected_model_is_that_of_a_training_on_the_corrected_labels():
    collection = planted()
    tree = XRLinear.train(collection.texts, collection.labels).tree
    kept = {"tree": tree, "keep_training_data": True, "probabilities": False}
    model = XRLinear.train(collection.texts, collection.labels, names=collection.names, **kept)
    Y = collection.labels.toarray()
    rows = sorted({row for row, _ in collection.removed | collection.wrong})
    for row, label in collection.removed:
        Y[row, label] = 1
    for row, label in collection.wrong:
        Y[row, label] = 0
    corrected = model.with_corrections([collection.texts[row] for row in rows], csr_matrix(Y[rows]))
    trained = XRLinear.train(collection.texts, csr_matrix(Y), names=collection.names, **kept)
    one, other = (m.predict(collection.texts, only_topk=5).toarray() for m in (corrected, trained))
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, model.predict(collection.texts, only_topk=5).toarray())


def test_documents_that_the_model_does_not_know(place, caplog):
    folder, collection = place
    model = load(folder / "model")
    with pytest.raises(InputError, match="none of these documents are in the model's training data"):
        model.with_corrections(["something else"], [[collection.names[0]]])
    texts = ["something else", collection.texts[3]]
    corrected = model.with_corrections(texts, [[collection.names[0]], collection.names[:2]])
    assert "1 of 2 documents are not in the training data" in caplog.text
    own = {corrected.names[label] for label in corrected.training_data.Y[3].indices}
    assert own == set(collection.names[:2])
    error = refused("first append a document with each new label", model.with_corrections, texts[1:], [["new"]])
    assert "new_labels" not in str(error)  # it is no parameter of with_corrections


def test_a_model_that_keeps_no_training_data():
    collection = planted()
    model = XRLinear.train(collection.texts, collection.labels, probabilities=False)
    refused("has not kept its training data", model.with_corrections, collection.texts, collection.labels)


@pytest.mark.parametrize(("delimiter", "accept"), [(",", "yes"), (";", "X"), ("\t", " 1 "), (",", "true")])
def test_accepted_findings_are_read(tmp_path, delimiter, accept):
    path = write_table(tmp_path / "f.csv", [finding(""), finding("no"), finding(accept)], delimiter=delimiter)
    assert [(one.row, one.label, one.add, one.line) for one in read_accepted(path)] == [(1, "b", True, 4)]


def test_labels_are_added_and_removed(tmp_path):
    rows = [finding(), finding(kind="wrong", label="a"), finding(row="0", text="one", label="'=c")]
    corrections = read_accepted(write_table(tmp_path / "f.csv", rows))
    assert corrected_documents(corrections, ["one", "two"], [["=c"], ["a"]], "f.csv") == ([0, 1], [["=c"], ["b"]])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (finding("perhaps"), "accept is 'perhaps'"),
        (finding(kind="duplicates"), "does not name a label"),
        (finding(row=""), "no valid row or label"),
        (finding(label=""), "no valid row or label"),
    ],
)
def test_findings_that_cannot_be_accepted(tmp_path, row, message):
    refused(message, read_accepted, write_table(tmp_path / "f.csv", [row]))


def test_another_file(tmp_path):
    refused("has no column 'accept'", read_accepted, write_table(tmp_path / "f.csv", [["1", "2"]], ["a", "b"]))


@pytest.mark.parametrize("row", [finding(text="other"), finding(text=""), finding(row="7")])
def test_another_table(tmp_path, row):
    corrections = read_accepted(write_table(tmp_path / "f.csv", [row]))
    with pytest.raises(InputError, match="is missing from this table or has a different text"):
        corrected_documents(corrections, ["one", "two"], [["a"], ["a"]], "f.csv")


def test_nothing_accepted(in_folder, tmp_path):
    write_table(tmp_path / "f.csv", [finding("")])
    refused("no finding is accepted", append, ["data.csv", "-m", "model", "--accepted", "f.csv"])


def test_findings_as_pandas_saves_them(tmp_path):
    rows = [["0", *finding("1.0", row="1.0", label="2580.0")], ["1", *finding("0.0", row="", label="")]]
    found = read_accepted(write_table(tmp_path / "f.csv", rows, ["", *HEADER]))
    assert [(one.row, one.label, one.add) for one in found] == [(1, "2580", True)]


@pytest.mark.parametrize(
    ("text", "separator", "cell"),
    [
        ("a;=1+1", ",", "a;'=1+1"),
        ("a,=1+1", ";", "a,'=1+1"),
        ("a,=1+1", ",", "a,=1+1"),  # is in quotes
        ("a\t=1+1", ",", "a\t'=1+1"),
        ('a; "=1+1"', ",", 'a;\' "=1+1"'),
        ("a\n@SUM(1)", ",", "a\n'@SUM(1)"),
        ("=a;=b", ",", "'=a;'=b"),
        ("a;-1;b", ",", "a;-1;b"),
        ("a; b", ",", "a; b"),
    ],
)
def test_no_piece_of_a_cell_is_a_formula(text, separator, cell):
    assert safe_cell(text, separator) == cell
    assert raw_cell(safe_cell(text)) == text
    corrections = [Correction(0, safe_cell(text), True, safe_cell("b;=1 and more"[:6]), 1)]
    assert corrected_documents(corrections, ["b;=1 and more"], [["c"]], "f.csv")[1] == [["c", text]]
