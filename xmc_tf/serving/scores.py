"""What becomes of raw scores, and the best of them, as TensorFlow ops: the same as in the rankers' own search."""

import tensorflow as tf

from xmc_tf.linear.postprocess import post_processor_code

_LARGEST_NODE = 2**31 - 1
# Below every score: no candidate.
NOTHING = -(2**63)


def additive(name: str) -> bool:
    """Whether scores add along the path, as logarithms do."""
    return name.startswith("log-")


def chained(name: str, raw: tf.Tensor, parent: tf.Tensor) -> tf.Tensor:
    """The score of nodes on their paths from the root.

    In double precision in between, as the compiled search does it: equal scores are frequent (a hinge makes all that
    is beyond its margin 1), and are to be equal here too. Only scores below 1e-38 are 0 here: TensorFlow
    computes without the numbers between.

    Args:
        name: the post-processor.
        raw: float32 raw scores.
        parent: float32 the parents' scores, of a shape that broadcasts to theirs.
    """
    post_processor_code(name)  # refuses names that are none
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
    """One number for a node and its score: the better the node the larger, of equal scores the lower node first.

    Args:
        scores: float32.
        nodes: int32, of the same shape.
        there: whether it is a candidate at all.
    """
    bits = tf.bitcast(scores, tf.int32)
    bits = tf.where(tf.equal(bits, -(2**31)), 0, bits)  # of the two zeros
    # The bits of negative numbers ascend as these fall.
    ascending = tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, _LARGEST_NODE), bits)
    keys = tf.bitwise.left_shift(tf.cast(ascending, tf.int64), tf.constant(32, tf.int64))
    return tf.where(there, keys + tf.cast(_LARGEST_NODE - nodes, tf.int64), NOTHING)


def unrank(keys: tf.Tensor) -> tf.Tensor:
    """Score and node of what :func:`rank` made; node -1 and score 0 for what is no candidate.

    Returns:
        float32 scores and int32 nodes.
    """
    there = tf.not_equal(keys, NOTHING)
    ascending = tf.cast(tf.bitwise.right_shift(keys, tf.constant(32, tf.int64)), tf.int32)
    bits = tf.where(ascending < 0, tf.bitwise.bitwise_xor(ascending, _LARGEST_NODE), ascending)
    low = tf.cast(tf.bitwise.bitwise_and(keys, tf.constant(_LARGEST_NODE, tf.int64)), tf.int32)
    return (
        tf.where(there, tf.bitcast(bits, tf.float32), 0.0),
        tf.where(there, _LARGEST_NODE - low, -1),
    )
