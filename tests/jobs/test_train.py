"""From a table to a model, a measurement and the record of the run, by one command."""

import json
import logging
import os
import re

import pytest

from tests.jobs.conftest import documents, write_table
from tests.refusals import refused
from xmc_tf import XRLinear, evaluate
from xmc_tf.common.errors import InputError
from xmc_tf.jobs.linear import warn_of_case
from xmc_tf.tables.runs import predictions_of, runs_of
from xmc_tf.tables.store import TableStore
from xmc_tf.train import main
from xmc_tf.tree.show import main as show


def _train(table, *flags):
    main([str(table), "-m", str(table.parent / "model"), "--verbose-level", "0", *map(str, flags)])


def test_one_command_trains_and_measures(multi, capsys, caplog):
    _train(multi, "--ngram-max", 1, "--verbose-level", 2)
    shown = capsys.readouterr().out
    assert caplog.text.count(" 160 documents, 4 labels, ") > 1  # in each trial; the four names are no documents
    store = TableStore.open(multi.with_suffix(".sqlite"))
    model = XRLinear.load(multi.parent / "model")
    assert sorted(model.names) == ["cooking", "music", "sports", "travel"]
    expected = evaluate(store.labels("test"), model.predict(store.texts("test")), (1, 3))
    (run,) = runs_of(store)
    assert run.metrics["P@1"] == pytest.approx(expected.at("P", 1)) == 1.0
    assert f"{100 * expected.at('P', 3):.2f}" in shown
    assert run.documents == {"train": 160, "validation": 20, "test": 20}
    assert (run.kind, run.labels, run.model) == ("XR-Linear", 4, str(multi.parent / "model"))
    assert run.parameters["tfidf.ngram_max"] == 1
    tried = [trial["setting"] for trial in run.trials]
    assert not any("--ngram-max" in setting for setting in tried)  # the user has decided
    row = next(line for line in shown.splitlines() if "(--Cp)" in line).split()
    assert row[-2] == f"{run.parameters['ranker.hlm_args.model_chain.Cp']:g}"
    assert "--" not in run.chosen[0].replace("--effort", "")  # the table has the flags
    assert re.search(r"\n *setting +chosen +gain\n", shown)
    lines = [one.message for one in caplog.records if one.levelno >= logging.INFO]
    assert not any(line.startswith(("label tree: ", "160 documents")) for line in lines)  # of each trial
    assert [document for document, *_ in predictions_of(store, 1)] == store.ids("test").tolist()
    for part in ("data  ", "settings  ", "results  ", "files  ", "next  ", "xmc_tf predict NEW.csv -m"):
        assert part in shown


@pytest.mark.parametrize(("rows", "claim"), [(3, "no"), (30, "rough")])
def test_few_rows_make_no_claim_of_probabilities(tmp_path, capsys, rows, claim):
    table = write_table(tmp_path / "few.csv", documents(rows, 1))
    _train(table, "--validation", "0%", "--test", "0%", "--min-df", 1)
    said = " ".join(capsys.readouterr().out.split())
    assert f"and scores are {claim} probabilities" in said
    assert "train on 200 or more (--label-names true)" in said
    show([str(table.parent / "model")])
    assert ("probabilities, learned from" in capsys.readouterr().out) == (claim == "rough")


def test_one_label_per_document_is_measured_as_such(single, capsys):
    _train(single)
    shown = capsys.readouterr().out
    (run,) = runs_of(TableStore.open(single.with_suffix(".sqlite")))
    assert run.metrics["accuracy"] == run.metrics["micro-F1"] == run.metrics["P@1"]
    assert "one per document" in shown
    assert "accuracy" in shown
    assert "macro F1" in shown


def test_features_are_computed_once_a_run(multi, monkeypatch):
    from xmc_tf.jobs import linear
    from xmc_tf.params import TfidfParams

    fits, fit = [], linear.fit_tfidf
    monkeypatch.setattr(linear, "fit_tfidf", lambda *a: fits.append(a[1]) or fit(*a))
    _train(multi, "--effort", "fast")
    assert len(fits) == 1
    about = json.loads((multi.parent / "model" / "params.json").read_text())
    assert about["nr_documents"] == 180  # for training and validation
    store = TableStore.open(multi.with_suffix(".sqlite"))
    again = linear.DataSetFeatures(store)
    tfidf, X = again.of(TfidfParams())
    assert len(fits) == 2
    assert (tfidf.transform([*store.texts("train"), *store.texts("validation")]) != X).nnz == 0
    again.of(TfidfParams(ngram_max=1))
    assert len(fits) == 3


def test_a_prepared_data_set_is_trained_on_as_it_is(multi, capsys, caplog):
    _train(multi, "--preponly", "--test", 0.5)
    assert "100 test" in capsys.readouterr().out
    assert not (multi.parent / "model").exists()
    _train(multi.with_suffix(".sqlite"), "--effort", "fast", "--verbose-level", 2)
    assert "data set: reused as it was prepared from multi.csv" in caplog.text
    assert "100 test" in capsys.readouterr().out
    assert "has changed" not in caplog.text
    multi.write_text(multi.read_text() + "another row,sports\n")
    _train(multi.with_suffix(".sqlite"), "--effort", "fast")
    assert "multi.csv has changed since; to train on its rows of today, name it instead of" in caplog.text
    for flags in (["--test", 0.2], ["--text-column", "label"], ["--names-file", "names.tsv"], ["--table", "documents"]):
        refused(
            f"{flags[0]} cannot be used with .*multi.sqlite, a data set", _train, multi.with_suffix(".sqlite"), *flags
        )


def test_a_model_is_of_the_corrected_table(tmp_path, caplog):
    """A correction at the same size and time was once missed, and the model was that of the old table."""
    rows = documents(200, 1)
    swapped = {"music": "sport", "sport": "music"}
    rows = [(text, [name.replace("sports", "sport") for name in labels]) for text, labels in rows]
    corrected = [(text, [swapped.get(name, name) for name in labels]) for text, labels in rows]
    probes, found = [text for text, _ in rows[:40]], []
    for place, table in (("mine", rows), ("mine", corrected), ("new", corrected)):
        (tmp_path / place).mkdir(exist_ok=True)
        path = write_table(tmp_path / place / "table.csv", table)
        os.utime(path, ns=(1, 1))
        main([str(path), "-m", str(path.parent / "model"), "--effort", "fast"])
        found.append(XRLinear.load(path.parent / "model").best(probes, k=2))
    assert found[0] != found[1] == found[2]
    assert "data set: read again (labels changed)" in caplog.text


def test_features_instead_of_texts(tmp_path, capsys):
    table = tmp_path / "data.txt"
    lines = [f"{n % 4} {n % 4}:1 {4 + n % 7}:0.5" for n in range(120)]
    table.write_text("\n".join(["120 11 4", *lines]) + "\n")
    _train(table, "--report", tmp_path / "report")
    assert "accuracy" in capsys.readouterr().out
    store = TableStore.open(table.with_suffix(".sqlite"))
    model = XRLinear.load(tmp_path / "model")
    assert not model.reads_text
    found = evaluate(store.labels("test"), model.predict(store.features("test")), (1,))
    assert runs_of(store)[0].metrics["accuracy"] == found.at("P", 1) == 1.0
    assert (tmp_path / "report" / "report.html").exists()


def test_without_test_documents_nothing_is_measured(multi, capsys):
    _train(multi, "--test", 0, "--validation", 0)
    assert "no test documents: nothing was measured\n" in capsys.readouterr().out
    (run,) = runs_of(TableStore.open(multi.with_suffix(".sqlite")))
    assert run.metrics == {}


def test_three_documents_are_too_few_to_measure(tmp_path, capsys):
    table = tmp_path / "three.csv"
    table.write_text("text,label\na text,x\nanother text,y\na third text,x\n")
    _train(table, "--report", tmp_path / "report")
    shown = capsys.readouterr().out
    assert "too few documents to set 10% of them aside for testing: nothing was measured, and there" in shown
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["data.csv"], "-m is missing"),
        (["data.csv", "-m", "model", "-t", "X.txt"], "-t cannot be used with a table"),
        (["data.csv", "-m", "model", "--num-train-epochs", "2"], "--num-train-epochs can only be used with an encoder"),
        (["-t", "X.txt", "-y", "Y.npz", "-m", "model", "--minutes", "3"], "--minutes can only be used with a table"),
        (["-t", "X.txt", "-y", "Y.npz", "-m", "model", "--label-column", "a"], "--label-column can only be used with"),
        (["missing.csv", "-m", "model"], "missing.csv"),
        (["data.csv", "-m", "model", "--report", "data.csv"], "--report data.csv is also the input TABLE"),
        (["data.csv", "-m", "model", "--minutes", "0"], "--minutes is out of range"),
        (["data.csv", "-m", "model", "--data-set", "d\udcff.sqlite"], "the command line is not UTF-8"),
        (
            ["data.csv", "-m", "."],
            r"-m .* holds files that are not part of a model of xmc_tf\n.*\n  received: data\.csv",
        ),
        (["data.csv", "-m", "/"], "-m / holds files that are not"),
    ],
)
def test_command_lines_that_cannot_work(flags, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("text,label\nbread,food\n")
    with pytest.raises((InputError, FileNotFoundError), match=message):
        main(flags)
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]  # no data set is made for nothing


def test_labels_that_differ_by_case_alone_are_counted(caplog):
    warn_of_case(["Historia", "musiikki", "a b", "historia", "Hist oria", "straße", "STRASSE", "a  b"])
    assert "3 of 8 labels differ from another one only in case or blanks" in caplog.text
    assert "'Historia' and 'historia'" in caplog.text
