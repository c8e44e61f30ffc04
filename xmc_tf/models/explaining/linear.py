from collections.abc import Callable
from typing import Any

from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Texts
from xmc_tf.fusion import POOL
from xmc_tf.models.documents import ReadDocuments
from xmc_tf.models.explaining.evidence import (
    name_evidence,
    name_of,
    names_of_features,
    source_of_probability,
    tree_evidence,
)
from xmc_tf.models.explaining.explanation import Explanation, LabelExplanation, shares_of
from xmc_tf.models.linear.parts import LinearParts


def one_text(texts: Texts) -> str:
    """Return the only text; refuse several, or none."""
    if len(texts) != 1:
        raise InputError(
            "one document is explained at a time", expected="a text", received=f"a list of {len(texts):,}",
            fix="[model.explain(text) for text in texts]",
        )  # fmt: skip
    text = texts[0]
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def explain_linear(
    model: LinearParts, read: ReadDocuments, predict: Callable[[Any, int | None], csr_matrix]
) -> Explanation:
    """Explain the best labels of a document; ``predict`` returns the labels to explain, or a number of them."""
    text = None if read.texts is None else one_text(read.texts)
    X = read.documents if text is None else model.features([text], threads=1)
    if X.nr_rows != 1:
        raise InputError("one document is explained at a time", expected="1 row", received=f"{X.nr_rows:,} rows")
    predicted = predict(X if text is None else [text], None)
    feature_name = names_of_features(model.tfidf if model.reads_text else None, text)
    matches = model.evidence.in_text(text) if model.evidence and text is not None else None
    # Features alone have no names in them: what is missing then is what names add.
    nameless = predict(X, max(POOL, predicted.nnz)) if matches is not None and len(matches.labels) else None
    labels = []
    for label, score in zip(predicted.indices.tolist(), predicted.data.tolist(), strict=True):
        trees, named = tree_evidence(model.ranker, X, label, feature_name, model.names), name_evidence(matches, label)
        added = score - float(nameless[0, label]) if named and nameless is not None else None
        shares = shares_of(
            score, trees, [1 / max(len(trees), 1)] * len(trees), names=added,
            rest="calibration" if model.evidence else "labels that the search left out",
        )  # fmt: skip
        combined = "" if model.evidence is None else source_of_probability(model.evidence)
        labels.append(LabelExplanation(label, name_of(label, model.names), score, (*trees, *named), combined, shares))
    return Explanation(tuple(labels))
