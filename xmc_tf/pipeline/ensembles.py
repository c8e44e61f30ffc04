"""Whose scores count: those of the label head, those of the rankers, or both."""

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.metrics import ensemble
from xmc_tf.pipeline.inputs import Recipe
from xmc_tf.rankers.deepening import beginning


def chosen_method(recipe: Recipe, head_of_labels: bool) -> str:
    """The ensemble method of a model that is not told otherwise at prediction.

    PECOS's parameter files say ``transformer-only`` of every level and mean the head's scores while levels are
    fine-tuned; labels are then the rankers'. So do we read them: where there are rankers, ``transformer-only`` has to
    be asked for by name.

    Args:
        recipe: what the user said.
        head_of_labels: whether there is a head that scores labels, and not clusters of them.
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
    usual = "average" if recipe.params.head_gives_probabilities else "concat-only"
    method = recipe.last_prediction.ensemble_method or usual
    return "concat-only" if method == "transformer-only" or not head_of_labels else method


def is_chosen(recipe: Recipe) -> bool:
    """Return True if the user has chosen the ensemble method."""
    return (recipe.prediction.ensemble_method or recipe.last_prediction.ensemble_method) is not None


def blend(method: str, heads: csr_matrix, rankers: csr_matrix, only_topk: int) -> csr_matrix:
    """One prediction of two.

    Args:
        method: average, rank_average or round_robin.
        heads: documents × labels, the scores of the label head.
        rankers: documents × labels, those of the rankers.
        only_topk: labels to keep.
    """
    return beginning(ensemble(method, [heads, rankers]), only_topk)
