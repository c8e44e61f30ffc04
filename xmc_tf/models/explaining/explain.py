"""Explain predictions of both kinds of models: the evidence from rankers, label names and label head for each label."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, Texts
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.label_names import Mentions
from xmc_tf.models.documents import ReadDocuments
from xmc_tf.models.explaining.explanation import (
    Contribution,
    Evidence,
    Explanation,
    LabelExplanation,
    NodeExplanation,
    Share,
    shares_of,
)
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.parts import LazyModelFolder
from xmc_tf.models.prediction import method_of, own_features, predict_by_heads, ranker_features, windows_of
from xmc_tf.params import PredictionOptions
from xmc_tf.params.choices import MEANS
from xmc_tf.params.pools import FUSED_LABELS, LABELS_OF_PART
from xmc_tf.rankers.ensemble import Rankers, trees_of
from xmc_tf.rankers.kernels.postprocess import chain, neutral, post_processor_code, squash
from xmc_tf.rankers.xlinear import XLinear


@dataclass(frozen=True, eq=False)
class NodeContributions:
    """The score of one node on the path, and the contributions that add up to ``raw``."""

    level: int  # 0 below the root
    node: int  # number of the node at its level; on the last level, the label
    raw: float  # before the post-processor
    score: float  # after the post-processor, combined with that of the parent
    features: np.ndarray  # sparse features of the document that have a weight, ascending
    weights: np.ndarray
    values: np.ndarray  # their values in the document
    dense: float  # sum of the contributions of all dense features
    bias: float  # contribution of the constant feature


def contributions(ranker: XLinear, X: Features, label: int) -> list[NodeContributions]:
    """Return the nodes on the path to a label, from the top down, and the contributions of one document's features."""
    found: list[NodeContributions] = []
    for number, (level, node) in enumerate(zip(ranker.levels, path_to(ranker, label), strict=True)):
        code = post_processor_code(level.pred_params.post_processor)
        column = slice(*level.weights.indptr[node : node + 2])
        rows, weights = level.weights.indices[column], level.weights.data[column].astype(np.float64)
        bias = float(level.bias * weights[rows == level.nr_features].sum()) if level.bias > 0 else 0.0
        dense, features, own, values = 0.0, np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        if X.dense is not None:
            inside = (rows >= X.nr_sparse) & (rows < X.nr_features)
            dense = float(weights[inside] @ X.dense[0][rows[inside] - X.nr_sparse].astype(np.float64))
        if X.sparse is not None:
            features, at, of_values = np.intersect1d(rows, X.sparse[0].indices, return_indices=True)
            own, values = weights[at], X.sparse[0].data[of_values].astype(np.float64)
        raw = float(own @ values) + dense + bias
        parent = found[-1].score if found else float(neutral(code))
        score = float(chain(code, squash(code, raw), parent))
        found.append(NodeContributions(number, node, raw, score, features, own, values, dense, bias))
    return found


def path_to(ranker: XLinear, label: int) -> list[int]:
    """Return the nodes on the path to a label, from the top down."""
    nodes = [label]
    for level in reversed(ranker.levels[1:]):
        place = int(np.flatnonzero(level.clusters.indices == nodes[-1])[0])
        nodes.append(int(np.searchsorted(level.clusters.indptr, place, side="right")) - 1)
    return nodes[::-1]


def labels_below(ranker: XLinear, level: int, node: int) -> np.ndarray:
    """Return the labels below a node; ``level`` 0 is the first level below the root."""
    nodes = np.array([node])
    for clusters in (below.clusters for below in ranker.levels[level + 1 :]):
        nodes = np.concatenate([clusters.indices[clusters.indptr[one] : clusters.indptr[one + 1]] for one in nodes])
    return nodes


if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_NAMED_AFTER = 3  # labels in the name of a cluster
_LEAST = 1e-12  # score, as a divisor
_COMBINED = {
    "average": "mean of label head and tree",
    "root_average": "square of the mean square root of label head and tree",
    "rank_average": "by mean rank in label head and tree",
    "round_robin": "label head and tree in turns",
}


def one_text(texts: Texts) -> str:
    """Return the only text; raise an error if there is not exactly one."""
    if len(texts) != 1:
        raise InputError(
            "one document is explained at a time", expected="a text", received=f"{len(texts):,} texts",
            fix="call it for each text: [model.explain(text) for text in texts]",
        )  # fmt: skip
    text = texts[0]
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def explain_linear(
    model: LinearParts, read: ReadDocuments, predict: Callable[[Any, int | None], csr_matrix]
) -> Explanation:
    """Explain the best labels of a document.

    ``predict(documents, k)`` returns the k best labels; with k=None, it returns the labels to explain.
    """
    text = None if read.texts is None else one_text(read.texts)
    X = read.documents if text is None else model.features([text], threads=1)
    if X.nr_rows != 1:
        raise InputError("one document is explained at a time", expected="1 row", received=f"{X.nr_rows:,} rows")
    predicted = predict(X if text is None else [text], None)
    feature_name = names_of_features(model.tfidf if model.reads_text else None, text)
    matches = model.evidence.mentions([text], 1) if model.evidence and text is not None else None
    # Label names cannot be found in features alone, so the difference is the contribution of the names.
    nameless = predict(X, max(FUSED_LABELS, predicted.nnz)) if matches is not None and len(matches.labels) else None
    labels = []
    for label, score in zip(predicted.indices.tolist(), predicted.data.tolist(), strict=True):
        trees, named = tree_evidence(model.ranker, X, label, feature_name, model.names), name_evidence(matches, label)
        added = score - float(nameless[0, label]) if named and nameless is not None else None
        shares = shares_of(
            score, trees, [1 / max(len(trees), 1)] * len(trees), names=added, probable=model.evidence is not None
        )  # fmt: skip
        combined = "" if model.evidence is None else source_of_score(model.evidence)
        labels.append(LabelExplanation(label, name_of(label, model.names), score, (*trees, *named), combined, shares))
    return Explanation(tuple(labels))


def explain_encoded(
    model: LazyModelFolder, predict: Callable[..., csr_matrix], text: str, X: Any, options: PredictionOptions
) -> Explanation:
    """Explain the best labels of a text by a model with an encoder, whose class has the method ``predict``."""
    predicted = predict(model, [text], X, **vars(options))
    reading = model.metadata.reading
    (windows,) = windows_of(model, [text], options.batch_tokens, reading)
    method = method_of(model, options)
    heads: dict[int, float] = {}
    if method != "concat-only":
        more = dataclasses.replace(options, only_topk=max(predicted.nnz, LABELS_OF_PART))
        by_heads = predict_by_heads(model, windows, more)
        heads = dict(zip(by_heads.indices.tolist(), by_heads.data.tolist(), strict=True))
    of_rankers: set[int] = set()  # labels that the rankers score alone
    if method in MEANS and model.new_to_head is not None:
        of_rankers.update(np.flatnonzero(model.new_to_head).tolist())
    features: Features | None = None
    if method != "transformer-only":
        features = ranker_features(
            model, [text], own_features(model, [text], X, method),
            windows.of_documents(reading.combine), options,
        )  # fmt: skip
    feature_name = names_of_features(model.tfidf if "features" in model.parts else None, text)
    fused = model.evidence
    matches = None if fused is None else fused.mentions([text], 1)
    nameless = None
    if fused is not None and matches is not None and len(matches.labels):
        without = model.with_shared_parts()
        without.evidence = dataclasses.replace(fused, names=None)
        most = max(FUSED_LABELS, predicted.nnz)
        nameless = predict(without, [text], X, **vars(dataclasses.replace(options, only_topk=most)))
    labels = []
    for label, score in zip(predicted.indices.tolist(), predicted.data.tolist(), strict=True):
        evidence: list[Evidence] = []
        if method != "concat-only" and label not in of_rankers:
            note = "not among its best labels" if label not in heads else ""
            evidence.append(Evidence("label head", heads.get(label, 0.0), note=note))
        if features is not None:
            evidence += tree_evidence(model.ranker, features, label, feature_name, model.names)
        named = name_evidence(matches, label)
        added = None if nameless is None or not named else float(score) - float(nameless[0, label])
        evidence += named
        combined = _COMBINED.get(method, "") if fused is None else source_of_score(fused)
        shares = _shares(float(score), evidence, method, added, probable=fused is not None)
        labels.append(
            LabelExplanation(label, name_of(label, model.names), float(score), tuple(evidence), combined, shares)
        )
    return Explanation(tuple(labels))


def _shares(
    score: float, evidence: list[Evidence], method: str, names: float | None, *, probable: bool
) -> tuple[Share, ...]:
    """Return the share of each source in a score, of which label names add ``names``.

    Methods that combine the positions of labels instead of their scores have no shares.
    """
    if method not in (*MEANS, "concat-only", "transformer-only"):
        return ()
    trees, heads = [one for one in evidence if one.path], [one for one in evidence if one.source == "label head"]
    half = 0.5 if trees and heads else 1.0
    of_heads = of_trees = half
    if method == "root_average" and trees and heads:
        head, tree = (math.sqrt(max(float(np.mean([one.score for one in some])), _LEAST)) for some in (heads, trees))
        of_heads, of_trees = (head + tree) / 4 / head, (head + tree) / 4 / tree  # (head + tree)² / 4, split
    weights = [of_heads] * len(heads) + [of_trees / max(len(trees), 1)] * len(trees)
    return shares_of(score, [*heads, *trees], weights, names=names, probable=probable)


def tree_evidence(
    rankers: Rankers, X: Features, label: int, feature_name: Callable[[int], str], names: Sequence[str] | None
) -> list[Evidence]:
    """Return the evidence from each tree for one label of a document."""
    if label >= rankers.nr_labels:  # it was added after the training
        return []
    trees = trees_of(rankers)
    found = []
    for number, tree in enumerate(trees, 1):
        nodes = contributions(tree, X, label)
        path = []
        for node in nodes:
            below = labels_below(tree, node.level, node.node).tolist()
            of = int(tree.levels[node.level].clusters.shape[0])
            path.append(_node(node, of, below, feature_name, names))
        found.append(Evidence("tree" if len(trees) == 1 else f"tree {number}", nodes[-1].score, tuple(path)))
    return found


def source_of_score(evidence: ProbabilityModel) -> str:
    """Return a description of the sources of a probability, or of a score that no held-out document has confirmed."""
    sources = ["rankers"]
    if evidence.names is not None:
        sources.append("label names")
    if evidence.fusion.centers is not None or evidence.fusion.similarity is not None:
        sources.append("the encoder")
    *first, last = sources
    what = "probability" if evidence.fusion.nr_held_out else "score"
    return f"{what} from {', '.join(first)} and {last}" if first else f"{what} from {last}"


def name_evidence(mentions: Mentions | None, label: int) -> list[Evidence]:
    """Return the evidence from a label's name, if the text contains all or part of it."""
    if mentions is None or label not in mentions.labels:
        return []
    own = mentions.only(mentions.labels == label)
    if not own.full[0] and not own.precision[0]:
        return []
    what = "a name of the label occurs" if own.full[0] else "part of a name of the label occurs"
    note = f"{what} in the text; the score is the share of such labels that are true"
    return [Evidence("label name", float(own.precision[0]), note=note)]


def name_of(label: int, names: Sequence[str] | None) -> str:
    """Return the name of a label, or its number if labels have no names."""
    return names[label] if names else str(label)


def names_of_features(tfidf: "Tfidf | None", text: str | None = None) -> Callable[[int], str]:
    """Return a function that maps the number of a sparse feature to its name: the word in ``text`` where possible."""
    if tfidf is None:
        return lambda feature: f"feature {feature}"
    words = {} if text is None else tfidf.words_of_features(text)
    names = cache(lambda: tfidf.names)  # of a large vocabulary, they take longer than all else
    return lambda feature: words[feature] if feature in words else names()[feature]


def _node(
    node: NodeContributions, of: int, below: list[int], feature_name: Callable[[int], str], names: Sequence[str] | None
) -> NodeExplanation:
    each: dict[str, Contribution] = {}
    for feature, weight, value in zip(node.features, node.weights, node.values, strict=True):
        one = Contribution(feature_name(int(feature)), float(weight), float(value))
        each[one.feature] = each[one.feature].with_part(one) if one.feature in each else one
    called = [name_of(label, names) for label in below[:_NAMED_AFTER]]
    return NodeExplanation(
        name=", ".join(called) + (", …" if len(below) > _NAMED_AFTER else ""), level=node.level + 1, node=node.node,
        of=of, labels=len(below), raw=node.raw, score=node.score,
        contributions=tuple(sorted(each.values(), key=lambda one: (-abs(one.amount), one.feature))),
        embedding=node.dense, bias=node.bias,
    )  # fmt: skip
