"""The evidence for a label: what features add to the scores of the nodes on its path, and its names in the text."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xmc_tf.data.features import Features
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.label_names import Mentions
from xmc_tf.models.explaining.explanation import Contribution, Evidence, NodeExplanation
from xmc_tf.rankers.contributions import NodeContributions, contributions, labels_below
from xmc_tf.rankers.ensemble import Rankers, trees_of

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_NAMED_AFTER = 3  # labels in the name of a cluster


def tree_evidence(
    rankers: Rankers, X: Features, label: int, feature_name: Callable[[int], str], names: Sequence[str] | None
) -> list[Evidence]:
    """Return the evidence of each tree for a label of one document."""
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


def source_of_probability(evidence: ProbabilityModel) -> str:
    """Return how a probability was computed."""
    sources = ["rankers"]
    if evidence.names is not None:
        sources.append("label names")
    if evidence.fusion.centers is not None:
        sources.append("the encoder")
    *first, last = sources
    return f"probability from {', '.join(first)} and {last}" if first else f"probability from {last}"


def name_evidence(mentions: Mentions | None, label: int) -> list[Evidence]:
    """Return the evidence of a label's name, if all or part of it is in the text."""
    if mentions is None or label not in mentions.labels:
        return []
    own = mentions.only(mentions.labels == label)
    if not own.full[0] and not own.worth[0]:
        return []
    what = "a name of the label stands" if own.full[0] else "part of a name of the label stands"
    note = f"{what} in the text; the share of such labels that are true"
    return [Evidence("label name", float(own.worth[0]), note=note)]


def name_of(label: int, names: Sequence[str] | None) -> str:
    """Return the name of a label, or its number."""
    return names[label] if names else str(label)


def names_of_features(tfidf: "Tfidf | None", text: str | None = None) -> Callable[[int], str]:
    """Return a function from the number of a sparse feature to its name: in a text, the word that it comes from."""
    if tfidf is None:
        return lambda feature: f"feature {feature}"
    words = {} if text is None else tfidf.words_of_features(text)
    names = tfidf.names
    return lambda feature: words.get(feature, names[feature])


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
