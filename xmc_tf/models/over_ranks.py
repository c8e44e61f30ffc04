"""Predictions of documents that are divided among the ranks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.models.results import rows_of
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

if TYPE_CHECKING:
    from xmc_tf.models.model import Model
    from xmc_tf.pipeline.inputs import Documents


def share_of(count: int, communicator: Communicator) -> slice:
    """Return this rank's contiguous range of ``count`` documents."""
    cuts = np.linspace(0, count, communicator.size + 1).astype(int)
    return slice(int(cuts[communicator.rank]), int(cuts[communicator.rank + 1]))


def predict_over_ranks(
    predict: Callable[[slice], csr_matrix], count: int, communicator: Communicator
) -> csr_matrix | None:
    """Predict each rank's range of the documents; return all predictions on rank 0, None on others. Collective."""
    own = run_on_all_ranks(communicator, lambda: predict(share_of(count, communicator)))
    parts = communicator.gather(own)
    return (vstack(parts, format="csr") if len(parts) > 1 else parts[0]) if parts else None


def measure_over_ranks(model: "Model", held_out: "Documents", communicator: Communicator, layout: str = "table") -> str:
    """Return precision and recall of held-out documents, as text; on other ranks than 0 an empty one. Collective."""
    from xmc_tf.metrics import precision_and_recall  # predictions alone need no measures

    texts, X = held_out.texts, held_out.X
    predicted = predict_over_ranks(
        lambda rows: model.predict(rows_of(texts, rows), rows_of(X, rows)), len(texts), communicator
    )
    return "" if predicted is None else precision_and_recall(predicted, held_out.Y.tocsr(), layout)
