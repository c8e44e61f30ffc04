"""The explanation of a prediction of a linear model."""

from xmc_tf.common.errors import InputError
from xmc_tf.data import as_features
from xmc_tf.models.explaining.explanation import Explanation, LabelExplanation
from xmc_tf.models.explaining.name_evidence import name_evidence
from xmc_tf.models.explaining.tree_evidence import name_of, names_of_features, tree_evidence
from xmc_tf.models.linear.model import FeaturesLike, LinearModel


def explain_linear(model: LinearModel, document: str | FeaturesLike, k: int, beam_size: int | None) -> Explanation:
    """Explain the best labels of a document; see :meth:`XRLinear.explain`.

    Args:
        model: the model.
        document: a text, or the features of one document.
        k: number of labels.
        beam_size: number of nodes kept at each level above the labels. None: the model's default.
    """
    X = model.features([document], threads=1) if isinstance(document, str) else as_features(document)
    if X.nr_rows != 1:
        raise InputError("one document is explained at a time", expected="1 row", received=f"{X.nr_rows:,} rows")
    predicted = model.predict(
        [document] if isinstance(document, str) else X, only_topk=k, beam_size=beam_size, threads=1
    )
    feature_name = names_of_features(
        model.tfidf if model.reads_text else None, document if isinstance(document, str) else None
    )
    matches = model.evidence.names.evidence([document], 1) if model.evidence and isinstance(document, str) else None
    return Explanation(tuple(
        LabelExplanation(
            label, name_of(label, model.names), score,
            (*tree_evidence(model.ranker, X, label, feature_name, model.names), *name_evidence(matches, label)),
            "probability from rankers and label names" if model.evidence else "",
        ) for label, score in zip(predicted.indices.tolist(), predicted.data.tolist(), strict=True)
    ))  # fmt: skip
