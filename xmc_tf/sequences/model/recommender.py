import math

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.initial_values import first_values
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.params import SequenceParams
from xmc_tf.sequences.data.batches import MASK, BatchShape
from xmc_tf.sequences.model.softmax import ByFrequency, ItemSoftmax, LogUniform, Sampler

_FAR = -1e9  # added to the attention scores of positions that may not be seen
_STDDEV = 0.02
TABLE = "items"


class Transformer(tf.Module):
    """A pre-norm transformer over a sequence of embeddings, either bidirectional (BERT4Rec) or causal (SASRec)."""

    def __init__(
        self, dim: int, heads: int, layers: int, max_len: int, causal: bool, *, dropout: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__(name="transformer")
        self.dim, self.heads, self.causal, self.dropout = dim, heads, causal, dropout
        draw = _Drawing(seed)
        self.positions = tf.Variable(draw([max_len, dim]), name="positions")
        self.layers = [_Layer(dim, heads, dropout, draw, number) for number in range(layers)]
        self.last = _Normalization(dim, "last")
        self.drop = _Dropout(dropout, 63)

    def __call__(self, embeddings: tf.Tensor, seen: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Return the states, ``[sequences, max_len, dim]``. ``seed`` is a pair of integers; None turns dropout off."""
        length = tf.shape(embeddings)[1]
        barred = tf.where(seen, 0.0, _FAR)[:, None, None, :]
        if self.causal:
            barred += _FAR * (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0))
        state = self.drop(embeddings + self.positions, seed)
        for layer in self.layers:
            state = layer(state, barred, seed)
        return self.last(state)


class _Drawing:
    """Draws the initial values of weights, which depend only on the seed and the order of the calls."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def __call__(self, shape: list[int]) -> tf.Tensor:
        self._count += 1
        return tf.random.stateless_truncated_normal(shape, [self._seed, self._count], stddev=_STDDEV, alg="philox")


class _Dense(tf.Module):
    def __init__(self, inputs: int, outputs: int, draw: _Drawing, name: str) -> None:
        super().__init__()
        self.kernel = tf.Variable(draw([inputs, outputs]), name=f"{name}/kernel")
        self.bias = tf.Variable(tf.zeros([outputs]), name=f"{name}/bias")

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        # Without reshaping, TensorFlow would multiply the sequences one by one.
        flat = tf.matmul(tf.reshape(values, [-1, self.kernel.shape[0]]), self.kernel) + self.bias
        return tf.reshape(flat, tf.concat([tf.shape(values)[:-1], [self.kernel.shape[1]]], axis=0))


class _Normalization(tf.Module):
    def __init__(self, dim: int, name: str) -> None:
        super().__init__()
        self.scale = tf.Variable(tf.ones([dim]), name=f"{name}/layernorm/scale")
        self.shift = tf.Variable(tf.zeros([dim]), name=f"{name}/layernorm/shift")

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
        return (values - mean) * tf.math.rsqrt(variance + 1e-6) * self.scale + self.shift


class _Dropout:
    def __init__(self, share: float, number: int) -> None:
        self._share, self._number = share, number

    def __call__(self, values: tf.Tensor, seed: tf.Tensor | None, part: int = 0) -> tf.Tensor:
        if seed is None or not self._share:
            return values
        own = tf.cast(seed, tf.int64) * 1000 + [0, 10 * self._number + part]
        return tf.nn.experimental.stateless_dropout(values, self._share, own, rng_alg="philox")


class _Layer(tf.Module):
    """A transformer layer: self-attention, followed by a feed-forward network."""

    def __init__(self, dim: int, heads: int, dropout: float, draw: _Drawing, number: int) -> None:
        super().__init__()
        self._heads, self._width = heads, dim // heads
        self.before_attention = _Normalization(dim, f"layer_{number}/before_attention")
        self.projection = _Dense(dim, 3 * dim, draw, f"layer_{number}/projection")
        self.joined = _Dense(dim, dim, draw, f"layer_{number}/joined")
        self.before_network = _Normalization(dim, f"layer_{number}/before_network")
        self.wide = _Dense(dim, 4 * dim, draw, f"layer_{number}/wide")
        self.narrow = _Dense(4 * dim, dim, draw, f"layer_{number}/narrow")
        self._drop = _Dropout(dropout, number)

    def __call__(self, state: tf.Tensor, barred: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        state += self._drop(self._attention(self.before_attention(state), barred, seed), seed, 1)
        hidden = tf.nn.gelu(self.wide(self.before_network(state)))
        return state + self._drop(self.narrow(hidden), seed, 2)

    def _attention(self, state: tf.Tensor, barred: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        shape = tf.shape(state)
        split = tf.reshape(self.projection(state), [shape[0], shape[1], 3, self._heads, self._width])
        query, key, value = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
        scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(self._width) + barred
        mixed = tf.matmul(self._drop(tf.nn.softmax(scores), seed, 3), value)
        return self.joined(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [shape[0], shape[1], -1]))


class Recommender(tf.Module):
    """A model that predicts the next item of a history, or the masked items.

    The item table is used for both the input embeddings and the output weights. Its rows hold an item's embedding,
    followed by its bias. Output vectors end with a constant 1, so that a score is the dot product of vector and row.
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
        """The variables except the item table, in a fixed order."""
        own = [] if self.shape.causal else [self.mask]
        return [*own, *self.transformer.trainable_variables]

    @property
    def trained(self) -> list[tf.Variable]:
        return [*self.replicated, self.table.variable]

    def states(self, inputs: tf.Tensor, seed: tf.Tensor | None = None) -> tf.Tensor:
        """Return the state of each position, ``[sequences, max_len, embed_dim]``. All ranks must call this method.

        Without a seed, there is no dropout.
        """
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
        """Return the loss of each position with a target (an item, not ``PAD``). All ranks must call this method.

        ``seed`` holds the training seed and the step; they determine the dropout and the sample.
        """
        rank = self.strategy.rank()
        states = self.states(inputs, tf.stack([seed[0] * 1009 + rank, seed[1]]))
        at = tf.where(targets >= 0)
        vectors = with_one(tf.gather_nd(states, at))
        return self.softmax.losses(vectors, tf.cast(tf.gather_nd(targets, at), tf.int64), seed)

    def last_vectors(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the vectors that score the next items, ``[sequences, embed_dim + 1]``. All ranks must call this."""
        return with_one(self.states(inputs)[:, -1])


def shape_of(params: SequenceParams) -> BatchShape:
    return BatchShape(params.max_len, params.model == "sasrec", params.mask_prob)


def with_one(vectors: tf.Tensor) -> tf.Tensor:
    """Append a constant 1 to the vectors, as the factor of the bias."""
    return tf.concat([vectors, tf.ones([tf.shape(vectors)[0], 1])], axis=1)


def _item_table(strategy: CollectiveStrategy, params: SequenceParams, nr_items: int) -> ShardedTable:
    """Create the item table, either sharded over the ranks or complete on each rank."""
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
