"""Training either model with the parameters of a classifier."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import missing_package
from xmc_tf.data import Features
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import XRLinearParams
from xmc_tf.sklearn.documents import Documents
from xmc_tf.sklearn.options import (
    ranker_params,
    tfidf_params,
    transformer_params,
    transformer_pred_params,
    tree_params,
)

if TYPE_CHECKING:
    from xmc_tf.models.xtransformer import XTransformer

Model: TypeAlias = "XRLinear | XTransformer"


def train(
    params: Mapping[str, Any], documents: Documents, Y: csr_matrix, names: list[str] | None, threads: int, seed: int
) -> Model:
    """Train a model.

    Args:
        params: parameters of the classifier.
        documents: texts or features.
        Y: labels, documents × labels.
        names: label names, or None.
        threads: number of threads; -1: one per core.
        seed: random seed.
    """
    if params["model"] == "linear":
        linear = XRLinearParams(
            ranker=ranker_params(params), tree=tree_params(params, seed), tfidf=tfidf_params(params)
        )
        return XRLinear.train(documents, Y, names=names, params=linear, threads=threads, seed=seed)
    if isinstance(documents, Features):
        raise InputError(
            'XMCClassifier(model="transformer") needs texts',
            expected="a list of texts",
            received="features",
            fix='fit it to the texts, or use model="linear"',
        )
    try:  # these load TensorFlow, which features do not need
        from xmc_tf.models.training_run import TrainingRun
        from xmc_tf.models.xtransformer import XTransformer
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None

    return XTransformer.train(
        documents, Y, names=names, params=transformer_params(params, seed), pred_params=transformer_pred_params(params),
        tfidf=tfidf_params(params), run=TrainingRun(threads=threads, seed=seed),
    )  # fmt: skip
