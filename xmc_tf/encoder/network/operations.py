"""The operations of a layer: dense products, normalization, activation and dropout."""

import math
from collections.abc import Callable
from functools import lru_cache

import tensorflow as tf

# "gelu_new" and "gelu_pytorch_tanh" are the approximation by tanh; "gelu" is exact.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": tf.nn.gelu,
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), lambda x: tf.nn.gelu(x, approximate=True)),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.tanh,
}
_BYTE = 256
_MOST_CALLS = 1 << 16  # of dropout in one network


class Operations:
    """Operations for inference, made of standard TensorFlow ops, which every server supports."""

    def __init__(self, activation: str, epsilon: float) -> None:
        self._activation, self._epsilon = ACTIVATIONS[activation], epsilon

    def activate(self, x: tf.Tensor) -> tf.Tensor:
        return self._activation(x)

    def named_activation(self, name: str) -> Callable[[tf.Tensor], tf.Tensor]:
        return ACTIVATIONS[name]

    def dense(self, x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
        out = tf.matmul(tf.cast(x, dtype), tf.cast(kernel, dtype))
        return out if bias is None else tf.nn.bias_add(out, tf.cast(bias, dtype))

    def normalize(self, x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor | None) -> tf.Tensor:
        """Normalize each row to mean 0 and variance 1, multiply by the scale and add the shift; float32."""
        mean, variance = tf.nn.moments(x, [1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, shift, scale, self._epsilon)

    def normalize_size(self, x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        """Divide each row by the root of its mean square and multiply by the scale (RMSNorm); float32."""
        x = tf.cast(x, tf.float32)
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + self._epsilon) * scale

    def add_and_normalize(self, x: tf.Tensor, y: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor | None) -> tf.Tensor:
        """Return ``normalize(x + y)``; ``y`` may be in half precision."""
        return self.normalize(x + tf.cast(y, tf.float32), scale, shift)

    def drop(self, x: tf.Tensor, rate: float) -> tf.Tensor:
        """Return ``x`` unchanged, because dropout applies to training only."""
        return x


class TrainingOperations(Operations):
    """Operations for training, with custom gradients that read memory less often."""

    # `compiled`: XLA compiles each into one loop, for products in half precision. The products stay with oneDNN, whose
    # instructions for them XLA does not use.
    def __init__(self, activation: str, epsilon: float, seed: tf.Tensor, compiled: bool) -> None:
        super().__init__(activation, epsilon)
        self._seed, self._calls = seed * tf.constant([1, _MOST_CALLS], tf.int64), 0
        self._activation, self._slope, self._forward, self._backward = _parts(activation, epsilon, compiled)

    def dense(self, x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
        if bias is None or dtype == tf.float32:
            return super().dense(x, kernel, bias, dtype)
        # The added axis keeps TensorFlow from fusing product and bias. In half precision, oneDNN's fused product takes
        # longer than both, if the caches are full of what the gradients need.
        out = tf.expand_dims(super().dense(x, kernel, None, dtype), 0)
        return tf.squeeze(tf.nn.bias_add(out, tf.cast(bias, dtype)), 0)

    def activate(self, x: tf.Tensor) -> tf.Tensor:
        return tf.custom_gradient(lambda x: (self._activation(x), lambda up: self._slope(x, up)))(x)

    def normalize(self, x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor | None) -> tf.Tensor:
        return self.add_and_normalize(x, None, scale, shift)

    def add_and_normalize(
        self, x: tf.Tensor, y: tf.Tensor | None, scale: tf.Tensor, shift: tf.Tensor | None
    ) -> tf.Tensor:
        shifts = tf.zeros_like(scale) if shift is None else tf.convert_to_tensor(shift)
        scale = tf.convert_to_tensor(scale)
        terms = [x] if y is None else [x, y]

        @tf.custom_gradient
        def normalized(scale: tf.Tensor, shifts: tf.Tensor, *terms: tf.Tensor) -> tuple:
            out, centered, inverse = self._forward(scale, shifts, *terms)

            def gradient(up: tf.Tensor) -> tuple:
                down, of_scale, of_shift = self._backward(up, scale, centered, inverse)
                return of_scale, of_shift, *(tf.cast(down, term.dtype) for term in terms)

            return out, gradient

        return normalized(scale, shifts, *terms)

    def drop(self, x: tf.Tensor, rate: float) -> tf.Tensor:
        """Set about the share ``rate`` of the numbers in ``x``, chosen at random, to 0, and scale the others up."""
        dropped = round(rate * _BYTE)
        if not dropped:
            return x
        self._calls += 1
        seed = self._seed + tf.constant([0, self._calls], tf.int64)
        words = tf.random.stateless_uniform([(tf.size(x) + 3) // 4], seed, None, None, tf.uint32, alg="philox")
        bits = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[: tf.size(x)]
        kept = tf.reshape(bits >= dropped, tf.shape(x))
        factor = tf.cast(_BYTE / (_BYTE - dropped), x.dtype)

        def thin(one: tf.Tensor) -> tf.Tensor:
            return one * (tf.cast(kept, one.dtype) * factor)

        return tf.ensure_shape(tf.custom_gradient(lambda x: (thin(x), thin))(x), x.shape)


@lru_cache(maxsize=32)  # XLA keeps what it has compiled for each of these objects
def _parts(activation: str, epsilon: float, compiled: bool) -> tuple[Callable, ...]:
    """Return four functions: the activation, its gradient, normalization, and its gradient."""

    def normalized(scale: tf.Tensor, shift: tf.Tensor, *terms: tf.Tensor) -> tuple:
        x = terms[0]
        for term in terms[1:]:
            x = x + tf.cast(term, tf.float32)
        centered = x - tf.reduce_mean(x, axis=1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=1, keepdims=True) + epsilon)
        return centered * inverse * scale + shift, centered, inverse

    def gradient(up: tf.Tensor, scale: tf.Tensor, centered: tf.Tensor, inverse: tf.Tensor) -> tuple:
        unit, scaled = centered * inverse, up * scale
        down = inverse * (
            scaled
            - tf.reduce_mean(scaled, axis=1, keepdims=True)
            - unit * tf.reduce_mean(scaled * unit, axis=1, keepdims=True)
        )
        return down, tf.reduce_sum(up * unit, axis=0), tf.reduce_sum(up, axis=0)

    parts = ACTIVATIONS[activation], _slope_of(activation), normalized, gradient
    return tuple(tf.function(part, jit_compile=True, autograph=False) for part in parts) if compiled else parts


def _slope_of(name: str) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return a function that maps an activation's input and output gradient to its input gradient."""

    def of_gelu(x: tf.Tensor, up: tf.Tensor) -> tf.Tensor:
        x32 = tf.cast(x, tf.float32)
        slope = 0.5 * (1.0 + tf.math.erf(x32 * math.sqrt(0.5)))
        slope += x32 * tf.exp(-0.5 * tf.square(x32)) * (1 / math.sqrt(2 * math.pi))
        return tf.cast(tf.cast(up, tf.float32) * slope, x.dtype)

    def of_any(x: tf.Tensor, up: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ACTIVATIONS[name](x)
        return tape.gradient(y, x, output_gradients=up)

    return of_gelu if name == "gelu" else of_any
