"""The choice of an encoder's runtime: TensorFlow or ONNX Runtime."""

from importlib.util import find_spec
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install, require
from xmc_tf.encoder.onnx.encoder import GRAPH
from xmc_tf.params.choices import ONNX, RUNTIMES, TENSORFLOW


def choose_runtime(asked: str, folder: Path) -> str:
    """Return "tensorflow" or "onnx"; "auto" is ONNX if the encoder was exported for it or there is no TensorFlow."""
    if asked not in RUNTIMES:
        raise InputError(f"unknown runtime {asked!r}", expected=", ".join(RUNTIMES))
    exported = (folder / GRAPH).is_file()
    if asked == TENSORFLOW and exported:
        raise InputError(
            f"{folder} was exported for ONNX Runtime", expected="--runtime onnx", received="--runtime tensorflow",
            fix="use the model that it was exported from",
        )  # fmt: skip
    if asked == "auto":
        asked = ONNX if exported or find_spec("tensorflow") is None else TENSORFLOW
        if asked == ONNX and find_spec("onnxruntime") is None:
            raise InputError(
                "neither ONNX Runtime nor TensorFlow can compute the encoder" if not exported
                else f"{folder} was exported for ONNX Runtime, which is not installed",
                expected="the extra 'onnx' of xmc_tf" + ("" if exported else ", or 'tf'"), fix=pip_install("onnx"),
            )  # fmt: skip
    require("onnxruntime" if asked == ONNX else "tensorflow")
    return asked
