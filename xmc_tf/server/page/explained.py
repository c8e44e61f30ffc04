from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.server.page.answering import PageAnswers, meaning_of, scale_of

_MOST_LABELS, _LABELS, _EXAMPLES, _WORDS = 50, 5, 3, 12
_PROBABILITY = (
    "The score is a probability, calibrated on held-out documents: of the labels with a score of 0.8, about 8 in 10 "
    "are right."
)


class ExplainedAnswers(PageAnswers):
    """The content of the page for a model folder; each label has its path, the deciding words, and other evidence."""

    def __init__(self, folder: str | Path, runtime: str = "auto") -> None:
        super().__init__(folder)
        self._runtime = runtime

    def _load(self) -> tuple[Model, dict[str, Any]]:
        model = load(self.folder, runtime=self._runtime)
        if not (model.reads_text if isinstance(model, XRLinear) else _makes_features(model)):
            raise InputError(
                f"{self.folder} cannot read texts: it was trained on features",
                expected="a model that was trained on text (-t), with its own vectorizer",
            )
        post, levels = _search(model)
        nr_labels = model.metadata.nr_labels
        return model, {
            "k": min(_MOST_LABELS, nr_labels),
            "shown": min(_LABELS, nr_labels),
            # Without texts, names of labels are examples. The best labels of an empty text are the most frequent ones.
            "examples": model.metadata.examples[:_EXAMPLES] or [name for name, _ in model.best([""], k=_EXAMPLES)[0]],
            "meaning": meaning_of(post) if model.evidence is None else _PROBABILITY,
            "labels": nr_labels,
            "levels": levels,
            "scale": scale_of(post),
        }

    def _answer(self, text: str, k: int) -> dict[str, Any]:
        return {"labels": [_label(one) for one in self._model.explain(text, k).labels]}


def _makes_features(model: Model) -> bool:
    return isinstance(model, XTransformer) and model.makes_features


def _search(model: Model) -> tuple[str, list[int]]:
    """Return the name of the post-processor, and the number of nodes of each level of the first tree."""
    if isinstance(model, XTransformer) and "ranker" not in model.parts:
        return "sigmoid", list(model.tree.level_sizes[1:])
    assert isinstance(model, XRLinear | XTransformer)
    levels = trees_of(model.ranker)[0].levels
    return levels[-1].pred_params.post_processor, [int(level.clusters.shape[0]) for level in levels]


def _label(label: LabelExplanation) -> dict[str, Any]:
    trees = [source for source in label.evidence if source.path]
    path = trees[0].path if trees else ()
    words: dict[str, float] = {}
    for tree in trees:
        for one in tree.path[-1].contributions:
            words[one.feature] = words.get(one.feature, 0.0) + one.amount / len(trees)
    best = sorted(words.items(), key=lambda pair: -abs(pair[1]))[:_WORDS]
    return {
        "label": label.label,
        "name": label.name,
        "score": label.score,
        "path": [
            {"level": node.level, "node": node.node, "of": node.of, "score": node.score, "examples": [node.name]}
            for node in path[:-1]
        ],
        "words": [{"word": word, "contribution": amount} for word, amount in best],
        "embedding": sum(tree.path[-1].embedding for tree in trees) / max(len(trees), 1),
        "sources": [
            {"source": one.source, "score": one.score, "note": one.note} for one in label.evidence
        ] if len(label.evidence) > 1 or label.combined else [],
        "combined": label.combined,
        "sum": label.sum,
    }  # fmt: skip
