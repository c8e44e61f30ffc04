"""Documents shared out to the ranks, and what they make of them put together again."""

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
    """This rank's documents among ``count``: neighbours, about as many on each rank."""
    cuts = np.linspace(0, count, communicator.size + 1).astype(int)
    return slice(int(cuts[communicator.rank]), int(cuts[communicator.rank + 1]))


def predict_over_ranks(
    predict: Callable[[slice], csr_matrix], count: int, communicator: Communicator
) -> csr_matrix | None:
    """Each rank predicts its share; rank 0 gets the whole, the others None. All ranks call it together.

    Args:
        predict: predicts the documents of a slice.
        count: number of documents.
        communicator: the ranks.
    """
    own = run_on_all_ranks(communicator, lambda: predict(share_of(count, communicator)))
    parts = communicator.gather(own)
    return (vstack(parts, format="csr") if len(parts) > 1 else parts[0]) if parts else None


def measure_over_ranks(model: "Model", held_out: "Documents", communicator: Communicator, layout: str = "table") -> str:
    """Precision and recall on held-out documents, in this layout; on the other ranks an empty text."""
    from xmc_tf.metrics import precision_and_recall  # predictions alone need no measures

    texts, X = held_out.texts, held_out.X
    predicted = predict_over_ranks(
        lambda rows: model.predict(rows_of(texts, rows), rows_of(X, rows)), len(texts), communicator
    )
    return "" if predicted is None else precision_and_recall(predicted, held_out.Y.tocsr(), layout)
