"""The report's figures equal those of ``evaluate``, and hostile names and texts stay text."""

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.files import contents, largest_file
from tests.refusals import refused
from tests.report.cases import FORMULA, SCRIPT, Explaining, Page, inputs, matrices
from xmc_tf.data import save_matrix
from xmc_tf.evaluate import main
from xmc_tf.fusion.thresholds import PrecisionCurve
from xmc_tf.report import Curve, ReportInputs, make_report, write_report
from xmc_tf.report.page import page as page_module
from xmc_tf.report.sections.summary import sentences


def written(tmp_path, given):
    """Return the page, the JSON data and the folder of a report."""
    path = write_report(given, tmp_path / "report")
    return Page(path.read_text(encoding="utf-8")), json.loads((path.parent / "report.json").read_text()), path.parent


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return written(tmp_path_factory.mktemp("hostile"), inputs())


def test_every_figure_equals_evaluate(report, tmp_path, monkeypatch, capsys):
    page, data, _ = report
    monkeypatch.chdir(tmp_path)
    given = inputs()
    files = {"y": given.truth, "p": given.predicted, "o": next(iter(given.others.values()))}
    for name, matrix in {**files, "trn": given.training_labels}.items():
        save_matrix(f"{name}.npz", matrix)
    main(["-y", "y.npz", "-p", "p.npz", "o.npz", "--train-labels", "trn.npz", "--json"])
    expected = json.loads(capsys.readouterr().out)
    for one, system in zip(expected["systems"], data["evaluation"]["systems"], strict=True):
        assert {**one, "name": ""} == {**system, "name": ""}
    shown = {(row[0], row[1][:5]): row[2:] for row in page.tables["All documents and labels; best values are bold"][1:]}
    for system, name in zip(expected["systems"], ("model", "other"), strict=True):
        for measure in ("P", "R", "nDCG", "PSP", "PSnDCG", "micro-F1", "macro-F1"):
            assert shown[measure, name] == [f"{100 * system[f'{measure}@{k}']:.2f}" for k in (1, 3, 5)]
    header, *rows = page.tables["Metrics by label frequency"]
    buckets = [bucket for pair in zip(*(s["buckets"] for s in expected["systems"]), strict=True) for bucket in pair]
    assert len(rows) == len(buckets) == 8
    for row, bucket in zip(rows, buckets, strict=True):
        assert row[2] == f"{bucket['labels']:,}"
        values = [bucket[measure] for measure in header[3:]]
        assert row[3:] == ["–" if value is None else f"{100 * value:.2f}" for value in values]


def test_the_label_table_is_counted_label_by_label(report):
    _, data, folder = report
    given, threshold = inputs(), data["thresholds"]["best_f1"]["threshold"]
    truth, assigned = given.truth.toarray() > 0, given.predicted.toarray() >= threshold
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["label"]) for row in rows) == list(range(30))
    assert [int(row["test_documents"]) for row in rows] == sorted(truth.sum(axis=0), reverse=True)
    for row in rows:
        label = int(row["label"])
        right = (truth & assigned)[:, label].sum()
        assert int(row["assigned"]) == assigned[:, label].sum()
        assert int(row["training_documents"]) == given.training_labels[:, [label]].nnz
        if assigned[:, label].any():
            assert float(row["precision"]) == pytest.approx(right / assigned[:, label].sum())
        assert float(row["recall"]) == pytest.approx(right / truth[:, label].sum())


def test_hostile_names_and_texts_stay_text(report):
    page, _, folder = report
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert page.tags["script"] == 1
    assert "".join(page.scripts) == Path(page_module.__file__).with_name("templates").joinpath("sort.js").read_text()
    assert "img" not in page.tags
    assert not [one for one in page.attributes if one[1].startswith("on") or one[1] in ("src", "srcset", "action")]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")
    for letter in ("\u202e", "\u202d", "\x1b", "\ud800"):
        assert letter not in html
    assert any(row[0] == SCRIPT for row in page.tables["Labels by test documents; P, R and F1 in percent"])
    assert len(html) < 500_000  # one text has 5 MB


def test_cells_of_csv_files_are_not_formulas(report):
    _, _, folder = report
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        shown = {row["label"]: row["name"] for row in csv.DictReader(file)}
    assert shown["2"] == f"'{FORMULA}"
    for path in folder.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))]


def test_the_page_needs_nothing_else(report):
    html = (report[2] / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in html
    assert set(re.findall("https?://[a-z]*", html)) == {"http://evil"}  # the name of a label


def test_single_label_data_has_accuracy_and_a_confusion_matrix(tmp_path):
    draw = np.random.default_rng(3)
    true, guess = draw.integers(0, 5, 80), draw.integers(0, 5, 80)
    guess[:50] = true[:50]
    truth = csr_matrix(np.eye(5)[true])
    scores = csr_matrix(np.eye(5)[guess] * 0.9 + 0.01)
    page, data, _ = written(tmp_path, ReportInputs("One label each", truth, scores))
    assert data["single_label"]
    accuracy = (true == guess).mean()
    assert data["evaluation"]["systems"][0]["P@1"] == pytest.approx(accuracy)
    assert f"{100 * accuracy:.2f} % of the documents get the right label" in data["summary"][0]
    counted = np.zeros((5, 5), int)
    np.add.at(counted, (true, guess), 1)
    assert data["confusion"]["matrix"] == counted.tolist()
    shown = [[int(cell or 0) for cell in row[1:]] for row in page.tables["Confusion matrix"][1:]]
    assert shown == counted.tolist()


def test_a_large_label_table_is_cut_and_complete_in_the_file(tmp_path):
    labels = 20_000
    draw = np.random.default_rng(0)
    truth = csr_matrix((np.ones(9000), (np.arange(9000) % 3000, draw.integers(0, labels, 9000))), (3000, labels))
    page, data, folder = written(tmp_path, ReportInputs("Many", truth, truth * 0.5))
    assert len(page.tables["Labels by test documents; P, R and F1 in percent"]) == 10_001
    assert len(data["labels"]) == 10_000
    assert (folder / "report.html").stat().st_size < 5_000_000
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        assert sum(1 for _ in file) == labels + 1


def test_sentences_on_rare_and_new_labels_agree_with_the_tables(tmp_path):
    # 20 documents have a label of 2 training documents, 15 one of 60, and 20 a new label; half of the new are found.
    truth, predicted = np.zeros((40, 3)), np.zeros((40, 3))
    truth[:20, 0] = truth[5:20, 1] = truth[20:, 2] = 1
    predicted[:10, 0], predicted[5:20, 1], predicted[20:30, 2] = 0.9, 0.8, 0.7
    training = csr_matrix([[row < 2, True, False] for row in range(60)], dtype=np.float32)
    given = ReportInputs("", csr_matrix(truth), csr_matrix(predicted), training_labels=training)
    summary = " ".join(written(tmp_path, given)[1]["summary"])
    rare = "Rare labels (1 to 10 training documents): 50.00 % are among the first 5; frequent ones (over 50): 100.00 %."
    assert rare in summary
    assert (
        "1 of the 3 labels of the test documents have no training document: 36.36 % of the true labels, which only "
        "their names can find; 50.00 % of them are among the first 5."
    ) in summary


@pytest.mark.parametrize(
    ("lower", "said"),
    [
        ([0.93, 0.86], "New documents keep it with a confidence of 95% from 0.950 on (--min-precision 0.9)."),
        ([0.87, 0.86], "The model does not promise it for new documents: with a confidence of 95%, its held-out "
         "documents show at most 0.87."),
        (None, "New documents need a higher threshold for the same precision."),
    ],
)  # fmt: skip
def test_a_required_precision_is_that_of_min_precision(lower, said):
    """The report once named a threshold for a precision that the model refused to promise."""
    truth = csr_matrix(np.eye(4)[np.arange(40) % 4])
    curve = PrecisionCurve([0.95, 0.5], [0.99, 0.9], [0.4, 0.9], lower, [40, 100])
    model = Explaining(4)
    model.evidence = None if lower is None else SimpleNamespace(fusion=SimpleNamespace(curve=curve))
    (sentence,) = [
        one for one in sentences(make_report(ReportInputs("", truth, truth * 0.8, model=model))) if "90%" in one
    ]
    assert sentence.startswith("On these documents, labels with a score of 0.8 or more have a precision of 90%: ")
    assert sentence.endswith(said)


def test_nothing_predicted_and_scores_that_are_no_probabilities(tmp_path):
    truth, predicted, _ = matrices()
    nothing = csr_matrix(truth.shape, dtype=np.float32)
    _, data, _ = written(tmp_path, ReportInputs("Nothing", truth, nothing))
    assert "Nothing is predicted." in data["summary"]
    logarithms = predicted.copy()
    logarithms.data = np.log(logarithms.data)
    _, data, _ = written(tmp_path, ReportInputs("Logarithms", truth, logarithms))
    assert not data["calibration"]["applies"]
    _, expected, _ = written(tmp_path, ReportInputs("Shares", truth, predicted))
    assert data["thresholds"]["best_f1"]["f1"] == pytest.approx(expected["thresholds"]["best_f1"]["f1"], abs=0.01)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"names": ["a"]}, "wrong number of label names"),
        ({"texts": ["a"]}, "wrong number of texts"),
        ({"training_labels": csr_matrix((3, 7))}, "wrong number of columns of training labels"),
        ({"others": {"b": csr_matrix((3, 7))}}, "b does not fit the truth"),
        ({"name": "b", "others": {"b": matrices()[1]}}, "two predictions have the same name"),
    ],
)
def test_inputs_that_do_not_fit_are_named(more, message):
    refused(message, inputs, **more)


def test_a_curve_has_a_value_for_each_step():
    refused("different numbers of steps and values", Curve, "loss", [1, 2], [1.0])


def test_a_disk_without_room_leaves_the_earlier_report_whole(tmp_path):
    write_report(inputs(45), tmp_path / "report")
    before = contents(tmp_path)
    room = max(len(content) for name, content in before.items() if name.endswith(".csv"))
    with largest_file(2 * room), pytest.raises(OSError, match="File too large"):
        write_report(inputs(50), tmp_path / "report")
    assert contents(tmp_path) == before
    with largest_file(2 * room), pytest.raises(OSError, match="File too large"):
        write_report(inputs(50), tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
