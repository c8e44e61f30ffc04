"""The label head of a PECOS model: the file ``text_model``, read as a matcher of one level."""

from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.data.torch.file import TorchFile
from xmc_tf.data.torch.pickle import PlainObject, Tensor
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.matcher import Matcher


def load_pecos_head(path: Path, strategy: CollectiveStrategy, nr_labels: int, dim: int) -> Matcher:
    """Return the last fine-tuned level of a PECOS model, under one root, since PECOS keeps no level above it.

    Args:
        path: ``text_encoder/text_model`` of a PECOS model.
        strategy: the ranks.
        nr_labels: number of labels of the model. A head with another number of rows scores clusters.
        dim: dimension of the encoder's embeddings.

    Raises:
        InputError: if the file is damaged, contains code, or does not fit the encoder.
    """
    file = TorchFile(path)
    weights, bias = (_embedding(file, name) for name in ("W", "b"))
    rows = len(weights) - 1  # the last row stands for padding
    if weights.ndim != 2 or weights.shape[1] != dim or bias.shape != (rows + 1, 1) or rows < 1:
        raise InputError(
            f"{path} does not fit the encoder",
            expected=f"a label head of {dim} columns with one bias per row",
            received=f"weights {weights.shape}, biases {bias.shape}",
            fix="the folder contains files of two models: copy the model again",
        )

    def initial(numbers: np.ndarray) -> np.ndarray:
        return np.hstack([weights[numbers], bias[numbers]])

    splits = np.array([0, rows], np.int64)
    head = LabelHead(strategy, "head/level_1", rows, dim, splits, initial=initial)
    return Matcher(strategy, [head], [splits], np.arange(rows) if rows == nr_labels else None)


def _embedding(file: TorchFile, name: str) -> np.ndarray:
    """Return the weights of one of the head's two embedding layers."""
    found: Any = file.content
    for key in ("_modules", name, "_parameters", "weight"):
        inside = found.attributes if isinstance(found, PlainObject) else found
        found = inside.get(key) if isinstance(inside, dict) else None
    if not isinstance(found, Tensor):
        raise InputError(
            f"{file.path} is not a label head of PECOS",
            expected="a TransformerLinearXMCHead with the embeddings W and b",
            received=f"no tensor for {name}",
            fix="copy the file again; without it the model still predicts with its rankers (concat-only)",
        )
    return file.array(found).astype(np.float32, copy=False)
