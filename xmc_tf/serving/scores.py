"""Post-processing and ranking of raw scores as TensorFlow ops, equal to the rankers' own search."""

import tensorflow as tf

from xmc_tf.rankers.postprocess import post_processor_code

_LARGEST_NODE = 2**31 - 1
NOTHING = -(2**63)  # below every score: not a candidate


def additive(name: str) -> bool:
    """Return whether scores add along the path, as logarithms do."""
    return name.startswith("log-")


def chained(name: str, raw: tf.Tensor, parent: tf.Tensor) -> tf.Tensor:
    """Return the float32 scores of nodes along their paths from the root."""
    # Double precision, as in the compiled search: equal scores are frequent (a hinge maps all values beyond its margin
    # to 1) and must be equal here too. Only scores below 1e-38 differ: TensorFlow flushes subnormal numbers to 0.
    post_processor_code(name)  # raises an error for unknown names
    if name == "noop":
        return raw
    raw, parent = tf.cast(raw, tf.float64), tf.cast(parent, tf.float64)
    if name == "sigmoid":
        own = 1.0 / (1.0 + tf.exp(-raw))
    elif name == "log-sigmoid":
        own = tf.minimum(raw, 0.0) - tf.math.log1p(tf.exp(-tf.abs(raw)))
    else:
        gap = tf.maximum(1.0 - raw, 0.0)
        loss = gap
        for _ in range(int(name.removesuffix("-hinge")[-1]) - 1):
            loss *= gap
        own = -loss if additive(name) else tf.exp(-loss)
    return tf.cast(own + parent if additive(name) else own * parent, tf.float32)


def rank(scores: tf.Tensor, nodes: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """Return a sort key for nodes and scores: higher scores are larger; on equal scores, lower nodes are larger."""
    bits = tf.bitcast(scores, tf.int32)
    bits = tf.where(tf.equal(bits, -(2**31)), 0, bits)  # -0.0 becomes 0.0
    # The bits of negative numbers rise as the numbers fall.
    ascending = tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, _LARGEST_NODE), bits)
    keys = tf.bitwise.left_shift(tf.cast(ascending, tf.int64), tf.constant(32, tf.int64))
    return tf.where(there, keys + tf.cast(_LARGEST_NODE - nodes, tf.int64), NOTHING)


def unrank(keys: tf.Tensor) -> tf.Tensor:
    """Return the float32 score and int32 node of each key of :func:`rank`; node -1 and score 0 if not a candidate."""
    there = tf.not_equal(keys, NOTHING)
    ascending = tf.cast(tf.bitwise.right_shift(keys, tf.constant(32, tf.int64)), tf.int32)
    bits = tf.where(ascending < 0, tf.bitwise.bitwise_xor(ascending, _LARGEST_NODE), ascending)
    low = tf.cast(tf.bitwise.bitwise_and(keys, tf.constant(_LARGEST_NODE, tf.int64)), tf.int32)
    return (
        tf.where(there, tf.bitcast(bits, tf.float32), 0.0),
        tf.where(there, _LARGEST_NODE - low, -1),
    )
