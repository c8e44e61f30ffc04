"""PECOS's layout of precision and recall: the lines character by character, and where they are printed."""

import numpy as np
import pytest
import scipy.sparse as smat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.reference import reference
from tests.refusals import refused
from xmc_tf.data import save_matrix
from xmc_tf.evaluate import main as evaluate
from xmc_tf.linear.evaluate import main as linear_evaluate
from xmc_tf.metrics import evaluation, pecos_lines

TRUTH = smat.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], np.float32))
PREDICTED = smat.csr_matrix(np.array([[0.5, 0, 0.9, 0], [0, 0.25, 0.25, 0], [0.1, 0, 0, 0]], np.float32))
# Worked out by hand: hits at rank 2 in the first document, and (equal scores, lower label first) in the second.
BY_HAND = """==== evaluation results ====
prec   = 0.00 33.33 22.22
recall = 0.00 50.00 50.00"""


def test_by_hand():
    assert pecos_lines(PREDICTED, TRUTH, topk=3) == BY_HAND


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 12), st.integers(1, 14), st.integers(1, 40))
def test_by_definition(seed, documents, labels, topk, block):
    rng = np.random.default_rng(seed)
    truth = (rng.random((documents, labels)) < 0.3).astype(np.float32)
    predicted = np.round(rng.random((documents, labels)) * (rng.random((documents, labels)) < 0.6), 1).astype(
        np.float32
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "DOCUMENTS", block)
        lines = pecos_lines(smat.csr_matrix(predicted), smat.csr_matrix(truth), topk).splitlines()
    every, gains = np.ones(labels, bool), np.ones(labels)
    at = [reference(truth > 0, predicted, predicted > 0, k, gains, every) for k in range(1, topk + 1)]
    for line, name, measure in zip(lines[1:], ("prec  ", "recall"), ("P", "R"), strict=True):
        assert line == f"{name} = " + " ".join(f"{100 * (one[measure] if one else 0):.2f}" for one in at)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_matrix("y.npz", TRUTH)
    save_matrix("p.npz", PREDICTED)
    save_matrix("q.npz", TRUTH)
    return tmp_path


def test_the_layout_of_each_command(files, capsys):
    linear_evaluate(["-y", "y.npz", "-p", "p.npz", "-k", "3"])
    assert capsys.readouterr().out == BY_HAND + "\n"
    evaluate(["-y", "y.npz", "-p", "p.npz", "-k", "3", "--layout", "pecos"])
    assert capsys.readouterr().out == BY_HAND + "\n"
    evaluate(["--truth-path", "y.npz", "--pred-path", "p.npz", "--topk", "3"])
    assert "P@1" in capsys.readouterr().out
    linear_evaluate(["-y", "y.npz", "-p", "p.npz", "--layout", "table"])
    assert "P@1" in capsys.readouterr().out


def test_ten_by_default(files, capsys):
    linear_evaluate(["-y", "y.npz", "-p", "p.npz"])
    assert [len(line.split()) for line in capsys.readouterr().out.splitlines()] == [4, 12, 12]


def test_several_predictions_have_their_names_before_them(files, capsys):
    linear_evaluate(["-y", "y.npz", "-p", "p.npz", "q.npz", "-k", "1", "--tags", "one", "two"])
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[4]] == ["one:", "two:"]
    assert [lines[2], lines[6]] == ["prec   = 0.00", "prec   = 66.67"]


def test_what_does_not_fit_the_layout(files):
    message = r"-k 1,3 does not fit --layout pecos(.|\n)*use -k 3, or --layout table"
    refused(message, linear_evaluate, ["-y", "y.npz", "-p", "p.npz", "-k", "1,3"])
    refused("does not fit the truth", pecos_lines, PREDICTED[:2], TRUTH)


def test_json_and_report_beside_the_layout(files, capsys):
    linear_evaluate(["-y", "y.npz", "-p", "p.npz", "--json"])
    assert capsys.readouterr().out.startswith("{")
    linear_evaluate(["-y", "y.npz", "-p", "p.npz", "-k", "3", "--report", "out"])
    assert capsys.readouterr().out == BY_HAND + "\n\nreport: out/report.html\n"
