import json
import math

import numpy as np
import pytest
import scipy.sparse as smat

from xmc_tf.common.process import cli
from xmc_tf.data import save_matrix
from xmc_tf.evaluate import main
from xmc_tf.metrics import inverse_propensity, measure
from xmc_tf.report.evaluating import short_names

RNG = np.random.default_rng(7)
TRUTH = smat.csr_matrix((RNG.random((40, 12)) < 0.25).astype(np.float32))
TRAINING = smat.csr_matrix((RNG.random((90, 12)) < np.linspace(0.02, 0.9, 12)).astype(np.float32))
A = smat.csr_matrix(RNG.random((40, 12)) * (RNG.random((40, 12)) < 0.5), dtype=np.float32)
B = (A.multiply(0.5) + TRUTH.multiply(0.4)).tocsr()


def run(arguments):
    main(arguments.split())


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, matrix in (("y", TRUTH), ("trn", TRAINING), ("a", A), ("b", B)):
        save_matrix(f"{name}.npz", matrix)
    (tmp_path / "labels.txt").write_text("".join(f"label <{i}>\n" for i in range(12)))
    return tmp_path


def test_a_row_for_each_prediction_and_ensemble(files, capsys):
    run("-y y.npz -p a.npz b.npz --tags small large --ensemble average round_robin -k 1,5 --buckets none")
    text = capsys.readouterr().out
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line.count(".") >= 6}
    assert list(rows) == ["small", "large", "ensemble average", "ensemble round_robin"]
    assert rows["small"][1] == f"{100 * measure(TRUTH, A, [1])[0].at('P', 1):.2f}"
    assert text.startswith("40 documents, 12 labels, ")


def test_one_number_means_all_up_to_it_and_a_list_means_itself(files, capsys):
    run("-y y.npz -p a.npz --topk 3 --json")
    assert json.loads(capsys.readouterr().out)["k"] == [1, 2, 3]
    run("-y y.npz -p a.npz -k 4, --json")
    assert json.loads(capsys.readouterr().out)["k"] == [4]


def test_json_holds_what_the_measures_are(files, capsys):
    run("-y y.npz -p a.npz b.npz -k 1,3 --json --train-labels trn.npz --buckets 10,50")
    found = json.loads(capsys.readouterr().out)
    frequency = np.asarray(TRAINING.sum(axis=0)).ravel()
    assert [system["name"] for system in found["systems"]] == ["a.npz", "b.npz"]
    expected = measure(TRUTH, B, [1, 3], gains=inverse_propensity(frequency, 90))[0]
    for name, values in expected.values.items():
        assert found["systems"][1][f"{name}@3"] == pytest.approx(values[1], rel=1e-6)
    assert found["bucket_frequency"] == "training"
    buckets = found["systems"][0]["buckets"]
    assert sum(bucket["labels"] for bucket in buckets) == 12
    assert math.isclose(sum(bucket["P@3"] for bucket in buckets), found["systems"][0]["P@3"])


def test_without_training_labels_there_are_no_propensities_and_the_truth_is_counted(files, capsys):
    run("-y y.npz -p a.npz")
    text = capsys.readouterr().out
    assert "PSP" not in text
    assert "By frequency of the label in the test documents" in text


def test_tables_fit_the_screen(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    run("-y y.npz -p a.npz --train-labels trn.npz -k 5")
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "---" in line) <= 60


def test_the_report_has_all_predictions_and_its_own_texts(files, capsys):
    (files / "texts.txt").write_text("".join(f"text {i} & more\n" for i in range(40)))
    run("-y y.npz -p a.npz b.npz --tags one&two B --train-labels trn.npz --labels labels.txt -t texts.txt --report out")
    page = (files / "out/report.html").read_text(encoding="utf-8")
    assert capsys.readouterr().out.rstrip().endswith("report: out/report.html")
    assert "one&amp;two" in page
    assert "label &lt;3&gt;" in page
    assert "&amp; more" in page
    assert f"{100 * measure(TRUTH, A, [5])[0].at('P', 5):.2f}" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-y y.npz -p trn.npz", "40 documents × 12 labels"),
        ("-y y.npz -p a.npz -k 0", "whole numbers from 1"),
        ("-y y.npz -p a.npz -k 1,x", "received: 1,x"),
        ("-y y.npz -p a.npz --topk ,", "whole numbers from 1"),
        ("-y y.npz -p a.npz --buckets 5,5", "ascending"),
        ("-y y.npz -p nowhere.npz", "nowhere.npz"),
        ("-y nowhere.npz -p a.npz", "nowhere.npz"),
        ("-y y.npz -p a.npz --train-labels wide.npz", "12 columns"),
        ("-y y.npz -p a.npz b.npz --tags one", "2 names"),
        ("-y y.npz -p a.npz -t labels.txt", "-t is only used for a report"),
        ("-y y.npz -p a.npz -t labels.txt --report out", "wrong number of texts"),
        ("-y y.npz -p a.npz --ensemble average", "at least 2"),
        ("-y y.npz -p a.npz --labels short.txt", "12 lines"),
        ("-y y.npz -p a.npz --train-labels trn.npz --propensity-b -2", "parameter B"),
    ],
)
def test_bad_input_is_reported_with_exit_code_2(files, capsys, arguments, message):
    save_matrix("wide.npz", smat.csr_matrix((3, 13), dtype=np.float32))
    (files / "short.txt").write_text("one\n")
    with pytest.raises(SystemExit) as stop:
        cli.run(main, arguments.split())
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_names_are_as_short_as_they_can_be():
    assert short_names(["x/a.npz", "y/b.npz"]) == ["a.npz", "b.npz"]
    assert short_names(["r/x/a.npz", "r/y/a.npz"]) == ["x/a.npz", "y/a.npz"]
    assert short_names(["a.npz", "a.npz"]) == ["a.npz", "a.npz"]
