"""The model card: a README.md that the Hugging Face hub can read, and that replaces no README of others."""

import json

import pytest
from scipy.sparse import csr_matrix

from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.report import ReportInputs, write_report

TEXTS = ["soup with fresh herbs", "herbs for a garden", "bread and soup"] * 4
TOPICS = [["cooking"], ["gardening"], ["cooking"]] * 4


@pytest.fixture
def trained(tmp_path):
    model = XRLinear.train(TEXTS, TOPICS, label_names=False)
    model.save(tmp_path / "model")
    truth = csr_matrix([[1, 0], [0, 1], [1, 0]])
    return model, ReportInputs.of_model(model, TEXTS[:3], truth, "Topics", ks=(1, 2)), tmp_path


def test_the_header_is_yaml_and_the_measures_are_those_of_the_report(trained):
    _, inputs, folder = trained
    write_report(inputs, folder / "report", model_folder=folder / "model", data="topics | 2.csv")
    head, _, body = (folder / "model" / "README.md").read_text().removeprefix("---\n").partition("\n---\n")
    header = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in head.splitlines())}
    (result,) = header["model-index"][0]["results"]
    assert header["library_name"] == "xmc_tf"
    assert result["dataset"]["name"] == "topics | 2.csv"
    report = json.loads((folder / "report" / "report.json").read_text())
    measured = {one["name"]: one["value"] for one in result["metrics"]}
    assert measured["P@1"] == pytest.approx(report["evaluation"]["systems"][0]["P@1"], abs=1e-4)
    assert "| P | 100.00 | 50.00 |" in body
    assert r"topics \| 2.csv" in body
    assert "trained on 12 documents" in body
    assert XRLinear.load(folder / "model").names == ["cooking", "gardening"]


def test_a_new_training_removes_the_card_and_keeps_a_readme_of_others(trained):
    model, inputs, folder = trained
    readme = folder / "model" / "README.md"
    write_report(inputs, folder / "report", model_folder=folder / "model")
    write_report(inputs, folder / "report", model_folder=folder / "model")  # a card of ours is replaced
    model.save(folder / "model")
    assert not readme.exists()
    readme.write_text("# My model\n")
    write_report(inputs, folder / "report", model_folder=folder / "model")
    model.save(folder / "model")
    assert readme.read_text() == "# My model\n"
