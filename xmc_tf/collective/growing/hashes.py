"""Hashes of ids, which determine an id's owner, its place in an index, and its initial values.

A hash is a number of 63 bits. Whole numbers have different hashes, because every operation can be inverted. Strings are
first hashed by TensorFlow. All operations are standard ones, so that a server computes the same hashes.
"""

import tensorflow as tf

from xmc_tf.collective.tables.bags import Ids
from xmc_tf.common.errors import InputError

# Hashes are in [0, HASHES]: the numbers of an int64 that are not negative.
HASHES = 2**63 - 1
_SHIFTS = (32, 29, 32)
_FACTORS = (0x4BE98134A5976FD3, 0x3BBF2A01CC9AB4A1)  # odd, so that a product modulo 2^63 can be inverted


def hash_ids(ids: Ids) -> Ids:
    """Return the hashes of strings or whole numbers, in the structure of ``ids``; -1 has the hash of -1 + 2^63."""
    if isinstance(ids, tf.SparseTensor):
        return ids.with_values(_hash(ids.values))
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(_hash(ids.flat_values))
    return _hash(tf.convert_to_tensor(ids))


def _hash(ids: tf.Tensor) -> tf.Tensor:
    if ids.dtype == tf.string:
        ids = tf.strings.to_hash_bucket_fast(ids, HASHES)  # "will never change" (TensorFlow's documentation)
    elif not ids.dtype.is_integer:
        raise InputError("ids of a growing table", expected="strings or whole numbers", received=ids.dtype.name)
    mixed = tf.bitwise.bitwise_and(tf.cast(ids, tf.int64), HASHES)
    for shift, factor in zip(_SHIFTS, (*_FACTORS, None), strict=True):
        mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, tf.constant(shift, tf.int64)))
        if factor is not None:
            mixed = tf.bitwise.bitwise_and(mixed * tf.constant(factor, tf.int64), HASHES)
    return mixed
