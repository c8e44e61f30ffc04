"""Losses and metrics of Keras in a step over ranks: they cover the examples of all ranks."""

import functools
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.batches import BatchShare, current_batch, step_over
from xmc_tf.collective.blocks import patched
from xmc_tf.common.errors import InputError

_LARGE = 1024  # numbers per example whose exchange in each step takes long
# Losses that compare the examples of a batch; the second one does if targets have the shape [n, 1].
_OF_PAIRS = (keras.losses.Circle, keras.losses.CategoricalGeneralizedCrossEntropy)


def patch_losses_for_ranks() -> None:
    """Change Keras' losses and metrics for the rest of the process. Outside of steps over ranks, nothing changes."""
    _replace(keras.losses.Loss, "__call__", _loss)
    _replace(keras.metrics.MeanMetricWrapper, "update_state", _update_by_function)
    _replace(keras.metrics.Mean, "update_state", _update_mean)


def _replace(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Make ``owner.name(...)`` call ``around(batch, original, ...)`` in steps over ranks."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def in_steps(*args: Any, **kwargs: Any) -> Any:
        batch = current_batch()
        return original(*args, **kwargs) if batch is None else around(batch, original, *args, **kwargs)

    setattr(owner, name, in_steps)


def _weighted(batch: BatchShare, found: Any, loss: keras.losses.Loss, values: Any, weights: Any, mask: Any) -> Any:
    """Return what a loss finds by its values for examples, in the form whose mean over the ranks is that over all."""
    if loss.reduction in (None, "none"):
        return found
    if tuple(values.shape) == (0,):
        found = tf.reduce_sum(found)  # of an empty batch, Keras returns the values as they are
    if loss.reduction == "sum":
        return _sum_as_mean(found, batch)
    if loss.reduction == "mean_with_sample_weight" and weights is not None:
        parts = [tf.cast(one, found.dtype) for one in (weights, mask) if one is not None]
        rank = max(one.shape.rank for one in parts)
        parts = [one if one.shape.rank == rank else one[..., None] for one in parts]
        weight = batch.weight_by(tf.reduce_sum(functools.reduce(operator.mul, parts)), "weights")
    elif mask is not None:
        weight = batch.weight_by(tf.reduce_sum(tf.cast(mask, tf.float32)), "mask")
    else:
        return found
    # The optimizer weights the whole loss, and Keras its mean over steps, by the number of examples.
    return found * tf.cast(tf.math.divide_no_nan(weight, batch.weight), found.dtype)


def _mask_of(*values: Any) -> Any:
    masks = [mask for one in values if (mask := getattr(one, "_keras_mask", None)) is not None]
    return functools.reduce(operator.and_, masks) if masks else None


def _sum_as_mean(loss: tf.Tensor, batch: BatchShare) -> tf.Tensor:
    """Return a sum over this rank's examples in the form in which the mean over the ranks is the sum over all."""
    loss = loss if loss.dtype.is_floating else tf.cast(loss, tf.float32)
    return loss * tf.cast(tf.math.divide_no_nan(float(batch.size), batch.weight), loss.dtype)


def _loss(
    batch: BatchShare,
    original: Callable[..., Any],
    loss: keras.losses.Loss,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
) -> Any:
    """Compute a loss, from the examples of all ranks if it is not a mean or sum of losses of single examples."""
    gathers, call, seen = batch.gathers, loss.call, []

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append(call(*args, **kwargs))
        return seen[-1]

    with patched(loss, call=noted):
        found = original(loss, y_true, y_pred, sample_weight)
    values = seen[-1]
    is_of_batch = batch.is_whole(values)
    if (is_of_batch or isinstance(loss, _OF_PAIRS) or _is_over_batch(loss)) and batch.gathers == gathers:
        found = _of_all(batch, functools.partial(original, loss), loss.name, y_true, y_pred, sample_weight)
        batch.has_whole_loss = True
    elif not is_of_batch:
        found = _weighted(batch, found, loss, values, sample_weight, _mask_of(y_pred, values))
    batch.means.append(found)
    return found


def _is_over_batch(of: keras.losses.Loss | keras.metrics.Metric) -> bool:
    """Return whether a loss or metric compares along the axis of examples."""
    axis = getattr(of, "axis", getattr(of, "_fn_kwargs", {}).get("axis", ()))
    return 0 in axis if isinstance(axis, tuple | list) else axis == 0


def _of_all(
    batch: BatchShare, call: Callable[..., Any], name: str, y_true: Any, y_pred: Any, sample_weight: Any
) -> Any:
    """Return ``call(y_true, y_pred, sample_weight)`` of the examples of all ranks, the same on each."""
    parts = tf.nest.map_structure(
        lambda one: None if one is None else tf.convert_to_tensor(one), (y_true, y_pred, sample_weight)
    )
    mask = _mask_of(y_pred)
    _check_shapes(batch, name, parts)
    every = batch.gather(parts)
    if mask is not None:
        every[1]._keras_mask = batch.gather(mask)
    with step_over(None):
        return call(*every)


def _check_shapes(batch: BatchShare, name: str, parts: Any) -> None:
    shapes = [one.shape[1:] for one in tf.nest.flatten(parts) if one is not None and one.shape.rank]
    if any(not shape.is_fully_defined() for shape in shapes):
        raise InputError(
            f"{name!r} returns one number for a batch, and its examples have no fixed size",
            expected="one number for each example, or examples of one size, so that those of all ranks fit together",
            received=", ".join(map(str, shapes)),
            fix="return one number for each example, or give targets and outputs a fixed shape",
        )
    if max(shape.num_elements() for shape in shapes) > _LARGE:
        batch.warn(
            f"{name!r} returns one number for a batch: to compute it, each step exchanges the outputs and targets of "
            "all ranks. If it is a mean or a sum over examples, return one number for each example instead"
        )


def added_losses(model: keras.Model, losses: list[tf.Tensor], batch: BatchShare) -> list[tf.Tensor]:
    """Return the losses that layers have added, in the form whose mean over the ranks is that over all examples. Warn
    of one that may be a sum over examples.
    """
    sums = [one for one in losses if batch.is_whole(one) and not is_mean(one, batch)]
    # Layer's own property, because that of a model calls this function. The innermost layer is the last one.
    all_of = keras.layers.Layer.losses.fget
    layers = {id(one): layer for layer in model._flatten_layers() for one in all_of(layer)} if sums else {}
    for layer in filter(None, (layers.get(id(one)) for one in sums)):  # regularizers of weights are not found
        if layer.activity_regularizer is None:
            batch.warn(
                f"layer {layer.name!r} adds a loss of one number for a batch, which is taken as a mean over examples. "
                "If it is a sum over examples, pass add_loss one number for each example; if it compares examples, "
                "compute it from the rows of all ranks, which strategy.gather(...) returns"
            )
    return [one if batch.is_whole(one) else _sum_as_mean(tf.reduce_sum(one), batch) for one in losses]


def gradients_noted(batch: BatchShare) -> AbstractContextManager[None]:
    """Keep the results of gradient tapes in the block, by which gradients that a ``train_step`` changes are found."""
    original = tf.GradientTape.gradient

    def gradient(tape: tf.GradientTape, *args: Any, **kwargs: Any) -> Any:
        found = original(tape, *args, **kwargs)
        batch.gradients += [one for one in keras.tree.flatten(found) if one is not None]
        return found

    return patched(tf.GradientTape, gradient=gradient)


def warn_unless_mean(model: keras.Model, batch: BatchShare, loss: tf.Tensor) -> None:
    """Warn about the loss of a user's ``train_step`` or ``compute_loss`` that may not be a mean over examples."""
    if batch.gathers == 0 and (loss.shape.rank != 0 or not is_mean(loss, batch)):
        batch.warn(
            f"model {model.name!r}: the loss of its train_step is taken as a mean over examples. If it is a sum, or "
            "compares examples, pass it to compile as a function or Loss, or compute it from the rows of all ranks, "
            "which strategy.gather(...) returns"
        )


def is_mean(value: tf.Tensor, batch: BatchShare, *, whole: bool = False) -> bool:
    """Return whether a tensor's operations show that it is a mean over this rank's examples, or a number for each.
    ``whole``: it belongs to the batch, although its shape may not be known.
    """
    value = _outside(value)
    if any(value is one for one in batch.means) or not (whole or batch.is_whole(value)):
        return True
    if tf.executing_eagerly() or not hasattr(value, "op"):
        return False
    kind, inputs = value.op.type, list(value.op.inputs)
    if kind == "Mean" and not batch.is_whole(inputs[0]):
        return True
    if kind == "Sum" and inputs[0].op.type == "Pack":
        return all(is_mean(one, batch) for one in inputs[0].op.inputs)
    if kind in ("Mean", "Sum", "Reshape", "Squeeze") and batch.is_whole(inputs[0]):
        return is_mean(inputs[0], batch)
    if kind in ("AddV2", "Add", "AddN", "Sub", "Neg", "Identity", "Cast", "StopGradient"):
        return all(is_mean(one, batch, whole=whole) for one in inputs)
    if kind in ("Mul", "RealDiv"):
        of_batch = [one for one in inputs if not _is_fixed(one, {})]
        is_linear = len(of_batch) < 2 and (kind == "Mul" or _is_fixed(inputs[1], {}))
        # A mean times the number of examples, which is a constant where the batch has a static shape, is a sum.
        is_linear &= batch.number in (None, 1) or not any(_is_number(one, batch.number) for one in inputs)
        return is_linear and all(is_mean(one, batch, whole=whole) for one in of_batch)
    return _is_fixed(value, {})


def is_linear(value: tf.Tensor, batch: BatchShare) -> bool:
    """Return whether no mean over examples depends on another one, as that of a variance does."""
    todo, seen = [(value, False)], set()
    while todo:
        one, is_in_mean = todo.pop()
        one = _outside(one)
        key = (id(one.graph), one.op.name, is_in_mean)
        if key in seen or "Py" in one.op.type or "Horovod" in one.op.type:  # what ranks exchange
            continue
        seen.add(key)
        is_mean_of_examples = (
            one.op.type == "Mean"
            and 0 in np.ravel(tf.get_static_value(one.op.inputs[1]))
            and not is_mean(one.op.inputs[0], batch, whole=True)
        )
        if is_mean_of_examples and is_in_mean:
            return False
        todo += [(of, is_in_mean or is_mean_of_examples) for of in one.op.inputs]
    return True


def depends_on_batch(value: Any, batch: BatchShare) -> bool:
    """Return whether a tensor's operations show that it depends on this rank's examples, not on those of all ranks."""
    return batch.gathers == 0 and hasattr(value, "op") and not _is_fixed(value, {})


def _is_fixed(value: tf.Tensor, known: dict[int, bool]) -> bool:
    """Return whether a tensor depends on constants and variables only, as a regularizer does."""
    value = _outside(value)
    if id(value) not in known:
        kind, inputs = value.op.type, value.op.inputs
        known[id(value)] = kind in ("Const", "ReadVariableOp") or (
            len(inputs) > 0 and all(_is_fixed(one, known) for one in inputs)
        )
    return known[id(value)]


def _outside(value: tf.Tensor) -> tf.Tensor:
    """Return the tensor that a branch or loop of the graph reads by a placeholder. Others are returned unchanged."""
    captures = getattr(value.graph, "captures", ()) if hasattr(value, "op") and value.op.type == "Placeholder" else ()
    outer = next((outer for outer, inner in captures if inner.name == value.name and hasattr(outer, "op")), None)
    return value if outer is None else _outside(outer)


def _is_number(value: tf.Tensor, number: int) -> bool:
    constant = tf.get_static_value(value)
    return constant is not None and np.size(constant) == 1 and float(constant) == number


def _update_by_function(
    batch: BatchShare, original: Callable[..., Any], metric: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> None:
    gathers, batch.updates = batch.gathers, []
    original(metric, y_true, y_pred, sample_weight)  # notes the values, by _update_mean
    (values, weights), batch.updates = batch.updates[-1], None
    if (batch.is_whole(values) or _is_over_batch(metric)) and batch.gathers == gathers:
        _of_all(batch, functools.partial(original, metric), metric.name, y_true, y_pred, sample_weight)
    else:
        keras.metrics.Mean.update_state(metric, values, weights)


def _update_mean(
    batch: BatchShare, original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> None:
    """Let a value that belongs to the batch count by this rank's examples, and not at all if there are none."""
    if batch.updates is not None:
        batch.updates.append((values, sample_weight))
        return
    values = tf.cast(values, metric.dtype)
    if not values.shape.rank:
        # In a graph, Keras uses the number of examples as a weight only where a batch has a static shape.
        if sample_weight is None or (isinstance(sample_weight, int) and not tf.executing_eagerly()):
            values, sample_weight = values * tf.cast(batch.weight, values.dtype), None
        values = tf.where(batch.is_empty, tf.zeros_like(values), values)
    original(metric, values, sample_weight)
