"""The content of the page for the folder of a sequence model: the items that come next in a history."""

import threading
import time
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.solo import Solo
from xmc_tf.sequences.model.predicting import Predictor

_MOST_ITEMS, _ITEMS, _EXAMPLES = 50, 10, 3
_MEANING = (
    "The score is the product of the item's and the history's embeddings, plus the item's bias. Higher is better; "
    "compare the scores of one history only."
)


class NextItemAnswers:
    """A sequence model that is loaded on first use; a history is a text with one item in each line.

    Example:
        >>> NextItemAnswers("sasrec").ask("tea\\nmilk", 3)["labels"][0]["name"]

    Args:
        folder: the model's folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._predictor: Predictor | None = None
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def model(self) -> Predictor:
        """The model.

        Raises:
            InputError: the folder has no sequence model.
        """
        from xmc_tf.collective.strategy import CollectiveStrategy
        from xmc_tf.sequences.model.folder import load_model

        with self._lock:
            if self._predictor is None:
                model, self._names = load_model(self.folder, CollectiveStrategy(Solo()))
                self._numbers = {name: number for number, name in enumerate(self._names)}
                self._predictor = Predictor(model, self._names, min(_MOST_ITEMS, len(self._names)))
            return self._predictor

    def about(self) -> dict[str, Any]:
        """Return what the page shows about the model, and the scale of its scores."""
        self.model()
        return {
            "folder": str(self.folder),
            "k": min(_MOST_ITEMS, len(self._names)),
            "shown": min(_ITEMS, len(self._names)),
            "examples": self._names[:_EXAMPLES],  # the most frequent items come first
            "meaning": _MEANING,
            "labels": len(self._names),
            "levels": [],
            "scale": "none",
            "history": True,
        }

    def ask(self, text: str, k: int | None = None) -> dict[str, Any]:
        """Return the items that come next, best first, and the names that the model does not know.

        Args:
            text: the names of the items of the history, one in each line, the oldest first.
            k: number of items; None: 10.
        """
        predictor = self.model()
        most = min(_MOST_ITEMS, len(self._names))
        if k is not None and not 1 <= k <= most:
            raise InputError("k is out of range", expected=f"a whole number from 1 to {most}", received=str(k))
        history = [line.strip() for line in text.splitlines() if line.strip()]
        began = time.perf_counter()
        with self._lock:
            (found,) = predictor.of_names([history])
        took = time.perf_counter() - began
        best = list(zip(found.items, found.scores, strict=True))[: k or min(_ITEMS, most)]
        return {
            "labels": [
                {"label": self._numbers[name], "name": name, "score": score, "path": []} for name, score in best
            ],
            "unknown": [name for name in history if name not in self._numbers],
            "milliseconds": round(1000 * took, 2),
        }
