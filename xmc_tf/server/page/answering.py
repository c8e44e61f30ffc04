"""The content of the page as JSON: the model's answers, or an error about its folder."""

import threading
import time
from pathlib import Path
from typing import Any, Protocol

from xmc_tf.common.errors import InputError
from xmc_tf.serving.local import LocalModel
from xmc_tf.serving.warmup import warmup_texts

_MAX_EXAMPLES, _MAX_EXAMPLE_LENGTH = 3, 2000


class PageAnswers(Protocol):
    """The content of the page for one kind of model."""

    def model(self) -> Any:
        """The model, which the first call loads."""

    def about(self) -> dict[str, Any]:
        """Return what the page shows about the model, and the scale of its scores."""

    def ask(self, text: str, k: int | None = None) -> dict[str, Any]:
        """Return the best labels or items, with the time it took."""


class Answering:
    """A model that is loaded on first use, and again on request if loading failed.

    Example:
        >>> Answering("served").ask("gradient of a sparse matrix")["labels"][0]["name"]

    Args:
        folder: the exported model, or the folder of its versions.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._model: LocalModel | None = None
        self._examples: list[str] | None = None
        self._lock = threading.Lock()

    def model(self) -> LocalModel:
        """The model.

        Raises:
            InputError: the folder has no model, or one that cannot read texts.
        """
        with self._lock:
            if self._model is None:
                model = LocalModel(self.folder)
                if "paths" not in model.signatures:
                    raise InputError(
                        f"{model.folder} cannot read texts: it was trained on features",
                        expected="a model that was trained on text (-t), with its own vectorizer",
                    )
                model.ask([b"warm up"], "paths")  # the first run of a graph is slow
                self._model = model
            return self._model

    def about(self) -> dict[str, Any]:
        """Return what the page shows about the model, and the scale of its scores."""
        model = self.model()
        post = str(model.about["post_processors"][-1])
        if self._examples is None:
            self._examples = _examples(model)
        return {
            "folder": str(model.folder),
            "k": model.about["k"],
            "examples": self._examples,
            "meaning": meaning_of(post),
            "labels": model.about["nr_labels"],
            "levels": model.about["nodes"],
            "scale": scale_of(post),
        }

    def ask(self, text: str, k: int | None = None) -> dict[str, Any]:
        """Return the best labels of a text, each with its path.

        Args:
            text: the document.
            k: number of labels, at most as many as the model was exported with; None: the maximum.

        Returns:
            ``labels``: number, name, score and ``path`` of each. A path lists the nodes from the top down, each with
            its level, number, score and names of some labels below it. ``milliseconds``: the time the model took.
        """
        model = self.model()
        most = int(model.about["k"])
        if k is not None and not 1 <= k <= most:
            raise InputError(
                "k is out of range",
                expected=f"a whole number from 1 to {most}",
                received=str(k),
                fix="for more labels, export the model with a larger -k",
            )
        began = time.perf_counter()
        # Lone surrogates, which JSON can contain and UTF-8 cannot, become question marks.
        out = model.ask([text.encode("utf-8", errors="replace")], "paths")
        took = time.perf_counter() - began
        labels = []
        for column, label in enumerate(out["labels"][0][:k]):
            if label < 0:
                continue
            path = [
                {
                    "level": level + 1,
                    "node": int(node),
                    "of": model.about["nodes"][level],
                    "score": float(out["node_scores"][0, column, level]),
                    "examples": [name.decode(errors="replace") for name in examples if name],
                }
                for level, (node, examples) in enumerate(
                    zip(out["nodes"][0, column], out["node_examples"][0, column], strict=True)
                )
            ]
            labels.append({
                "label": int(label),
                "name": out["names"][0, column].decode(errors="replace"),
                "score": float(out["scores"][0, column]),
                "path": path,
            })  # fmt: skip
        return {"labels": labels, "milliseconds": round(1000 * took, 2)}


def _examples(model: LocalModel) -> list[str]:
    """Return texts to try: those of the warm-up requests; without them, names of labels."""
    texts = [text for text in dict.fromkeys(warmup_texts(model.folder, 16)) if text.strip()][:_MAX_EXAMPLES]
    if not texts:
        # The best labels of an empty text are the most frequent ones.
        names = model.ask([b""], "paths")["names"][0]
        texts = [name.decode(errors="replace") for name in names if name][:_MAX_EXAMPLES]
    return [text[:_MAX_EXAMPLE_LENGTH] for text in texts]


def scale_of(post: str) -> str:
    """Return how scores are drawn: "none", "log" or "share".

    Args:
        post: name of the function that turns the raw outputs of the classifiers into scores.
    """
    return "none" if post == "noop" else "log" if post.startswith("log-") else "share"


def meaning_of(post: str) -> str:
    """Return an explanation of scores, without the names of their functions.

    Args:
        post: name of the function that turns the raw outputs of the classifiers into scores.
    """
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
