"""The content of the page for a model folder: the model's answers, with the words and other evidence behind them."""

import threading
import time
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.server.page.answering import meaning_of, scale_of

_MOST_LABELS, _LABELS, _EXAMPLES, _WORDS = 50, 5, 3, 12
_PROBABILITY = (
    "The score is a probability, which was calibrated on documents that were held out: of the labels with a score of "
    "0.8, about 8 in 10 are right."
)


class ExplainedAnswers:
    """A model folder that is loaded on first use; its answers include the deciding words.

    Example:
        >>> ExplainedAnswers("model").ask("gradient of a sparse matrix", 3)["labels"][0]["words"]

    Args:
        folder: the model's folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._model: Model | None = None
        self._examples: list[str] = []
        self._lock = threading.Lock()

    def model(self) -> Model:
        """The model.

        Raises:
            InputError: the folder has no model, or one that cannot read texts.
        """
        with self._lock:
            if self._model is None:
                model = load(self.folder)
                reads = model.reads_text if isinstance(model, XRLinear) else _makes_features(model)
                if not reads:
                    raise InputError(
                        f"{self.folder} cannot read texts: it was trained on features",
                        expected="a model that was trained on text (-t), with its own vectorizer",
                    )
                # Without texts, names of labels are tried: the best of an empty text are the most frequent ones.
                self._examples = model.metadata.examples[:_EXAMPLES]
                self._examples = self._examples or [name for name, _ in model.best([""], k=_EXAMPLES)[0]]
                self._model = model
            return self._model

    def about(self) -> dict[str, Any]:
        """Return what the page shows about the model, and the scale of its scores."""
        model = self.model()
        post, levels = _search(model)
        probable = isinstance(model, XRLinear | XTransformer) and model.evidence is not None
        return {
            "folder": str(self.folder),
            "k": min(_MOST_LABELS, model.metadata.nr_labels),
            "shown": min(_LABELS, model.metadata.nr_labels),
            "examples": self._examples,
            "meaning": _PROBABILITY if probable else meaning_of(post),
            "labels": model.metadata.nr_labels,
            "levels": levels,
            "scale": scale_of(post),
        }

    def ask(self, text: str, k: int | None = None) -> dict[str, Any]:
        """Return the best labels of a text, each with its path, the deciding words, and other sources of its score.

        Args:
            text: the document.
            k: number of labels; None: 5.
        """
        model = self.model()
        most = min(_MOST_LABELS, model.metadata.nr_labels)
        if k is not None and not 1 <= k <= most:
            raise InputError("k is out of range", expected=f"a whole number from 1 to {most}", received=str(k))
        began = time.perf_counter()
        # Lone surrogates, which JSON can contain and UTF-8 cannot, become question marks.
        clean = text.encode("utf-8", errors="replace").decode()
        with self._lock:
            found = model.explain(clean, k or min(_LABELS, most))
        took = time.perf_counter() - began
        return {"labels": [_label(one) for one in found.labels], "milliseconds": round(1000 * took, 2)}


def _makes_features(model: Model) -> bool:
    return isinstance(model, XTransformer) and model.makes_features


def _search(model: Model) -> tuple[str, list[int]]:
    """Return the name of the function of scores, and the numbers of nodes of the levels of the first tree."""
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
