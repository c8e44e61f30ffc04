"""Save, log and load xmc_tf models in MLflow, as a flavor of their own and as Python functions.

    >>> import mlflow, xmc_tf.mlflow
    >>> xmc_tf.mlflow.log_model(model, "subjects", registered_model_name="subjects")
    >>> mlflow.pyfunc.load_model("models:/subjects/1").predict(["climate change and forests"])

This module needs ``pip install mlflow`` (or ``mlflow-skinny``).
"""

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.version import __version__
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model

if TYPE_CHECKING:
    import mlflow.models.model

FLAVOR_NAME = "xmc_tf"
_DATA = "model"
_DEFAULT_LABELS = 5


class PyFunc:
    """A model with the ``predict`` method that MLflow calls."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[list[dict[str, Any]]]:
        """Return the best labels of each document, best first, as dictionaries of ``label`` and ``score``.

        Args:
            model_input: texts, or a DataFrame with the columns that the model was trained on.
            params: ``k``, the number of labels (default: 5).
        """
        found = self._model.best(model_input, int((params or {}).get("k", _DEFAULT_LABELS)))
        return [[{"label": label, "score": score} for label, score in own] for own in found]


def save_model(model: Model, path: str | Path, mlflow_model: "mlflow.models.model.Model | None" = None) -> None:
    """Write a model to a folder in MLflow's format.

    Args:
        model: the model.
        path: output folder, which must be new or empty.
        mlflow_model: the MLflow description to which the flavor is added (default: a new description).
    """
    import mlflow.models
    import mlflow.pyfunc
    from mlflow.types import ParamSchema, ParamSpec

    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        problem = f"{path} is not {'empty' if path.is_dir() else 'a folder'}"
        raise InputError(problem, expected="a new or empty folder", fix="choose another folder")
    path.mkdir(parents=True, exist_ok=True)
    model.save(path / _DATA)
    requirement = f"xmc_tf=={__version__}"
    about = mlflow.models.Model() if mlflow_model is None else mlflow_model
    # MLflow passes on the parameters that the signature names.
    number = ParamSpec("k", "integer", _DEFAULT_LABELS)
    about.signature = about.signature or mlflow.models.ModelSignature(params=ParamSchema([number]))
    about.add_flavor(FLAVOR_NAME, xmc_tf_version=__version__, data=_DATA)
    mlflow.pyfunc.add_to_model(about, loader_module=__name__, data=_DATA, python_env="python_env.yaml")
    about.save(str(path / "MLmodel"))
    (path / "requirements.txt").write_text(f"{requirement}\n", encoding="utf-8")
    lines = [f"python: {platform.python_version()}", "dependencies:", "- -r requirements.txt"]
    (path / "python_env.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def log_model(model: Model, name: str, **options: Any) -> "mlflow.models.model.ModelInfo":
    """Log a model in the current MLflow run. With ``registered_model_name``, also register it.

    Args:
        model: the model.
        name: name of the logged model.
        **options: options of ``mlflow.models.Model.log``, such as ``registered_model_name``.
    """
    import mlflow.models

    return mlflow.models.Model.log(None, sys.modules[__name__], name=name, model=model, **options)


def load_model(model_uri: str) -> Model:
    """Load a model from MLflow, with all methods of xmc_tf models.

    Args:
        model_uri: URI of the model, such as ``runs:/…/subjects`` or ``models:/subjects/1``, or a folder.
    """
    from mlflow.artifacts import download_artifacts

    return load(Path(download_artifacts(artifact_uri=model_uri)) / _DATA)


def _load_pyfunc(path: str) -> PyFunc:
    """Return the model in a folder as an MLflow Python function. MLflow finds this function by its name."""
    return PyFunc(load(path))
