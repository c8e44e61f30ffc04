"""The flavour of MLflow: what MLflow calls, and MLflow itself."""

import mlflow
import pandas as pd
import pytest

import xmc_tf.mlflow
from tests.refusals import refused
from xmc_tf.models.xr_linear import XRLinear

TEXTS = ["soup with fresh herbs", "herbs for a garden", "bread and soup"] * 4


@pytest.fixture(scope="module")
def model():
    frame = pd.DataFrame({"title": TEXTS, "topic": ["cooking", "gardening", "cooking"] * 4})
    return XRLinear.train(frame, text="title", labels="topic", label_names=False)


def test_the_function_that_mlflow_finds_returns_labels_and_scores(model, tmp_path):
    model.save(tmp_path / "model")
    function = xmc_tf.mlflow._load_pyfunc(str(tmp_path / "model"))
    expected = [[{"label": label, "score": score} for label, score in own] for own in model.best(TEXTS[:2], k=1)]
    assert function.predict(TEXTS[:2], {"k": 1}) == expected
    assert function.predict({"title": TEXTS[:2], "other": ["", ""]}, {"k": 1}) == expected
    assert len(function.predict(TEXTS[:1])[0]) == 2  # of two labels


def test_mlflow_registers(model, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow's default is a database, which mlflow-skinny lacks
    with mlflow.start_run():
        xmc_tf.mlflow.log_model(model, "subjects", registered_model_name="subjects")
    assert xmc_tf.mlflow.load_model("models:/subjects/1").names == model.names
    assert mlflow.pyfunc.load_model("models:/subjects/1").predict(TEXTS[:1])[0][0]["label"] == "cooking"


def test_mlflow_saves_and_loads(model, tmp_path):
    xmc_tf.mlflow.save_model(model, tmp_path / "saved")
    function = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert function.predict(TEXTS[:1], params={"k": 1})[0][0]["label"] == "cooking"
    frame = pd.DataFrame({"title": TEXTS[:2], "other": [1, 2]})
    assert function.predict(frame) == function.predict(TEXTS[:2])
    assert xmc_tf.mlflow.load_model(str(tmp_path / "saved")).names == model.names
    refused("is not a folder", xmc_tf.mlflow.save_model, model, tmp_path / "saved" / "MLmodel")
    refused("is not empty", xmc_tf.mlflow.save_model, model, tmp_path / "saved")
