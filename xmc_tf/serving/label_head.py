"""A fine-tuned label head in the served graph, and the averaging of its scores with the rankers' scores."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.serving.query import Query, TextWindows
from xmc_tf.serving.search import Beam, MeanSearch, TreeSearch, best_of, chained, rank, search_deeper

WINDOWS_AT_ONCE = 256


class LabelHeadParts(NamedTuple):
    rows: np.ndarray  # float32 [labels, dim + 1]: weights, and the bias last
    scale: float  # factor applied to embeddings of unit norm
    post_processor: str
    pool: int  # number of best labels of rankers and head that are averaged; a missing label counts as 0
    method: str  # "average" or "root_average"
    new: np.ndarray | None = None  # bool [labels]: labels that the rankers score alone; None: there are none


class BlendedSearch:
    """A search that averages the rankers' scores with the head's, which are the maximum over a document's windows."""

    def __init__(
        self,
        search: TreeSearch | MeanSearch,
        head: LabelHeadParts,
        rows: tf.Variable,
        length: float,
        new: tf.Variable | None = None,
    ) -> None:
        self._search, self._head, self._rows, self._new = search, head, rows, new
        self._factor = head.scale / length

    def __call__(self, query: Query, most: int) -> list[Beam]:
        return search_deeper(self._both, query, most, self._head.pool)

    def _both(self, query: Query, size: int) -> list[Beam]:
        beams = self._search(query, min(size, self._rows.shape[0]))
        return [*beams[:-1], self._mean([self._best_of_head(query, size), beams[-1]], size)]

    def _best_of_head(self, query: Query, most: int) -> Beam:
        assert query.dense is not None
        rows = self._rows.value()  # read once, because each read copies it
        if query.windows is None:
            raw = _scores(query.dense * self._factor, rows)
        else:
            raw = self._largest_of_windows(query.windows, query.count, rows)
        scores = chained(self._head.post_processor, raw, tf.ones([]))
        nodes = tf.broadcast_to(tf.range(rows.shape[0]), tf.shape(scores))
        return best_of(rank(scores, nodes, tf.ones_like(nodes, tf.bool)), min(most, rows.shape[0]))

    def _largest_of_windows(self, windows: TextWindows, count: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Return each label's maximum normalized raw score over a document's windows: float32 [documents, labels]."""
        # As in `xmc_tf.matcher.predict_levels`, the scores of each window are shifted so that all windows of a document
        # have the same log-sum-exp, the mean of their own. Post-processors are monotone, so they may follow. Only a few
        # windows are scored at a time, because long texts have many.
        size = tf.shape(windows.vectors)[0]

        def score(low: tf.Tensor, largest: tf.Tensor, totals: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            high = tf.minimum(low + WINDOWS_AT_ONCE, size)
            raw = _scores(windows.vectors[low:high] * self._head.scale, rows)
            total = tf.reduce_logsumexp(raw, axis=1)
            at = windows.document[low:high, None]
            largest = tf.tensor_scatter_nd_max(largest, at, raw - total[:, None])
            return high, largest, tf.tensor_scatter_nd_add(totals, at, total)

        start = [0, tf.fill([count, rows.shape[0]], tf.float32.min), tf.zeros([count])]
        _, largest, totals = tf.while_loop(lambda low, *_: low < size, score, start, parallel_iterations=1)
        counts = tf.math.unsorted_segment_sum(tf.ones([size]), windows.document, count)
        return largest + (totals / counts)[:, None]

    def _mean(self, beams: Sequence[Beam], most: int) -> Beam:
        """Return the best labels by the (root) average of their scores; a label counts as 0 in beams that lack it."""
        count, roots = tf.shape(beams[0].nodes)[0], self._head.method == "root_average"
        shape = [count, self._rows.shape[0]]
        total, there = tf.zeros(shape), tf.zeros(shape, tf.int32)
        for number, beam in enumerate(beams):
            some = tf.where(beam.nodes >= 0)
            nodes = tf.gather_nd(beam.nodes, some)
            at = tf.stack([tf.cast(some[:, 0], tf.int32), nodes], axis=1)
            scores = tf.gather_nd(beam.scores, some)
            scores = tf.sqrt(tf.maximum(scores, 0.0)) if roots else scores
            times = self._times(nodes, of_head=number == 0)
            total = tf.tensor_scatter_nd_add(total, at, scores * tf.cast(times, tf.float32) / len(beams))
            there = tf.tensor_scatter_nd_add(there, at, times)
        total = tf.square(total) if roots else total
        nodes = tf.broadcast_to(tf.range(self._rows.shape[0]), shape)
        return best_of(rank(total, nodes, there > 0), min(most, self._rows.shape[0]))

    def _times(self, nodes: tf.Tensor, *, of_head: bool) -> tf.Tensor:
        """Return the weight of each label's score in the mean of head and rankers: only rankers score new labels."""
        if self._new is None:
            return tf.ones_like(nodes)
        new = tf.cast(tf.gather(self._new, nodes), tf.int32)
        return 1 - new if of_head else 1 + new


def _scores(vectors: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.matmul(vectors, rows[:, :-1], transpose_b=True) + rows[:, -1]
