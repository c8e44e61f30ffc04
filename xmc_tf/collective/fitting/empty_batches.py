"""Empty batches, which ranks without further batches take: Keras' operations must accept them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import nn
from keras.src.backend.tensorflow import numpy as keras_numpy

from xmc_tf.collective.blocks import patched


@contextmanager
def empty_batches_allowed() -> Iterator[None]:
    """Change operations of Keras in the block. Batches with examples give the same as before."""
    convolutions = ("conv", "depthwise_conv", "separable_conv", "conv_transpose")
    extremes = {"max": tf.reduce_max, "min": tf.reduce_min}
    of_numpy = {name: _extreme(getattr(keras_numpy, name), reduce) for name, reduce in extremes.items()}
    with (
        patched(nn, **{name: _of_an_example(getattr(nn, name)) for name in convolutions}),
        patched(keras_numpy, add=_sum(keras_numpy.add), **of_numpy),
    ):
        yield


def _of_an_example(convolve: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Convolve an example of zeros in place of none: on a CPU, TensorFlow returns a wrong shape for an empty batch."""

    @functools.wraps(convolve)
    def of_any_batch(inputs: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
        if inputs.shape[0]:
            return convolve(inputs, *args, **kwargs)
        inputs = tf.convert_to_tensor(inputs)
        shape = tf.shape(inputs)

        def with_zeros() -> tf.Tensor:  # depends on the inputs, so that they have a gradient, which ranks may exchange
            return tf.concat([inputs, tf.zeros(tf.concat([[1], shape[1:]], axis=0), inputs.dtype)], axis=0)

        filled = tf.cond(tf.equal(shape[0], 0), with_zeros, lambda: inputs)
        return convolve(tf.ensure_shape(filled, [None, *inputs.shape[1:]]), *args, **kwargs)[: shape[0]]

    return of_any_batch


def _sum(add: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Keras takes the second of two empty batches for a bias, because of its shape [0, n]."""

    @functools.wraps(add)
    def of_any_batches(x1: Any, x2: Any) -> tf.Tensor:
        return tf.add(x1, x2) if _has_no_rows(x2) and len(x2.shape) > 1 else add(x1, x2)

    return of_any_batches


def _extreme(find: Callable[..., tf.Tensor], reduce: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Keras refuses the maximum of nothing, but in eager steps only, and also if it has a row for each example."""

    @functools.wraps(find)
    def of_any_batch(x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None) -> tf.Tensor:
        if _has_no_rows(x) and initial is None:
            return reduce(x, axis, keepdims)
        return find(x, axis=axis, keepdims=keepdims, initial=initial)

    return of_any_batch


def _has_no_rows(values: Any) -> bool:
    return tuple(getattr(values, "shape", ()))[:1] == (0,)
