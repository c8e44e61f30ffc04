"""Models of xmc_tf in MLflow: saved, logged and loaded, as a flavour of their own and as a Python function.

    >>> import xmc_tf.mlflow
    >>> xmc_tf.mlflow.log_model(model, "subjects")
    >>> mlflow.pyfunc.load_model("models:/subjects/1").predict(["climate change and forests"])

It needs ``pip install mlflow`` (or ``mlflow-skinny``).
"""

from xmc_tf.mlflow.flavor import FLAVOR_NAME, PyFunc, _load_pyfunc, load_model, log_model, save_model

__all__ = ["FLAVOR_NAME", "PyFunc", "_load_pyfunc", "load_model", "log_model", "save_model"]
