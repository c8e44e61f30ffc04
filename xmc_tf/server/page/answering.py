"""The content of the page as JSON: the results of the model, or an error about its folder."""

import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.models.explaining.explanation import LabelExplanation
from xmc_tf.models.loading import load
from xmc_tf.models.model import Model
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.report.sections.examples import deciding_words
from xmc_tf.server.private_copy import load_copy
from xmc_tf.serving.local import LocalModel

_EXAMPLES = 3
_MOST_LABELS, _LABELS, _WORDS = 50, 5, 12  # of a model folder
_LEAST_PART = 0.2  # of the largest contribution; words with smaller ones, such as "the", decide nothing
_MOST_ITEMS, _ITEMS = 50, 10


class PageAnswers(ABC):
    """The content of the page for one model. If loading the model fails, the next request tries again."""

    fix = ""
    """The instruction shown if a request asks for too many labels."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._model: Any = None
        self._about: dict[str, Any] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def _load(self) -> tuple[Any, dict[str, Any]]:
        """Return the model, and its description for the page, in which ``k`` is the maximum number of labels."""

    @abstractmethod
    def _answer(self, text: str, k: int) -> dict[str, Any]:
        """Return the best labels of a text, or the next items of a history."""

    def model(self) -> Any:
        with self._lock:
            if self._model is None:
                self._model, self._about = self._load()
            return self._model

    def about(self) -> dict[str, Any]:
        """Return the description of the model for the page."""
        self.model()
        return {"folder": str(self.folder), **self._about}

    def ask(self, text: str, k: int | None = None) -> dict[str, Any]:
        """Return the best labels of a text, or the next items of a history, which has one item per line."""
        about = self.about()
        if k is not None and not 1 <= k <= about["k"]:
            expected = f"a whole number from 1 to {about['k']}"
            raise InputError("k is out of range", expected=expected, received=str(k), fix=self.fix)
        began = time.perf_counter()
        # Lone surrogates, which JSON can contain and UTF-8 cannot, become question marks.
        clean = text.encode("utf-8", errors="replace").decode()
        with self._lock:
            found = self._answer(clean, k or about.get("shown", about["k"]))
        return {**found, "milliseconds": round(1000 * (time.perf_counter() - began), 2)}


class Answering(PageAnswers):
    """The content of the page for an exported model. Its folder may also contain several versions of the model."""

    fix = "for more labels, export the model with a larger -k"

    def _load(self) -> tuple[LocalModel, dict[str, Any]]:
        model = LocalModel(self.folder)
        if "paths" not in model.signatures:
            raise InputError(
                f"{model.folder} cannot read texts: it was trained on features",
                expected="a model that was trained on text (-t), with its own vectorizer",
            )
        # The first run of a graph is slow. The best labels of an empty text are the most frequent ones.
        names = [name.decode(errors="replace") for name in model.ask([b""], "paths")["names"][0] if name]
        about, post = model.about, str(model.about["post_processors"][-1])
        return model, {
            "folder": str(model.folder), "k": about["k"], "labels": about["nr_labels"], "levels": about["nodes"],
            "examples": list(map(str, about.get("examples", ()))) or names[:_EXAMPLES],
            "meaning": meaning_of(post), "scale": scale_of(post),
        }  # fmt: skip

    def _answer(self, text: str, k: int) -> dict[str, Any]:
        out = self._model.ask([text.encode()], "paths")
        nodes_at = self._model.about["nodes"]
        labels = []
        for column, label in enumerate(out["labels"][0][:k]):
            if label < 0:
                continue
            nodes = zip(out["nodes"][0, column], out["node_examples"][0, column], strict=True)
            path = [
                {
                    "level": level + 1, "node": int(node), "of": nodes_at[level],
                    "score": float(out["node_scores"][0, column, level]),
                    "examples": [name.decode(errors="replace") for name in examples if name],
                }
                for level, (node, examples) in enumerate(nodes)
            ]  # fmt: skip
            name, score = out["names"][0, column].decode(errors="replace"), float(out["scores"][0, column])
            labels.append({"label": int(label), "name": name, "score": score, "path": path})
        return {"labels": labels}


def scale_of(post: str) -> str:
    """Return how the page draws the scores of a post-processor: "none", "log" or "share"."""
    return "none" if post == "noop" else "log" if post.startswith("log-") else "share"


def meaning_of(post: str) -> str:
    """Return an explanation of the scores of a post-processor, without naming it."""
    rank = "Higher is better; compare the scores of one text only."
    if post == "noop":
        return f"The score is the raw output of the label's classifier, without those of the clusters above. {rank}"
    if post in ("sigmoid", "log-sigmoid"):
        each = "one factor for each level of the path, the classifier's estimate of a probability"
    else:
        each = "one factor for each level of the path, from 0 for a bad fit to 1 beyond the classifier's margin"
    combined = f"the logarithm of a product: {each}; 0 is best" if post.startswith("log-") else f"a product: {each}"
    calibrated = "It is not a calibrated probability: the scores of a text need not add up to 1."
    return f"The score is {combined}. {calibrated} {rank}"


_PROBABILITY = (
    "The score is a probability, calibrated on held-out documents: of the labels with a score of 0.8, about 8 in 10 "
    "are right."
)


class ExplainedAnswers(PageAnswers):
    """The content of the page for a model folder. Labels have their path, the deciding words, and other evidence."""

    def __init__(self, folder: str | Path, runtime: str = "auto") -> None:
        super().__init__(folder)
        self._runtime = runtime

    def _load(self) -> tuple[Model, dict[str, Any]]:
        model, self._copy = load_copy(self.folder, lambda folder: load(folder, runtime=self._runtime))
        makes_features = isinstance(model, XTransformer) and model.makes_features
        if not (model.reads_text if isinstance(model, XRLinear) else makes_features):
            raise InputError(
                f"{self.folder} cannot read texts: it was trained on features",
                expected="a model that was trained on text (-t), with its own vectorizer",
            )
        post, levels = _search(model)
        nr_labels = model.metadata.nr_labels
        return model, {
            "k": min(_MOST_LABELS, nr_labels), "shown": min(_LABELS, nr_labels), "labels": nr_labels, "levels": levels,
            "examples": model.metadata.examples[:_EXAMPLES] or [name for name, _ in model.best([""], k=_EXAMPLES)[0]],
            "meaning": meaning_of(post) if model.evidence is None else _PROBABILITY, "scale": scale_of(post),
        }  # fmt: skip

    def _answer(self, text: str, k: int) -> dict[str, Any]:
        return {"labels": [_label(one) for one in self._model.explain(text, k).labels]}


def _search(model: Model) -> tuple[str, list[int]]:
    """Return the name of the post-processor, and the number of nodes at each level of the first tree."""
    if isinstance(model, XTransformer) and "ranker" not in model.parts:
        return "sigmoid", list(model.tree.level_sizes[1:])
    assert isinstance(model, XRLinear | XTransformer)
    levels = trees_of(model.ranker)[0].levels
    return levels[-1].pred_params.post_processor, [int(level.clusters.shape[0]) for level in levels]


def _label(label: LabelExplanation) -> dict[str, Any]:
    path = next((source.path for source in label.evidence if source.path), ())
    best, embedding = deciding_words(label, _WORDS)
    most = max((abs(amount) for _, amount in best), default=0.0)
    sources = _sources(label)
    return {
        "label": label.label, "name": label.name, "score": label.score, "combined": label.combined, "sum": label.sum,
        "path": [
            {"level": node.level, "node": node.node, "of": node.of, "score": node.score, "examples": [node.name]}
            for node in path[:-1]
        ],
        "words": [{"word": word, "contribution": amount} for word, amount in best if abs(amount) >= _LEAST_PART * most],
        "embedding": embedding,
        "sources": sources if len(sources) > 1 or label.combined else [],
    }  # fmt: skip


def _sources(label: LabelExplanation) -> list[dict[str, Any]]:
    """Return the scores of the sources of a label. Several trees are one source, whose score is their mean."""
    trees = [one.score for one in label.evidence if one.path]
    found = [
        {"source": one.source, "score": one.score, "note": one.note}
        for one in label.evidence
        if not one.path or len(trees) == 1
    ]
    if len(trees) > 1:
        note = f"the mean of {len(trees)}, which are from {min(trees):.4f} to {max(trees):.4f}"
        found.insert(0, {"source": "label trees", "score": sum(trees) / len(trees), "note": note})
    return found


_MEANING = (
    "The score is the product of the item's and the history's embeddings, plus the item's bias. Higher is better; "
    "compare the scores of one history only."
)


class NextItemAnswers(PageAnswers):
    """The content of the page for a sequence model. The items unknown to the model are returned as ``unknown``."""

    def _load(self) -> tuple[Any, dict[str, Any]]:
        # These start TensorFlow.
        from xmc_tf.collective.strategy import CollectiveStrategy
        from xmc_tf.ranks.solo import Solo
        from xmc_tf.sequences.model.folder import load_model
        from xmc_tf.sequences.model.ranking import Predictor

        model, names = load_model(self.folder, CollectiveStrategy(Solo()))
        self._numbers = {name: number for number, name in enumerate(names)}
        most = min(_MOST_ITEMS, len(names))
        return Predictor(model, names, most), {
            "k": most, "shown": min(_ITEMS, most), "labels": len(names), "levels": [], "meaning": _MEANING,
            "examples": names[:_EXAMPLES],  # the most frequent items come first
            "scale": "none", "history": True,
        }  # fmt: skip

    def _answer(self, text: str, k: int) -> dict[str, Any]:
        history = [line.strip() for line in text.splitlines() if line.strip()]
        (found,) = self._model.of_names([history])
        best = list(zip(found.items, found.scores, strict=True))[:k]
        numbers = self._numbers
        return {
            "labels": [{"label": numbers[name], "name": name, "score": score, "path": []} for name, score in best],
            "unknown": [name for name in history if name not in numbers],
        }
