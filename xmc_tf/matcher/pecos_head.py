"""The label head of a PECOS model: the file ``text_model``, as a search of one level."""

from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.torch.file import TorchFile
from xmc_tf.data.torch.pickle import PlainObject, Tensor
from xmc_tf.matcher.heads import WholeHead
from xmc_tf.matcher.label_search import LabelSearch


def load_pecos_head(path: Path, nr_labels: int, dim: int) -> LabelSearch:
    """Return the last fine-tuned level of a PECOS model, under one root, because PECOS stores no level above it.

    If its number of rows is not that of the model's labels, it scores clusters.
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

    head = WholeHead(np.hstack([weights[:rows], bias[:rows]]))
    return LabelSearch([head], [np.array([0, rows], np.int64)], np.arange(rows) if rows == nr_labels else None)


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
