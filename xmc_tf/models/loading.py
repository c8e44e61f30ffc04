from pathlib import Path
from typing import TYPE_CHECKING

from xmc_tf.common.folders.model_kind import FINE_TUNED
from xmc_tf.models.folder import kind_of
from xmc_tf.models.hub import HUB, download

if TYPE_CHECKING:
    from xmc_tf.models.model import Model

# The class of a model is imported when there is one: a linear model needs nothing of an encoder.


def load(folder: str | Path, *, runtime: str = "auto") -> "Model":
    """Load a model: ours, or a folder of ``pecos.xmc.xtransformer`` or ``pecos.xmc.xlinear``.

    Example:
        >>> load("model").best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', 0.71), …]]

    Args:
        folder: the folder that training wrote; or ``hf://user/model`` or ``hf://user/model@revision`` for a model on
            the Hugging Face hub, which :func:`push` has uploaded.
        runtime: what computes an encoder: "tensorflow", "onnx" (ONNX Runtime), or "auto": TensorFlow, unless it is not
            installed or the model was exported for ONNX Runtime. A linear model needs neither.

    Returns:
        An :class:`XTransformer` or an :class:`XRLinear`.

    Raises:
        InputError: the folder is not a model; the message names the file that is missing or damaged.
    """
    if isinstance(folder, str) and folder.startswith(HUB):
        folder = download(folder)
    folder = Path(folder)
    if kind_of(folder) == FINE_TUNED:
        from xmc_tf.models.xtransformer import XTransformer

        return XTransformer.load(folder, runtime=runtime)
    from xmc_tf.models.xr_linear import XRLinear

    return XRLinear.load(folder)
