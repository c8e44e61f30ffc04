"""Tables as people have them: each is trained, measured, labelled, audited and appended without a flag too many."""

import csv
import json
import logging

import numpy as np
import pytest

from tests.jobs.conftest import TOPICS, documents
from tests.refusals import refused
from xmc_tf import XRLinear
from xmc_tf.append import main as append
from xmc_tf.common.errors import InputError
from xmc_tf.data import save_matrix
from xmc_tf.evaluate import main as evaluate
from xmc_tf.jobs.linear import _IDENTIFIER
from xmc_tf.metrics import evaluate as measure
from xmc_tf.predict import main as predict
from xmc_tf.report.audit import main as audit
from xmc_tf.report.command import main as report
from xmc_tf.tables.runs import runs_of
from xmc_tf.tables.store import TableStore
from xmc_tf.train import main as train

COUNT = 120


def _pairs(path, rows):
    _write(path, ["id", "title", "subject"], [(f"r{n}", text, one) for n, text, own in rows for one in own])


def _pairs_without_ids(path, rows):
    every = [(text, one) for _, text, own in rows for one in own]
    _write(path, ["title", "subject"], sorted(every, key=lambda pair: pair[1]))


def _lists(path, rows):
    """One part is longer than any name of a label: one outlier must not decide."""
    cells = ["; ".join([*own, "x" * 300] if n == 0 else own) for n, _, own in rows]
    _write(path, ["id", "title", "subjects"], [(n, text, cell) for (n, text, _), cell in zip(rows, cells, strict=True)])


def _brackets(path, rows):
    _write(path, ["id", "text", "labels"], [(n, text, str(own)) for n, text, own in rows])


def _fasttext(path, rows):
    path.write_text("".join(" ".join([*(f"__label__{one}" for one in own), text]) + "\n" for _, text, own in rows))


def _indicators(path, rows):
    rows = [(n, text, 9.5, *(int(topic in own) for topic in TOPICS)) for n, text, own in rows]
    _write(path, ["id", "comment_text", "price", *TOPICS], rows)


def _excel(path, rows):
    cells = [(n, text, ", ".join(own)) for n, text, own in rows]
    _write(path, ["ID", "Text", "Tags"], cells, delimiter=";", encoding="utf-8-sig")


TABLES = {  # labels per document, how the table is written, and what the screen says about it
    "pairs": (2, _pairs, "column 'id' names the document"),
    "pairs without ids": (2, _pairs_without_ids, "rows with the same text are one document"),
    "lists": (2, _lists, "separated by ';'"),
    "lists in brackets": (2, _brackets, "are a list in brackets"),
    "fasttext": (2, _fasttext, "fastText's lines"),
    "columns of 0 and 1": (2, _indicators, "4 columns of 0 and 1: 'sports', 'cooking', 'music', …"),
    "excel": (2, _excel, "separated by ','"),
}


def _write(path, head, rows, *, encoding="utf-8", **form):
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, **form).writerows([head, *rows])


def _rows(count, labels, seed=0):
    return [(n, text, own) for n, (text, own) in enumerate(documents(count, labels, seed))]


def _said(capsys, caplog):
    return " ".join([*capsys.readouterr().out.split(), *caplog.text.split()])


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_goes_all_the_way(kind, tmp_path, monkeypatch, capsys, caplog):
    labels, write, saying = TABLES[kind]
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    for name, seed in (("data", 0), ("new", 3)):
        write(tmp_path / f"{name}.csv", _rows(COUNT, labels, seed))
    train(["data.csv", "-m", "model", "--effort", "fast", "--keep-training-data"])
    shown = _said(capsys, caplog)
    assert saying in shown
    assert f"{COUNT} documents: " in shown
    assert ("columns not used: price" in shown) == (kind == "columns of 0 and 1")
    store, model = TableStore.open("data.sqlite"), XRLinear.load("model")
    assert set(model.names) - {"x" * 300} == set(TOPICS)
    expected = measure(store.labels("test"), model.predict(store.texts("test")), (1,)).at("P", 1)
    assert expected > 0.9

    # Measured by the rows of its own table that it was not trained on, as the training measured it.
    evaluate(["data.csv", "-m", "model", "--json", "-k", "1"])
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["systems"][0]["P@1"]) == (store.count("test"), pytest.approx(expected))
    assert f"{COUNT - store.count('test')} of {COUNT} documents were used in training" in caplog.text
    caplog.clear()
    frame = dict(zip(("text", "labels"), zip(*documents(COUNT, labels), strict=True), strict=True))
    options = {"text": "text", "labels": "labels"}
    assert model.evaluate(frame, k=1, **options).at("P", 1) == pytest.approx(expected)
    assert f"{COUNT - store.count('test')} of {COUNT} documents were used in training" in caplog.text
    assert model.evaluate(frame, k=1, rows="all", **options).documents == COUNT
    # Rows without a text or a label are no mistakes of the model.
    wider = {"text": [*frame["text"], "no label", ""], "labels": [*frame["labels"], [], frame["labels"][0]]}
    for measured in (model.evaluate(wider, k=1, **options), model.evaluate(wider["text"], wider["labels"], k=1)):
        assert (measured.documents, measured.at("P", 1)) == (store.count("test"), pytest.approx(expected))
    assert f"2 of {COUNT + 2} documents have no text or no label and are not measured" in caplog.text
    refused("there is nothing to measure", model.evaluate, ["no label"], [[]])
    caplog.clear()
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in store.texts("train")), encoding="utf-8")
    save_matrix("truth.npz", store.labels("train"))
    predict(["-m", "model", "-t", "texts.txt", "-y", "truth.npz", "-o", "predicted.npz"])
    measured = ["-m", "model", "-t", "texts.txt", "-y", "truth.npz", "-p", "predicted.npz", "--report", "seen"]
    evaluate(measured)
    count = store.count("train")
    assert caplog.text.count(f"texts.txt: {count} of {count} documents were used in training; metrics") == 2
    capsys.readouterr()
    caplog.clear()
    evaluate(["new.csv", "-m", "model", "--json"])
    assert json.loads(capsys.readouterr().out)["documents"] == COUNT
    assert "used in training" not in caplog.text

    predict(["new.csv", "-m", "model", "-o", "labels.csv", "-k", "2"])
    content = (tmp_path / "labels.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbfline;ID;label 1") == (kind == "excel")
    if kind == "lists":
        audit(["new.csv", "-m", "model", "-o", "audit"])
        report(["data.sqlite", "-m", "model", "-o", "report"])
    append(["new.csv", "-m", "model", "-o", "grown"])
    assert f"{COUNT} documents appended; {len(model.names)} labels\n" in capsys.readouterr().out
    # What was appended is known too.
    with pytest.raises(InputError, match=f"all of these {COUNT} documents were used in training(.|\n)*--rows all"):
        evaluate(["new.csv", "-m", "grown"])


def test_one_label_per_document_is_evaluated_as_it_was_trained(tmp_path, monkeypatch, capsys):
    """Numbers that pandas made floats stay whole, and confusions are shown instead of P@5."""
    monkeypatch.chdir(tmp_path)
    numbers = {topic: f"{2580 + n}.0" for n, topic in enumerate(TOPICS)}
    rows = [(text, numbers[own[0]]) for _, text, own in _rows(300, 1)]
    wrong = [(text, "2580.0" if n % 5 == 0 else label) for n, (text, label) in enumerate(rows)]
    _write(tmp_path / "data.csv", ["text", "label"], [*wrong, ("a text without a number", "")])
    train(["data.csv", "-m", "model", "--effort", "fast", "--verbose-level", "0"])
    (run,) = runs_of(TableStore.open("data.sqlite"))
    assert run.command.startswith("python -m xmc_tf.train data.csv -m model ")  # to be copied
    assert sorted(XRLinear.load("model").names) == ["2580", "2581", "2582", "2583"]
    capsys.readouterr()
    evaluate(["data.csv", "-m", "model"])
    shown = capsys.readouterr().out
    assert f"accuracy             {100 * run.metrics['accuracy']:.2f}" in shown
    assert "most confused:" in shown
    assert "P@5" not in shown
    evaluate(["data.csv", "-m", "model", "--json"])
    (system,) = json.loads(capsys.readouterr().out)["systems"]
    assert system["accuracy"] == pytest.approx(run.metrics["accuracy"])
    evaluate(["data.csv", "-m", "model", "-k", "1,3"])
    assert "P@3" in capsys.readouterr().out


def test_a_table_that_is_read_wrongly_is_asked_about(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    rows = [(f"a text about nothing {n}", f"one {n} / two {n}") for n in range(60)]
    _write(tmp_path / "data.csv", ["text", "label"], rows)
    train(["data.csv", "-m", "model", "--effort", "fast"])
    assert "60 labels for 60 documents: nearly every label occurs once" in caplog.text
    shown = _said(capsys, caplog)
    assert "6 test documents are too few to measure a model" in shown
    assert "Cells: 'one 0 / two 0', 'one 1 / two 1', 'one 2 / two 2'" in shown


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("urn:nbn:fi:au:ysa:Y97", True), ("yso:p1234", True), ("gnd:4134827-8", True), ("Q42", True), ("note: 3", False)],
)
def test_identifiers_are_recognised(name, identifier):
    assert (_IDENTIFIER.fullmatch(name) is not None) == identifier


def test_category_paths_are_measured_by_level_and_backed_off(tmp_path, monkeypatch, capsys):
    """Two goods of a kind cannot be distinguished: their kind is sure, they are not."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = [(text, f"goods > {own[0]} > {own[0]} {'ab'[random.integers(2)]}") for _, text, own in _rows(400, 1)]
    _write(tmp_path / "data.csv", ["text", "category"], rows)
    train(["data.csv", "-m", "model", "--effort", "fast", "--verbose-level", "0"])
    shown = " ".join(capsys.readouterr().out.split())
    (run,) = runs_of(TableStore.open("data.sqlite"))
    levels = [run.metrics[f"level {level}"] for level in (1, 2, 3)]
    assert levels[:2] == [1, 1]
    assert levels[2] == run.metrics["accuracy"] < 0.8
    assert f"1: 100.00, 2: 100.00, 3: {100 * levels[2]:.2f}" in shown
    evaluate(["data.csv", "-m", "model", "--json"])
    assert json.loads(capsys.readouterr().out)["systems"][0]["levels"] == pytest.approx(levels)
    new = _rows(200, 1, seed=3)
    _write(tmp_path / "new.csv", ["text"], [(text,) for _, text, _ in new])
    predict(["new.csv", "-m", "model", "-o", "labels.csv", "--back-off", "0.8"])
    with (tmp_path / "labels.csv").open(newline="") as file:
        _, *found = csv.reader(file)
    kinds = [f"goods > {own[0]}" for _, _, own in new]
    assert np.mean([row[1] == kind for row, kind in zip(found, kinds, strict=True)]) > 0.8
    assert all(row[1] in ("goods", kind) for row, kind in zip(found, kinds, strict=True))
    assert min(float(row[2]) for row in found) >= 0.8
