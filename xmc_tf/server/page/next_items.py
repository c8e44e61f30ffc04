from typing import Any

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.ranks.solo import Solo
from xmc_tf.sequences.model.folder import load_model
from xmc_tf.sequences.model.ranking import Predictor
from xmc_tf.server.page.answering import PageAnswers

_MOST_ITEMS, _ITEMS, _EXAMPLES = 50, 10, 3
_MEANING = (
    "The score is the product of the item's and the history's embeddings, plus the item's bias. Higher is better; "
    "compare the scores of one history only."
)


class NextItemAnswers(PageAnswers):
    """The content of the page for a sequence model; items that it does not know are returned as ``unknown``."""

    def _load(self) -> tuple[Predictor, dict[str, Any]]:
        model, names = load_model(self.folder, CollectiveStrategy(Solo()))
        self._numbers = {name: number for number, name in enumerate(names)}
        most = min(_MOST_ITEMS, len(names))
        return Predictor(model, names, most), {
            "k": most,
            "shown": min(_ITEMS, most),
            "examples": names[:_EXAMPLES],  # the most frequent items come first
            "meaning": _MEANING,
            "labels": len(names),
            "levels": [],
            "scale": "none",
            "history": True,
        }

    def _answer(self, text: str, k: int) -> dict[str, Any]:
        history = [line.strip() for line in text.splitlines() if line.strip()]
        (found,) = self._model.of_names([history])
        best = list(zip(found.items, found.scores, strict=True))[:k]
        numbers = self._numbers
        return {
            "labels": [{"label": numbers[name], "name": name, "score": score, "path": []} for name, score in best],
            "unknown": [name for name in history if name not in numbers],
        }
