"""Checks, training and pickling for ``XMCClassifier``."""

import dataclasses
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.utils.validation import validate_data

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import missing_package
from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.data import Features, Texts, as_features
from xmc_tf.models.documents import ReadDocuments
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearChainParams,
    LinearLevelParams,
    MatcherParams,
    MatcherPredParams,
    Params,
    RankerParams,
    TfidfParams,
    XRLinearParams,
    XTransformerParams,
    XTransformerPredParams,
)

if TYPE_CHECKING:
    from xmc_tf.models.xtransformer import XTransformer

# Parameters of the classifier that are blocks of parameters themselves; None stands for the class's defaults.
BLOCKS: dict[str, type[Params]] = {
    "tfidf": TfidfParams,
    "tree": HierarchicalKMeansParams,
    "ranker": LinearLevelParams,
    "matcher": MatcherParams,
}


def nested(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of all blocks under names such as ``tfidf__ngram_max``."""
    found: dict[str, Any] = {}
    for name, kind in BLOCKS.items():
        block = kind() if params[name] is None else params[name]
        if not isinstance(block, Params):
            continue  # set_params accepts any value; fit refuses it
        found |= {f"{name}__{field.name}": getattr(block, field.name) for field in dataclasses.fields(block)}
    return found


def replaced(params: Mapping[str, Any], name: str, changes: Mapping[str, Any]) -> Params:
    """Return a copy of a parameter block, such as "tfidf", with some parameters changed."""
    block = _block(params, name)
    known = [field.name for field in dataclasses.fields(block)]
    for key in changes:
        if key not in known:
            raise InputError(
                f"{name}__{key} is not a parameter of XMCClassifier",
                expected=", ".join(f"{name}__{one}" for one in known),
            )
    return dataclasses.replace(block, **changes)


def check_options(params: Mapping[str, Any]) -> None:
    """Raise an error for parameters that cannot be used, before any work is done."""
    if params["model"] not in ("linear", "transformer"):
        raise InputError("model is unknown", expected='"linear" or "transformer"', received=repr(params["model"]))
    for name in ("max_labels", "scored_labels", "beam_size"):
        value = params[name]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and value >= 1) and not (value is None and name == "max_labels"):
            raise InputError(f"{name} is out of range", expected="a whole number of at least 1", received=repr(value))
    threshold = params["threshold"]
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise InputError("threshold is out of range", expected="a number from 0 to 1", received=repr(threshold))
    for name in BLOCKS:
        _block(params, name)


def _block(params: Mapping[str, Any], name: str) -> Params:
    """Return the parameter block with this name, or the defaults if it is None; raise an error for other types."""
    block, kind = params[name], BLOCKS[name]
    if block is None:
        return kind()
    kinds: tuple[type[Params], ...] = (kind, RankerParams) if name == "ranker" else (kind,)
    if not isinstance(block, kinds):
        raise InputError(
            f"{name} has the wrong type", expected=" or ".join(one.__name__ for one in kinds) + ", or None",
            received=f"{type(block).__name__}: {block!r}"[:80], fix=f"{name}={kind.__name__}(...)",
        )  # fmt: skip
    return block


Documents: TypeAlias = Texts | Features


def checked_documents(estimator: Any, X: Any, read: ReadDocuments, *, fitting: bool) -> Documents:
    """Return the documents in the form that models read.

    When fitting, set ``n_features_in_`` and ``feature_names_in_`` on the estimator. Otherwise, raise an error if the
    features do not match them, or if ``fit`` received texts and these are features, or the reverse.
    """
    if fitting:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                delattr(estimator, name)
    elif (read.texts is None) != hasattr(estimator, "n_features_in_"):
        kinds = ("texts", "features")
        raise InputError(
            f"X contains {kinds[read.texts is None]}", expected=f"{kinds[read.texts is not None]}, as in fit",
            received=kinds[read.texts is None],
        )  # fmt: skip
    if read.texts is not None:
        return read.texts
    if isinstance(X, Features):
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
        return X
    return as_features(validate_data(estimator, X, reset=fitting, accept_sparse="csr", dtype=np.float32))


Model: TypeAlias = "XRLinear | XTransformer"


def train(
    params: Mapping[str, Any], documents: Documents, Y: csr_matrix, names: list[str] | None, threads: int, seed: int
) -> Model:
    tfidf, matcher = params["tfidf"] or TfidfParams(), params["matcher"] or MatcherParams()
    tree = dataclasses.replace(params["tree"] or HierarchicalKMeansParams(), seed=seed)
    ranker = params["ranker"] or LinearLevelParams()
    if not isinstance(ranker, RankerParams):  # options of one level apply to all levels
        ranker = RankerParams(hlm_args=LinearChainParams(model_chain=ranker))
    if params["model"] == "linear":
        linear = XRLinearParams(ranker=ranker, tree=tree, tfidf=tfidf)
        return XRLinear.train(documents, Y, names=names, params=linear, threads=threads, seed=seed)
    if isinstance(documents, Features):
        raise InputError(
            'XMCClassifier(model="transformer") needs texts', expected="a list of texts", received="features",
            fix='fit it to the texts, or use model="linear"',
        )  # fmt: skip
    try:  # these load TensorFlow, which linear models do not need
        from xmc_tf.models.xtransformer import TrainingRun, XTransformer
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None

    if params["encoder"] is not None:
        matcher = dataclasses.replace(matcher, model_shortcut=str(params["encoder"]))
    transformer = XTransformerParams(
        preliminary_indexer_params=tree, refined_indexer_params=tree, matcher_params_chain=matcher,
        ranker_params=ranker, do_fine_tune=params["fine_tune"],
    )  # fmt: skip
    predicting = XTransformerPredParams(matcher_params_chain=MatcherPredParams(truncate_length=params["max_tokens"]))
    run = TrainingRun(threads=threads, seed=seed)
    return XTransformer.train(
        documents, Y, names=names, params=transformer, pred_params=predicting, tfidf=tfidf, run=run
    )  # fmt: skip


def pack(model: "XTransformer") -> dict[str, bytes]:
    """Return the content of each model file, keyed by its path within the model folder."""
    with TemporaryFolder() as place:
        folder = Path(place) / "model"
        model.save(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def unpack(files: dict[str, bytes]) -> "XTransformer":
    """Load a model from packed files. They are written to a temporary folder that is removed with the model."""
    from xmc_tf.models.xtransformer import XTransformer

    place = TemporaryFolder()
    for name, content in files.items():
        path = Path(place.name) / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    model = XTransformer.load(Path(place.name) / "model")
    weakref.finalize(model, place.cleanup)
    return model
