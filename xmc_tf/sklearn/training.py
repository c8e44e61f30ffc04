"""Training of either model with the parameters of a classifier."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import missing_package
from xmc_tf.data import Features
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    RankerParams,
    TfidfParams,
    XRLinearParams,
    XTransformerParams,
    XTransformerPredParams,
)
from xmc_tf.sklearn.documents import Documents

if TYPE_CHECKING:
    from xmc_tf.models.xtransformer import XTransformer

Model: TypeAlias = "XRLinear | XTransformer"


def train(
    params: Mapping[str, Any], documents: Documents, Y: csr_matrix, names: list[str] | None, threads: int, seed: int
) -> Model:
    tfidf, matcher = params["tfidf"] or TfidfParams(), params["matcher"] or MatcherParams()
    tree = replace(params["tree"] or HierarchicalKMeansParams(), seed=seed)
    ranker = params["ranker"] or LinearLevelParams()
    if not isinstance(ranker, RankerParams):  # options of one level apply to all levels
        ranker = RankerParams(hlm_args=LinearChainParams(model_chain=ranker))
    if params["model"] == "linear":
        linear = XRLinearParams(ranker=ranker, tree=tree, tfidf=tfidf)
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

    if params["encoder"] is not None:
        matcher = replace(matcher, model_shortcut=str(params["encoder"]))
    transformer = XTransformerParams(
        preliminary_indexer_params=tree,
        refined_indexer_params=tree,
        matcher_params_chain=matcher,
        ranker_params=ranker,
        do_fine_tune=params["fine_tune"],
    )
    predicting = XTransformerPredParams(matcher_params_chain=MatcherPredParams(truncate_length=params["max_tokens"]))
    run = TrainingRun(threads=threads, seed=seed)
    return XTransformer.train(
        documents, Y, names=names, params=transformer, pred_params=predicting, tfidf=tfidf, run=run
    )  # fmt: skip
