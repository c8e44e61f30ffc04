"""Losses and metrics of Keras in a step over ranks: they cover the examples of all ranks."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses import loss as keras_loss
from keras.src.metrics import reduction_metrics
from keras.src.trainers.trainer import Trainer

from xmc_tf.collective.batches import BatchShare, current_batch, step_over
from xmc_tf.common.errors import InputError

_LARGE = 1024  # numbers per example whose exchange in each step takes long
# Losses that compare the examples of a batch; the second one does if targets have the shape [n, 1].
_OF_PAIRS = (keras.losses.Circle, keras.losses.CategoricalGeneralizedCrossEntropy)


def patch_losses_for_ranks() -> None:
    """Change Keras' losses and metrics for the rest of the process. Outside of steps over ranks, nothing changes."""
    _replace(keras_loss, "reduce_weighted_values", _reduced)
    _replace(keras.losses.Loss, "__call__", _loss)
    _replace(Trainer, "_aggregate_additional_loss", _additional_loss)
    _replace(Trainer, "compute_loss", _compute_loss)
    _replace(keras.layers.Layer, "add_loss", _add_loss)
    _replace(tf.GradientTape, "gradient", _gradient)
    _replace(reduction_metrics.MeanMetricWrapper, "update_state", _update_by_function)
    _replace(reduction_metrics.Mean, "update_state", _update_mean)


def _replace(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Make ``owner.name(...)`` call ``around(batch, original, ...)`` in steps over ranks."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def in_steps(*args: Any, **kwargs: Any) -> Any:
        batch = current_batch()
        return original(*args, **kwargs) if batch is None else around(batch, original, *args, **kwargs)

    setattr(owner, name, in_steps)


def _reduced(
    batch: BatchShare,
    original: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    loss = original(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
    batch.is_of_batch = batch.is_whole(values)
    if batch.is_of_batch or reduction in (None, "none"):
        return loss
    if tuple(values.shape) == (0,):
        loss = tf.reduce_sum(loss)  # of an empty batch, Keras returns the values as they are
    if reduction == "sum":
        return _sum_as_mean(loss, batch)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        weights = keras_loss.apply_mask(tf.cast(sample_weight, loss.dtype), mask, loss.dtype, reduction)
        weight = batch.weight_by(tf.reduce_sum(weights), "weights")
    elif mask is not None:
        weight = batch.weight_by(tf.reduce_sum(tf.cast(mask, tf.float32)), "mask")
    else:
        return loss
    # The optimizer weights the whole loss, and Keras its mean over steps, by the number of examples.
    return loss * tf.cast(tf.math.divide_no_nan(weight, batch.weight), loss.dtype)


def _sum_as_mean(loss: tf.Tensor, batch: BatchShare) -> tf.Tensor:
    """Return a sum over this rank's examples in the form in which the mean over the ranks is the sum over all."""
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
    gathers, batch.is_of_batch = batch.gathers, False
    found = original(loss, y_true, y_pred, sample_weight)
    axis = getattr(loss, "axis", getattr(loss, "_fn_kwargs", {}).get("axis", ()))
    compares = isinstance(loss, _OF_PAIRS) or 0 in _axes(axis)
    if (batch.is_of_batch or compares) and batch.gathers == gathers:
        batch.is_of_batch = False
        found = _of_all(batch, functools.partial(original, loss), loss.name, y_true, y_pred, sample_weight)
        batch.has_whole_loss = True
    batch.means.append(found)
    return found


def _axes(axis: Any) -> tuple[Any, ...]:
    return tuple(axis) if isinstance(axis, tuple | list) else (axis,)


def _of_all(
    batch: BatchShare, call: Callable[..., Any], name: str, y_true: Any, y_pred: Any, sample_weight: Any
) -> Any:
    """Return ``call(y_true, y_pred, sample_weight)`` of the examples of all ranks, the same on each."""
    parts = tf.nest.map_structure(
        lambda one: None if one is None else tf.convert_to_tensor(one), (y_true, y_pred, sample_weight)
    )
    mask = keras_loss.backend.get_keras_mask(y_pred)
    _check_shapes(batch, name, parts)
    every, every_mask = batch.gather(parts), batch.gather(mask)
    if every_mask is not None:
        keras_loss.backend.set_keras_mask(every[1], every_mask)
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


def _additional_loss(batch: BatchShare, original: Callable[..., Any], model: keras.Model, loss: tf.Tensor) -> Any:
    total = original(model, loss)  # the sum of its elements
    return total if batch.is_whole(loss) else _sum_as_mean(total, batch)


def _add_loss(batch: BatchShare, original: Callable[..., Any], layer: keras.layers.Layer, loss: Any) -> None:
    original(layer, loss)
    for one in tf.nest.flatten(loss):
        if layer.activity_regularizer is None and tf.is_tensor(one) and not is_mean(one, batch):
            batch.warn(
                f"layer {layer.name!r} adds a loss of one number for a batch, which is taken as a mean over examples. "
                "If it is a sum over examples, pass add_loss one number for each example; if it compares examples, "
                "compute it from the rows of all ranks, which strategy.gather(...) returns"
            )


def _compute_loss(
    batch: BatchShare, original: Callable[..., Any], model: keras.Model, *args: Any, **kwargs: Any
) -> Any:
    loss = original(model, *args, **kwargs)
    batch.means.append(loss)
    return loss


def _gradient(batch: BatchShare, original: Callable[..., Any], tape: tf.GradientTape, *args: Any, **kwargs: Any) -> Any:
    found = original(tape, *args, **kwargs)
    batch.gradients += [one for one in keras.tree.flatten(found) if one is not None]
    return found


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
    gathers = batch.gathers
    values = metric._fn(y_true, y_pred, **metric._fn_kwargs)
    compares = batch.is_whole(values) or 0 in _axes(metric._fn_kwargs.get("axis", ()))
    if not compares or batch.gathers > gathers:
        original(metric, y_true, y_pred, sample_weight)
    else:
        _of_all(batch, functools.partial(original, metric), metric.name, y_true, y_pred, sample_weight)


def _update_mean(
    batch: BatchShare, original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None
) -> None:
    """Let a value that belongs to the batch count by this rank's examples, and not at all if there are none."""
    values = tf.cast(values, metric.dtype)
    if not values.shape.rank:
        # In a graph, Keras uses the number of examples as a weight only where a batch has a static shape.
        if sample_weight is None or (isinstance(sample_weight, int) and not tf.executing_eagerly()):
            values, sample_weight = values * tf.cast(batch.weight, values.dtype), None
        values = tf.where(batch.is_empty, tf.zeros_like(values), values)
    original(metric, values, sample_weight)
