"""A small model and its export, made once."""

import pytest

from tests.serving.cases import text_model
from xmc_tf.params import PredictionOptions
from xmc_tf.serving.export import export_model
from xmc_tf.serving.local import LocalModel


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Return the model as it is loaded from its folder."""
    folder = tmp_path_factory.mktemp("model") / "model"
    made = text_model()
    made.save(folder)
    return type(made).load(folder)


@pytest.fixture(scope="session")
def exported(model, tmp_path_factory):
    """Return the folder of its first version."""
    folder = tmp_path_factory.mktemp("served") / "subjects" / "1"
    export_model(model.export_parts(), folder, PredictionOptions(only_topk=5, beam_size=8))
    return folder


@pytest.fixture(scope="session")
def local(exported):
    """Return the export, loaded: loading takes half a second."""
    return LocalModel(exported)
