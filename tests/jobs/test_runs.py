"""The trainings on a data set: listed, compared, plotted, deleted."""

import csv
import json
import sqlite3

import pytest

from tests.refusals import refused
from xmc_tf import XRLinear
from xmc_tf.common.process import cli
from xmc_tf.runs import main
from xmc_tf.tables.preparation import PrepareOptions, prepare
from xmc_tf.tables.runs import Run, record_run, runs_of
from xmc_tf.tables.splits import SplitOptions
from xmc_tf.tables.store import TableStore


def _run(number, **more):
    given = {
        "began": f"2026-01-0{number}T10:00:00+00:00", "seconds": 75.0 * number, "command": "xmc-tf train …",
        "model": f"model-{number}", "kind": "XR-Linear", "parameters": {"tfidf.ngram_max": number, "seed": 0},
        "metrics": {"P@1": 0.5 + number / 10}, "documents": {"train": 80, "test": 20}, "labels": 4,
    }  # fmt: skip
    return Run(**{**given, **more})


@pytest.fixture
def store(multi):
    """A data set with three runs, of which the first has predictions."""
    found = prepare(multi, multi.with_suffix(".sqlite"))
    model = XRLinear.train(found.texts("train"), found.labels("train"), names=found.names)
    record_run(found, _run(1), model.predict(found.texts("test"), only_topk=3))
    record_run(found, _run(2, curve={"loss": [(10, 2.5), (20, 1.25)]}))
    record_run(found, _run(3, parameters={"tfidf.ngram_max": 1, "seed": 0, "new": "x"}))
    return found


def _shown(capsys, *arguments):
    main([str(one) for one in arguments])
    return capsys.readouterr().out


def test_what_is_recorded_is_read_again(store):
    assert [run.id for run in runs_of(store)] == [1, 2, 3]
    second = runs_of(store)[1]
    assert (second.seconds, second.curve, second.metrics) == (150.0, {"loss": [[10, 2.5], [20, 1.25]]}, {"P@1": 0.7})


def test_the_list_marks_the_best_run(store, capsys):
    shown = _shown(capsys, store.path)
    assert "80.00*" in shown
    assert "70.00*" not in shown
    assert "2 min 30 s" in shown
    assert _shown(capsys, store.path.with_suffix(".csv")) == shown  # the table stands for its data set


def test_a_comparison_shows_what_differs(store, capsys):
    shown = _shown(capsys, store.path, "compare", 1, 2, 3)
    (line,) = [line for line in shown.splitlines() if line.startswith("tfidf.ngram_max")]
    assert line.split() == ["tfidf.ngram_max", "1", "2", "1"]
    assert "seed" not in shown
    assert "new" in shown
    assert "cannot be compared" not in shown
    record_run(store, _run(4, labels=5))
    assert "cannot be compared" in _shown(capsys, store.path, "compare", 1, 4)


def test_runs_on_a_corrected_table_or_other_splits_are_not_compared(multi, store, capsys):
    assert "cannot be compared" not in _shown(capsys, store.path)
    corrected = multi.read_text().replace("cooking", "baking")
    for splits, content in ((SplitOptions(seed=1), multi.read_text()), (SplitOptions(), corrected)):
        multi.write_text(content)
        record_run(prepare(multi, store.path, PrepareOptions(splits=splits)), _run(4))
        for action in ("list", "compare"):
            assert "cannot be compared" in _shown(capsys, store.path, action, 1, len(runs_of(store)))
    assert "cannot be compared" not in _shown(capsys, store.path, "compare", 1, 2)


def test_one_run_is_shown_in_full(store, capsys):
    shown = _shown(capsys, store.path, "show", 2)
    for part in ("run 2", "model-2", "70.00", "tfidf.ngram_max", "xmc-tf train …"):
        assert part in shown
    (run,) = json.loads(_shown(capsys, store.path, "show", 2, "--json"))
    assert run["parameters"] == {"tfidf.ngram_max": 2, "seed": 0}


def test_predictions_of_the_test_documents(store, tmp_path):
    main([str(store.path), "predictions", "1", "-o", str(tmp_path / "out.csv")])
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    Y, names = store.labels("test"), store.names
    assert [row["text"] for row in rows] == list(store.texts("test"))
    assert [set(row["true labels"].split("|")) for row in rows] == [{names[at] for at in one.indices} for one in Y]
    assert all(len(row["predicted labels"].split("|")) == len(row["scores"].split("|")) == 3 for row in rows)
    refused("no predictions", main, [str(store.path), "predictions", "2", "-o", str(tmp_path / "out.csv")])


def test_deleting_a_run_keeps_the_others(store, capsys):
    assert "model stays in model-1" in _shown(capsys, store.path, "delete", 1)
    again = TableStore.open(store.path)
    assert [run.id for run in runs_of(again)] == [2, 3]
    assert again.connection.execute("SELECT count(*) FROM run_predictions").fetchone() == (0,)
    assert record_run(store, _run(5)) == 4  # numbers are not used again


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "needs the numbers"),
        (["show", "9"], "has no run 9"),
        (["show", str(10**30)], "has no run 1000"),
        (["compare", "1"], "at least 2"),
        (["predictions", "1"], "the action 'predictions' writes a CSV file"),
    ],
)
def test_actions_that_cannot_work(store, arguments, message):
    refused(message, main, [str(store.path), *arguments])


def test_a_data_set_without_runs(multi, capsys):
    prepare(multi, multi.with_suffix(".sqlite"))
    assert "no runs yet" in _shown(capsys, multi)


def test_a_damaged_data_set_ends_a_command_in_a_line(capsys):
    def fail(_):
        raise sqlite3.DatabaseError("database disk image is malformed")

    with pytest.raises(SystemExit) as end:
        cli.run(fail, [])
    assert end.value.code == 1
    assert "cannot be used: database disk image is malformed" in capsys.readouterr().err
