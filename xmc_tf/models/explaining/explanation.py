"""The explanation of a prediction: words, the path through the tree, and other evidence for each label."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import islice
from typing import Any

from xmc_tf.common.process.terminal import printable

_SHOWN_WORDS = 8
_NAME_LENGTH = 40
_LEAST_SHARE = 5e-5  # the smallest share that four decimals show


@dataclass(frozen=True)
class Contribution:
    """The contribution of an n-gram, or of a word with its lemma and pieces, to a node's score."""

    feature: str
    weight: float  # for several features, the mean weighted by their values
    value: float  # for several features, the sum

    @property
    def amount(self) -> float:
        return self.weight * self.value

    def with_part(self, other: "Contribution") -> "Contribution":
        """Return the sum of this contribution and that of another feature of the same word."""
        value = self.value + other.value
        weight = (self.amount + other.amount) / value if value else 0.0
        return Contribution(self.feature, weight, value)


@dataclass(frozen=True)
class NodeExplanation:
    """A node on the path to a label. Its contributions, embedding and bias add up to ``raw``."""

    name: str  # the label's name; for a cluster, the names of some of its labels
    level: int  # 1 is the level below the root
    node: int
    of: int  # number of nodes in the level
    labels: int  # number of labels below the node
    raw: float  # before the post-processor
    score: float  # after it, combined with the score of the parent
    contributions: tuple[Contribution, ...]  # of all features, by decreasing magnitude
    embedding: float  # contribution of all dense features
    bias: float


@dataclass(frozen=True)
class Evidence:
    """The evidence for a label from one source."""

    source: str
    score: float
    path: tuple[NodeExplanation, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Share:
    """The share of one source in a label's score. All shares of a label add up to its score."""

    source: str
    amount: float


@dataclass(frozen=True)
class LabelExplanation:
    """The evidence for one label."""

    label: int
    name: str
    score: float
    evidence: tuple[Evidence, ...]
    combined: str = ""  # how the scores of several sources were combined
    shares: tuple[Share, ...] = ()

    @property
    def sum(self) -> str:
        """The score written as a sum of its shares; empty if there is only one share."""
        if len(self.shares) < 2:
            return ""
        first, *others = self.shares
        parts = [f"{first.amount:.4f} {first.source}"]
        parts += [f"{'−' if one.amount < 0 else '+'} {abs(one.amount):.4f} {one.source}" for one in others]
        return f"{self.score:.4f} = {' '.join(parts)}"

    @property
    def words(self) -> dict[str, float]:
        """The contribution of each feature, summed over all nodes of all paths, largest first."""
        total: dict[str, float] = {}
        for source in self.evidence:
            for node in source.path:
                for one in node.contributions:
                    total[one.feature] = total.get(one.feature, 0.0) + one.amount
        return dict(sorted(total.items(), key=lambda pair: -abs(pair[1])))


@dataclass(frozen=True)
class Explanation:
    """The best labels of a document, best first, with the evidence for each.

    Example:
        >>> print(model.explain("gradient of a sparse matrix", k=1))
    """

    labels: tuple[LabelExplanation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a dictionary for ``json.dump``."""
        out: dict[str, Any] = asdict(self)
        for label in out["labels"]:
            for source in label["evidence"]:
                for node in source["path"]:
                    for one in node["contributions"]:
                        one["contribution"] = one["weight"] * one["value"]
        return out

    def to_text(self, words: int = _SHOWN_WORDS) -> str:
        """Return the explanation as text for a terminal, with up to ``words`` features per node (2 for clusters)."""
        return "\n\n".join(_label_text(label, words) for label in self.labels) or "(no label)"

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks with the score and the most important words of each label."""
        rows = []
        for label in self.labels:
            words = ", ".join(f"{word} ({amount:+.2f})" for word, amount in islice(label.words.items(), _SHOWN_WORDS))
            cells = (label.name, f"{label.score:.4f}", label.sum.partition(" = ")[2], words)
            rows.append("<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells) + "</tr>")
        head = "<tr><th>label</th><th>score</th><th>sum of</th><th>words</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def shares_of(
    score: float, sources: Sequence[Evidence], weights: Sequence[float], *, names: float | None, probable: bool
) -> tuple[Share, ...]:
    """Return the share of each source (weight × score) and of label names (``names``).

    Of a probability, the sources share what the names do not add, in proportion to their scores. Otherwise, what the
    search left out is the remainder.
    """
    amounts = [weight * one.score for one, weight in zip(sources, weights, strict=True)]
    total = sum(amounts)
    if probable and total > 0:
        amounts = [amount / total * (score - (names or 0.0)) for amount in amounts]
    shares = [Share(one.source, amount) for one, amount in zip(sources, amounts, strict=True)]
    if names is not None:
        shares.append(Share("label name", names))
    left = score - sum(one.amount for one in shares)
    if abs(left) >= _LEAST_SHARE:
        shares.append(Share("other evidence" if probable else "labels that the search left out", left))
    return tuple(shares)


def _label_text(label: LabelExplanation, words: int) -> str:
    lines = [f"{label.score:.4f}  {printable(label.name)}" + (f"  ({label.combined})" if label.combined else "")]
    if label.sum:
        lines.append(f"  {label.sum}")
    for source in label.evidence:
        many = len(label.evidence) > 1 or label.combined
        note = f"  ({printable(source.note)})" if source.note else ""
        if many or not source.path:
            lines.append(f"  {source.source}: {source.score:.4f}{note}")
        for node in source.path[:-1]:
            lines.append(
                f"    {node.score:.4f}  cluster {node.node + 1:,} of {node.of:,} at level {node.level}: {_short(node)}"
            )
            lines += _parts_text(node, min(words, 2))
        if source.path:
            lines.append(f"    {source.path[-1].score:.4f}  {printable(source.path[-1].name)}")
            lines += _parts_text(source.path[-1], words)
    return "\n".join(lines)


def _short(node: NodeExplanation) -> str:
    name = printable(node.name)
    name = name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"
    return f"{node.labels:,} label{'' if node.labels == 1 else 's'}: {name}"


def _parts_text(node: NodeExplanation, words: int) -> list[str]:
    """Return lines with the contributions to a node's score, and their sum."""
    shown, others = node.contributions[:words], node.contributions[words:]
    parts = [(one.amount, f"{printable(one.feature)}  ({one.weight:.3f} × {one.value:.3f})") for one in shown]
    if others:
        more = f"{len(others):,} other feature{'' if len(others) == 1 else 's'}"
        parts.append((sum(one.amount for one in others), more))
    if node.embedding:
        parts.append((node.embedding, "embedding"))
    if node.bias:
        parts.append((node.bias, "bias"))
    lines = [f"            {amount:+8.3f}  {what}" for amount, what in parts]
    return [*lines, f"            {node.raw:+8.3f}  sum, before the post-processor"] if parts else lines
