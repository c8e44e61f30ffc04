"""Documents shared out to the ranks, and what they make of them put together again."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.metrics import precision_and_recall
from xmc_tf.models.prediction import PredictionOptions, predict
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.pipeline.inputs import Documents, Texts
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


def share_of(count: int, communicator: Communicator) -> slice:
    """This rank's documents among ``count``: neighbours, about as many on each rank."""
    cuts = np.linspace(0, count, communicator.size + 1).astype(int)
    return slice(int(cuts[communicator.rank]), int(cuts[communicator.rank + 1]))


def predict_over_ranks(
    model: XTransformer, texts: Texts, X: Any, communicator: Communicator, options: PredictionOptions
) -> csr_matrix | None:
    """Each rank predicts its share; rank 0 gets the whole, the others None. All ranks call it together.

    Args:
        model: the same on all ranks.
        texts: all documents.
        X: all their features, where the model wants some.
        communicator: the ranks.
        options: the options of the prediction.
    """
    if communicator.size == 1:
        return predict(model, texts, X, options)
    mine = share_of(len(texts), communicator)
    own = run_on_all_ranks(
        communicator, lambda: predict(model, texts[mine], None if X is None else X.rows(mine), options)
    )  # fmt: skip
    parts = communicator.gather(own)
    return vstack(parts, format="csr") if parts else None


def measure_over_ranks(
    model: XTransformer, held_out: Documents, communicator: Communicator, layout: str = "table"
) -> str:
    """Precision and recall on held-out documents, in this layout; on the other ranks an empty text."""
    predicted = predict_over_ranks(model, held_out.texts, held_out.X, communicator, PredictionOptions())
    return "" if predicted is None else precision_and_recall(predicted, held_out.Y.tocsr(), layout)
