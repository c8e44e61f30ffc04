"""Rank all items and find the best ones. Each rank of a run scores its own items for the positions of all ranks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.tables.row_exchange import exchange
from xmc_tf.collective.tables.table import ShardedTable, serving_or_sharded
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.sequences.data.batches import histories
from xmc_tf.sequences.model.recommender import Recommender
from xmc_tf.sequences.model.softmax import gather_positions

# Bytes of scores that are in memory at a time; they should fit into the cache. Tests lower this.
CHUNK_BYTES = 4 * 2**20
_TINY = np.finfo(np.float32).tiny  # TensorFlow treats smaller numbers as 0
CUTOFFS = (10, 20, 50)
DECIDING = "NDCG@10"  # the metric by which the best checkpoint is chosen


class BestItems(NamedTuple):
    """The best items of each sequence, in descending order of score."""

    items: tf.Tensor  # item numbers; -1 beyond the number of items
    scores: tf.Tensor


def ranks_of(table: ShardedTable, vectors: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the place of each target in the ranking of all items, from 1. All ranks must call this function.

    Of items with equal scores, the one with the smallest number comes first.
    """
    everyone, wanted, _, counts = gather_positions(table, vectors, targets)
    positions = tf.shape(everyone)[0]
    local = wanted - table.start
    own = (local >= 0) & (local < table.local_rows)

    def target_scores(low: tf.Tensor, scores: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        # From the same product as the scores of the other items, so that equal rows have equal scores.
        at = tf.cast(local, tf.int32) - low
        here = own & (at >= 0) & (at < tf.shape(scores)[1])
        value = tf.gather(scores, tf.where(here, at, 0), batch_dims=1)
        return tf.where(here, value, found)

    score = _over_chunks(table, everyone, target_scores, tf.zeros([positions]))
    if table.size > 1:
        score = operations.allreduce_sum(score, f"{table.name}/target_scores")

    # Items with smaller numbers also come first if they have the same score.
    equal_too = tf.where(score == 0.0, -_TINY, tf.math.nextafter(score, tf.constant(-np.inf)))

    def before(low: tf.Tensor, scores: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        at, width = tf.cast(local, tf.int32) - low, tf.shape(scores)[1]
        limit = tf.where(at >= width, equal_too, score)
        found += tf.math.count_nonzero(scores > limit[:, None], axis=1)
        # The few positions whose target is in this chunk.
        mixed = tf.where((at > 0) & (at < width))[:, 0]
        smaller = tf.range(width)[None, :] < tf.gather(at, mixed)[:, None]
        equal = smaller & (tf.gather(scores, mixed) == tf.gather(score, mixed)[:, None])
        return tf.tensor_scatter_nd_add(found, mixed[:, None], tf.math.count_nonzero(equal, axis=1))

    ahead = _over_chunks(table, everyone, before, tf.zeros([positions], tf.int64))
    if table.size == 1:
        return ahead + 1
    ahead = operations.allreduce_sum(ahead, f"{table.name}/ahead")
    first = tf.reduce_sum(counts[: table.rank])
    return ahead[first : first + counts[table.rank]] + 1


def best_items(table: ShardedTable, vectors: tf.Tensor, k: int) -> BestItems:
    """Return the ``k`` best items of each position. All ranks must call this function.

    Of items with equal scores, the one with the smallest number comes first.
    """
    table = serving_or_sharded(table)
    k = min(k, table.rows)
    nobody = tf.zeros(tf.shape(vectors)[:1], tf.int64)
    everyone, _, sent, counts = gather_positions(table, vectors, nobody)
    positions = tf.shape(everyone)[0]
    none = (tf.fill([positions, k], -np.inf), tf.fill([positions, k], tf.constant(-1, tf.int64)))

    def merged(low: tf.Tensor, scores: tf.Tensor, found: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        numbers = tf.range(low, low + tf.shape(scores)[1]) + table.start
        numbers = tf.tile(tf.cast(numbers, tf.int64)[None, :], [positions, 1])
        # top_k takes the first of equals, and earlier chunks have smaller numbers.
        return _top(tf.concat([found[0], scores], axis=1), tf.concat([found[1], numbers], axis=1), k)

    scores, items = _over_chunks(table, everyone, merged, none)
    if table.size == 1:
        return BestItems(items, scores)
    # Items are sent as integers, because float32 would lose digits.
    moved, _ = operations.alltoall(items, counts, f"{table.name}/best_items")
    back = exchange(scores, counts, sent, rank=table.rank, name=f"{table.name}/best_scores", kind="scores")
    shape = [table.size, tf.shape(vectors)[0], k]
    scores = tf.reshape(tf.transpose(tf.reshape(back, shape), [1, 0, 2]), [-1, table.size * k])
    items = tf.reshape(tf.transpose(tf.reshape(moved, shape), [1, 0, 2]), [-1, table.size * k])
    scores, items = _top(scores, items, k)
    return BestItems(items, scores)


def _top(scores: tf.Tensor, items: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    best = tf.math.top_k(scores, k)
    return best.values, tf.gather(items, best.indices, batch_dims=1)


def _over_chunks(table: ShardedTable, vectors: tf.Tensor, step: Any, first: Any) -> Any:
    """Apply ``step(low, scores, found)`` to one chunk of the table after another, and return the last result."""
    rows = table.local_rows if table.size > 1 else table.rows
    size = tf.maximum(1, tf.cast(CHUNK_BYTES // 4, tf.int32) // tf.maximum(1, tf.shape(vectors)[0]))

    def body(low: tf.Tensor, found: Any) -> tuple[tf.Tensor, Any]:
        part = tf.gather(table.variable, tf.range(low, tf.minimum(low + size, rows)))
        return low + size, step(low, tf.matmul(vectors, part, transpose_b=True), found)

    _, found = tf.while_loop(lambda low, _: low < rows, body, (0, first), parallel_iterations=1)
    return found


def ranking_metrics(parts: Iterable[np.ndarray], communicator: Communicator) -> dict[str, float]:
    """Return Recall@k, NDCG@k and MRR over all ranks. All ranks must call this function.

    ``parts`` are arrays with the places of this rank's held-out items in the ranking.
    """
    sums = np.zeros(2 * len(CUTOFFS) + 2)
    for ranks in parts:
        gains = 1.0 / np.log2(ranks + 1.0)
        values = [np.sum(ranks <= k) for k in CUTOFFS] + [np.sum(gains * (ranks <= k)) for k in CUTOFFS]
        sums += np.array([*values, np.sum(1.0 / ranks), len(ranks)])
    *means, count = communicator.allreduce_array(sums)
    names = [*(f"Recall@{k}" for k in CUTOFFS), *(f"NDCG@{k}" for k in CUTOFFS), "MRR"]
    return {name: float(value / max(count, 1)) for name, value in zip(names, means, strict=True)}


class Ranker:
    """Finds the places of held-out items in the ranking of all items."""

    def __init__(self, model: Recommender) -> None:
        self._model = model
        self._ranks = tf.function(
            lambda inputs, targets: ranks_of(model.table, model.last_vectors(inputs), targets), autograph=False,
            input_signature=[tf.TensorSpec([None, model.params.max_len], tf.int32), tf.TensorSpec([None], tf.int64)],
        )  # fmt: skip

    def ranks(self, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> Iterator[np.ndarray]:
        """Yield the places of the held-out items of each batch. All ranks must have the same number of batches."""
        for inputs, targets in batches:
            yield self._ranks(inputs, targets.astype(np.int64)).numpy()

    def metrics(self, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
        """Return the metrics over the batches of all ranks. All ranks must call this method."""
        return ranking_metrics(self.ranks(batches), self._model.strategy.communicator)


class NextItems(NamedTuple):
    """The predicted next items of a history and their scores, best first."""

    items: list[str]
    scores: list[float]


class Predictor:
    """Predicts the next items of histories. Unknown items in a history are ignored."""

    def __init__(self, model: Recommender, names: Sequence[str], k: int) -> None:
        self._model, self._names = model, names
        self._numbers = {name: number for number, name in enumerate(names)}
        inputs = tf.TensorSpec([None, model.params.max_len], tf.int32)
        self._best = tf.function(
            lambda rows: best_items(model.table, model.last_vectors(rows), k), input_signature=[inputs], autograph=False
        )

    def of_names(self, given: Sequence[Sequence[str]]) -> list[NextItems]:
        """Predict the next items for this rank's histories of item names, if any. All ranks must call this method."""
        known = [[self._numbers[name] for name in one if name in self._numbers] for one in given]
        return self.of_numbers([np.array(one, np.int32) for one in known])

    def of_numbers(self, given: Sequence[np.ndarray]) -> list[NextItems]:
        """Predict the next items for this rank's histories of item numbers. All ranks must call this method."""
        ends = np.cumsum([len(one) for one in given], dtype=np.int64)
        begins = ends - [len(one) for one in given] if len(given) else ends
        flat = np.concatenate([*given, np.zeros(1, np.int32)])
        inputs = histories(flat, begins.astype(np.int64), ends, self._model.shape)
        best = self._best(inputs)
        every = zip(best.items.numpy().tolist(), best.scores.numpy().tolist(), strict=True)
        return [NextItems([self._names[item] for item in items], scores) for items, scores in every]
