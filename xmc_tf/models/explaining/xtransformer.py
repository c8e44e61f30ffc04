"""The explanation of a prediction of an XR-Transformer: rankers over [features ; embedding], and the label head."""

import dataclasses
from typing import Any

from xmc_tf.data import Features
from xmc_tf.models.explaining.evidence import (
    name_evidence,
    name_of,
    names_of_features,
    source_of_probability,
    tree_evidence,
)
from xmc_tf.models.explaining.explanation import Evidence, Explanation, LabelExplanation, Share, shares_of
from xmc_tf.models.parts import Parts
from xmc_tf.models.prediction import (
    POOL,
    method_of,
    own_features,
    predict,
    predict_by_heads,
    ranker_features,
    windows_of,
)
from xmc_tf.params import PredictionOptions

_COMBINED = {
    "average": "mean of label head and tree",
    "rank_average": "by mean rank in label head and tree",
    "round_robin": "label head and tree in turns",
}


def explain_parts(model: Parts, text: str, X: Any, options: PredictionOptions) -> Explanation:
    predicted = predict(model, [text], X, options)
    reading = model.metadata.reading
    (windows,) = windows_of(model, [text], options.batch_tokens, reading)
    method = method_of(model, options)
    heads: dict[int, float] = {}
    if method != "concat-only":
        more = dataclasses.replace(options, only_topk=max(predicted.nnz, POOL))
        by_heads = predict_by_heads(model, windows, more)
        heads = dict(zip(by_heads.indices.tolist(), by_heads.data.tolist(), strict=True))
    features: Features | None = None
    if method != "transformer-only":
        features = ranker_features(
            model, [text], own_features(model, [text], X, method),
            windows.of_documents(reading.combine), options,
        )  # fmt: skip
    feature_name = names_of_features(model.tfidf if "features" in model.parts else None, text)
    fused = model.evidence
    matches = None if fused is None else fused.in_text(text)
    labels = []
    for label, score in zip(predicted.indices.tolist(), predicted.data.tolist(), strict=True):
        evidence: list[Evidence] = []
        if method != "concat-only":
            note = "not among its best labels" if label not in heads else ""
            evidence.append(Evidence("label head", heads.get(label, 0.0), note=note))
        if features is not None:
            evidence += tree_evidence(model.ranker, features, label, feature_name, model.names)
            evidence += name_evidence(matches, label)
        combined = _COMBINED.get(method, "") if fused is None else source_of_probability(fused)
        shares = _shares(float(score), evidence, method, probable=fused is not None)
        labels.append(
            LabelExplanation(label, name_of(label, model.names), float(score), tuple(evidence), combined, shares)
        )
    return Explanation(tuple(labels))


def _shares(score: float, evidence: list[Evidence], method: str, *, probable: bool) -> tuple[Share, ...]:
    """Return what each source adds to a score; ranks have no shares."""
    if method not in ("average", "concat-only", "transformer-only"):
        return ()
    trees, heads = [one for one in evidence if one.path], [one for one in evidence if one.source == "label head"]
    half = 0.5 if trees and heads else 1.0
    weights = [half] * len(heads) + [half / max(len(trees), 1)] * len(trees)
    named = len(evidence) > len(trees) + len(heads)
    rest = "label name and calibration" if named else "calibration" if probable else "labels that the search left out"
    return shares_of(score, [*heads, *trees], weights, names=None, rest=rest)
