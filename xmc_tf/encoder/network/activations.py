"""The activation functions of feed-forward networks, by the names that configurations use."""

from collections.abc import Callable

import tensorflow as tf

# "gelu_new" and "gelu_pytorch_tanh" are the approximation by tanh; "gelu" is exact.
ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "gelu": tf.nn.gelu,
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_fast": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "swish": tf.nn.silu,
    "tanh": tf.tanh,
}
