import math

import tensorflow as tf

_FAR = -1e9  # added to the attention scores of positions that may not be seen
_STDDEV = 0.02


class Transformer(tf.Module):
    """A pre-norm transformer over a sequence of embeddings, in both directions (BERT4Rec) or one (SASRec)."""

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
        """Return the states, ``[sequences, max_len, dim]``. The seed is two integers; None: no dropout."""
        length = tf.shape(embeddings)[1]
        barred = tf.where(seen, 0.0, _FAR)[:, None, None, :]
        if self.causal:
            barred += _FAR * (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0))
        state = self.drop(embeddings + self.positions, seed)
        for layer in self.layers:
            state = layer(state, barred, seed)
        return self.last(state)


class _Drawing:
    """Initial values of one weight after the other, which depend on the seed alone."""

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
    """Self-attention, then the feed-forward network."""

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
