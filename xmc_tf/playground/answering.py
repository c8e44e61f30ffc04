"""What the page is told: the model's answers in JSON, or what is wrong with its folder."""

import threading
import time
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.serving.local import LocalModel


class Answering:
    """Loads the model when it is first needed, and again on request after that has failed.

    Example:
        >>> Answering("served").ask("gradient of a sparse matrix")["labels"][0]["name"]

    Args:
        folder: the exported model, or the folder of its versions.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._model: LocalModel | None = None
        self._lock = threading.Lock()

    def model(self) -> LocalModel:
        """The model.

        Raises:
            InputError: when there is none, or one that reads no text.
        """
        with self._lock:
            if self._model is None:
                model = LocalModel(self.folder)
                if "paths" not in model.signatures:
                    raise InputError(
                        f"{model.folder} reads no text: it was trained on features",
                        expected="a model that was trained on text (-t), with its own vectoriser",
                    )
                model.ask([b"warm up"], "paths")  # the first run of a graph is slow
                self._model = model
            return self._model

    def about(self) -> dict[str, Any]:
        """What the page shows of the model, and how scores are to be drawn."""
        model = self.model()
        post = model.about["post_processors"][-1]
        return {
            "folder": str(model.folder),
            "labels": model.about["nr_labels"],
            "levels": model.about["nodes"],
            "scale": "none" if post == "noop" else "log" if post.startswith("log-") else "share",
        }

    def ask(self, text: str) -> dict[str, Any]:
        """The best labels of a text, each with its path.

        Returns:
            ``labels``: number, name and score, and ``path``: of each node from the top down its level, number, score
            and names of some labels below it. ``milliseconds``: what the model took.
        """
        model = self.model()
        began = time.perf_counter()
        # Lone surrogates, which JSON can carry and UTF-8 cannot, become question marks.
        out = model.ask([text.encode("utf-8", errors="replace")], "paths")
        took = time.perf_counter() - began
        labels = []
        for column, label in enumerate(out["labels"][0]):
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
