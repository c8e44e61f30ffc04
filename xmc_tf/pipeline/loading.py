"""One function that loads a model of either kind."""

from pathlib import Path

from xmc_tf.common.model_kind import FINE_TUNED
from xmc_tf.linear.model_folder import kind_of
from xmc_tf.linear.text_ranker import TextRanker
from xmc_tf.pipeline.model import XTransformer


def load(folder: str | Path) -> XTransformer | TextRanker:
    """Load a model: ours, or a folder of ``pecos.xmc.xtransformer`` or ``pecos.xmc.xlinear``.

    Example:
        >>> load("model").best(["gradient of a sparse matrix"], k=3)
        [[('scipy.sparse', 0.71), …]]

    Args:
        folder: the model's folder, which training wrote.

    Returns:
        An XTransformer, or linear rankers.

    Raises:
        InputError: the folder is not a model; the message names the file that is missing or damaged.
    """
    folder = Path(folder)
    return XTransformer.load(folder) if kind_of(folder) == FINE_TUNED else TextRanker.load(folder)
