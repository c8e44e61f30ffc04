from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.sequences.data.batches import histories
from xmc_tf.sequences.model.ranking import best_items
from xmc_tf.sequences.model.recommender import Recommender


class NextItems(NamedTuple):
    """The next items of a history, best first."""

    items: list[str]
    scores: list[float]


class Predictor:
    """Predicts the next items of histories. Unknown items are left out of a history."""

    def __init__(self, model: Recommender, names: Sequence[str], k: int) -> None:
        self._model, self._names = model, names
        self._numbers = {name: number for number, name in enumerate(names)}
        inputs = tf.TensorSpec([None, model.params.max_len], tf.int32)
        self._best = tf.function(
            lambda rows: best_items(model.table, model.last_vectors(rows), k), input_signature=[inputs], autograph=False
        )

    def of_names(self, given: Sequence[Sequence[str]]) -> list[NextItems]:
        """Return the predictions for this rank's histories of names, if any; collective."""
        known = [[self._numbers[name] for name in one if name in self._numbers] for one in given]
        return self.of_numbers([np.array(one, np.int32) for one in known])

    def of_numbers(self, given: Sequence[np.ndarray]) -> list[NextItems]:
        """Return the predictions for this rank's histories of item numbers; collective."""
        ends = np.cumsum([len(one) for one in given], dtype=np.int64)
        begins = ends - [len(one) for one in given] if len(given) else ends
        flat = np.concatenate([*given, np.zeros(1, np.int32)])
        inputs = histories(flat, begins.astype(np.int64), ends, self._model.shape)
        best = self._best(inputs)
        every = zip(best.items.numpy().tolist(), best.scores.numpy().tolist(), strict=True)
        return [NextItems([self._names[item] for item in items], scores) for items, scores in every]
