import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.initial_values import first_values
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.params import SequenceParams
from xmc_tf.sequences.data.batches import BatchShape
from xmc_tf.sequences.data.windows import MASK
from xmc_tf.sequences.model.softmax import ByFrequency, ItemSoftmax, LogUniform, Sampler
from xmc_tf.sequences.model.transformer import Transformer

TABLE = "items"
_STDDEV = 0.02


class Recommender(tf.Module):
    """A model that predicts the next item of a history, or masked ones.

    The item table is both the input's embedding and the output's weights: a row has the item's embedding, then its
    bias. Vectors end with a constant 1, so that a score is the product of both.
    """

    def __init__(
        self, strategy: CollectiveStrategy, params: SequenceParams, nr_items: int, counts: np.ndarray | None = None
    ) -> None:
        super().__init__(name="recommender")
        self.strategy, self.params, self.nr_items = strategy, params, nr_items
        self.table = _item_table(strategy, params, nr_items)
        with strategy.scope():
            drawn = tf.random.stateless_truncated_normal(
                [params.embed_dim], [params.seed, 0], stddev=_STDDEV, alg="philox"
            )
            self.mask = tf.Variable(drawn, name="mask")
            self.transformer = Transformer(
                params.embed_dim, params.n_heads, params.n_layers, params.max_len, self.shape.causal,
                dropout=params.dropout, seed=params.seed,
            )  # fmt: skip
        sampler: Sampler | None = None
        if params.loss == "sampled" and params.sampling == "frequency":
            assert counts is not None
            sampler = ByFrequency(counts, params.negatives)
        elif params.loss == "sampled":
            sampler = LogUniform(nr_items, params.negatives)
        self.softmax = ItemSoftmax(self.table, sampler, params.route, params.wire)  # type: ignore[arg-type]

    @property
    def shape(self) -> BatchShape:
        return shape_of(self.params)

    @property
    def replicated(self) -> list[tf.Variable]:
        """The variables besides the item table, in a fixed order."""
        own = [] if self.shape.causal else [self.mask]
        return [*own, *self.transformer.trainable_variables]

    @property
    def trained(self) -> list[tf.Variable]:
        return [*self.replicated, self.table.variable]

    def states(self, inputs: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Return the state of each position, ``[sequences, max_len, embed_dim]``; collective. No seed, no dropout."""
        inputs = tf.cast(inputs, tf.int64)
        at = tf.where(inputs >= 0)
        rows = lookup(self.table, tf.gather_nd(inputs, at), wire=self.params.wire)
        shape = tf.concat([tf.shape(inputs, tf.int64), [self.params.embed_dim]], axis=0)
        embeddings = tf.scatter_nd(at, rows[:, :-1], shape) * np.float32(np.sqrt(self.params.embed_dim))
        if not self.shape.causal:
            embeddings += tf.where((inputs == MASK)[:, :, None], self.mask * np.sqrt(self.params.embed_dim), 0.0)
        embeddings = tf.ensure_shape(embeddings, [None, self.params.max_len, self.params.embed_dim])
        return self.transformer(embeddings, (inputs >= 0) | (inputs == MASK), seed)

    def losses(self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return the loss of each position with a target (not negative); collective.

        ``seed`` holds the training's seed and the step, which determine dropout and sample.
        """
        rank = self.strategy.rank()
        states = self.states(inputs, tf.stack([seed[0] * 1009 + rank, seed[1]]))
        at = tf.where(targets >= 0)
        vectors = with_one(tf.gather_nd(states, at))
        return self.softmax.losses(vectors, tf.cast(tf.gather_nd(targets, at), tf.int64), seed)

    def last_vectors(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the vectors that score the next items, ``[sequences, embed_dim + 1]``; collective."""
        return with_one(self.states(inputs)[:, -1])


def shape_of(params: SequenceParams) -> BatchShape:
    return BatchShape(params.max_len, params.model == "sasrec", params.mask_prob)


def with_one(vectors: tf.Tensor) -> tf.Tensor:
    """Return vectors with a constant 1 at the end, which multiplies the bias."""
    return tf.concat([vectors, tf.ones([tf.shape(vectors)[0], 1])], axis=1)


def _item_table(strategy: CollectiveStrategy, params: SequenceParams, nr_items: int) -> ShardedTable:
    """Return the item table: this rank's rows, or all of them."""
    embeddings = first_values(
        keras.initializers.TruncatedNormal(stddev=_STDDEV), TABLE, nr_items, params.embed_dim, params.seed
    )
    assert embeddings is not None

    def rows(numbers: np.ndarray) -> np.ndarray:
        values = embeddings(int(numbers[0]), int(numbers[-1]) + 1)
        return tf.pad(values, [[0, 0], [0, 1]]).numpy()

    if not params.model_parallel:
        return make_table(TABLE, nr_items, params.embed_dim + 1, initializer=rows, seed=params.seed)
    with strategy.embedding_scope(shard_above=0):
        return strategy.table(TABLE, nr_items, params.embed_dim + 1, rows)
