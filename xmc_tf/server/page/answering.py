"""The content of the page as JSON: the model's answers, or an error about its folder."""

import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.serving.local import LocalModel

_MAX_EXAMPLES = 3


class PageAnswers(ABC):
    """The content of the page for a model. If loading it fails, the next request tries again."""

    fix = ""
    """What to do for more labels than there are."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._model: Any = None
        self._about: dict[str, Any] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def _load(self) -> tuple[Any, dict[str, Any]]:
        """Return the model, and the page's data about it; its ``k`` is the maximum number of labels of an answer."""

    @abstractmethod
    def _answer(self, text: str, k: int) -> dict[str, Any]:
        """Return the best labels or items."""

    def model(self) -> Any:
        with self._lock:
            if self._model is None:
                self._model, self._about = self._load()
            return self._model

    def about(self) -> dict[str, Any]:
        """Return the page's data about the model."""
        self.model()
        return {"folder": str(self.folder), **self._about}

    def ask(self, text: str, k: int | None = None) -> dict[str, Any]:
        """Return the best labels of a text, or the next items of a history with one item in each line."""
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
    """The content of the page for an exported model, or for the folder of its versions."""

    fix = "for more labels, export the model with a larger -k"

    def _load(self) -> tuple[LocalModel, dict[str, Any]]:
        model = LocalModel(self.folder)
        if "paths" not in model.signatures:
            raise InputError(
                f"{model.folder} cannot read texts: it was trained on features",
                expected="a model that was trained on text (-t), with its own vectorizer",
            )
        model.ask([b"warm up"], "paths")  # the first run of a graph is slow
        post = str(model.about["post_processors"][-1])
        return model, {
            "folder": str(model.folder),
            "k": model.about["k"],
            "examples": _examples(model),
            "meaning": meaning_of(post),
            "labels": model.about["nr_labels"],
            "levels": model.about["nodes"],
            "scale": scale_of(post),
        }

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
                    "level": level + 1,
                    "node": int(node),
                    "of": nodes_at[level],
                    "score": float(out["node_scores"][0, column, level]),
                    "examples": [name.decode(errors="replace") for name in examples if name],
                }
                for level, (node, examples) in enumerate(nodes)
            ]
            name, score = out["names"][0, column].decode(errors="replace"), float(out["scores"][0, column])
            labels.append({"label": int(label), "name": name, "score": score, "path": path})
        return {"labels": labels}


def _examples(model: LocalModel) -> list[str]:
    """Return texts to try: those of the export, or else names of labels."""
    if texts := model.about.get("examples"):
        return [str(text) for text in texts]
    # The best labels of an empty text are the most frequent ones.
    names = model.ask([b""], "paths")["names"][0]
    return [name.decode(errors="replace") for name in names if name][:_MAX_EXAMPLES]


def scale_of(post: str) -> str:
    """Return how the scores of a post-processor are drawn: "none", "log" or "share"."""
    return "none" if post == "noop" else "log" if post.startswith("log-") else "share"


def meaning_of(post: str) -> str:
    """Return an explanation of the scores of a post-processor, without its name."""
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
