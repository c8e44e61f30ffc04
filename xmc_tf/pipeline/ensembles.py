"""The choice of scores for predictions: the label head's, the rankers', or both."""

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.metrics import ensemble
from xmc_tf.params.choices import MEANS
from xmc_tf.pipeline.inputs import Recipe
from xmc_tf.rankers.ensemble import first_k


def chosen_method(recipe: Recipe, head_of_labels: bool) -> str:
    """Return the default ensemble method of a model.

    PECOS's parameter files set ``transformer-only`` for every level. This refers to the head's scores during
    fine-tuning; the final labels are scored by the rankers. With rankers, ``transformer-only`` is therefore used only
    if the flag is set.
    """
    rankers = not recipe.params.only_encoder
    if (own := recipe.prediction.ensemble_method) is not None:
        if own != "concat-only" and not head_of_labels:
            raise InputError(
                f"--ensemble-method {own} needs a label head, which this model does not have",
                expected="an encoder that is fine-tuned on the level of the labels, or only the rankers",
                fix="raise --max-match-clusters to the number of labels, or use --ensemble-method concat-only",
            )
        return own
    if not rankers:
        return "transformer-only"
    usual = "root_average" if recipe.params.head_gives_probabilities else "concat-only"
    method = recipe.last_prediction.ensemble_method or usual
    return "concat-only" if method == "transformer-only" or not head_of_labels else method


def is_chosen(recipe: Recipe) -> bool:
    """Return whether an option or a parameter file sets the ensemble method."""
    return (recipe.prediction.ensemble_method or recipe.last_prediction.ensemble_method) is not None


def blend(
    method: str, heads: csr_matrix, rankers: csr_matrix, only_topk: int, new: np.ndarray | None = None
) -> csr_matrix:
    """Combine two predictions (documents × labels) and return the ``only_topk`` best labels.

    Means of the labels marked in ``new`` (bool [labels]), which have no documents, are the rankers' scores alone: the
    head has learned that these labels are wrong for all documents.
    """
    if new is not None and method in MEANS:
        heads = _with_columns_of(heads, rankers, new)
    return first_k(ensemble(method, [heads, rankers]), only_topk)


def _with_columns_of(scores: csr_matrix, others: csr_matrix, wanted: np.ndarray) -> csr_matrix:
    """Return the scores with the wanted columns replaced by those of ``others``."""
    own, theirs = scores.tocoo(), others.tocoo()
    kept, taken = ~wanted[own.col], wanted[theirs.col]
    data, row, column = (
        np.concatenate([getattr(own, part)[kept], getattr(theirs, part)[taken]]) for part in ("data", "row", "col")
    )
    return coo_matrix((data, (row, column)), shape=scores.shape).tocsr()
