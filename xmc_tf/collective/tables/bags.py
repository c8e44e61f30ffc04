"""Bags of ids and their combined rows. All features of a lookup are combined in a few operations, not one by one."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import tensorflow as tf

from xmc_tf.collective.tables.row_sums import sum_rows
from xmc_tf.common.errors import InputError

Combiner = Literal["sum", "mean"] | None
DenseOrRagged: TypeAlias = tf.Tensor | tf.RaggedTensor
Ids: TypeAlias = DenseOrRagged | tf.SparseTensor


class Bags(NamedTuple):
    """The ids of a feature. Each slice of the last dimension is a bag; if ``combiner`` is None, each id gives a row."""

    ids: DenseOrRagged
    combiner: Combiner
    weights: DenseOrRagged | None = None  # in the shape of the ids

    @property
    def is_one_row_each(self) -> bool:
        is_single = not isinstance(self.ids, tf.RaggedTensor) and self.ids.shape.rank and self.ids.shape[-1] == 1
        return self.combiner is None or bool(is_single and self.weights is None)

    def nr_rows(self) -> tf.Tensor:
        if self.is_one_row_each:
            return tf.size(flat_ids(self.ids))
        if isinstance(self.ids, tf.RaggedTensor):
            return tf.cast(self.ids.nrows(), tf.int32)
        return tf.reduce_prod(tf.shape(self.ids)[:-1])

    def row_of_id(self) -> tf.Tensor:
        """Return the result row to which each id belongs, in ascending order."""
        if isinstance(self.ids, tf.RaggedTensor) and not self.is_one_row_each:
            return tf.cast(self.ids.value_rowids(), tf.int32)
        every = tf.range(tf.size(flat_ids(self.ids)))
        return every if self.is_one_row_each else every // tf.maximum(tf.shape(self.ids)[-1], 1)

    def flat_weights(self) -> tf.Tensor:
        if self.weights is None:
            return tf.ones([tf.size(flat_ids(self.ids))])
        return tf.cast(flat_ids(self.weights), tf.float32)

    def shaped(self, rows: tf.Tensor, dim: int) -> DenseOrRagged:
        """Reshape the result rows to the shape of the ids or, with a combiner, of the bags."""
        ids = self.ids
        if isinstance(ids, tf.RaggedTensor):
            if self.combiner is not None:
                return tf.ensure_shape(rows, [ids.shape[0], dim])
            inner = tf.reshape(rows, tf.concat([tf.shape(ids.flat_values), [dim]], axis=0))
            return ids.with_flat_values(tf.ensure_shape(inner, [*ids.flat_values.shape, dim]))
        last = ids.shape.rank if self.combiner is None else -1
        shape = tf.concat([tf.shape(ids)[:last], [dim]], axis=0)
        return tf.ensure_shape(tf.reshape(rows, shape), [*ids.shape[:last], dim])


def bags(name: str, ids: Ids, combiner: Combiner, weights: DenseOrRagged | None = None) -> Bags:
    """Check the ids of a feature and return them as bags. Error messages call the ids ``name``."""
    if combiner not in (None, "sum", "mean"):
        raise InputError("unknown combiner", expected="None, 'sum' or 'mean'", received=repr(combiner))
    if weights is not None and combiner is None:
        raise InputError(
            f"weights of {name} without a combiner", fix="pass combiner='sum' or 'mean', or multiply the rows by them"
        )
    if isinstance(ids, tf.SparseTensor):
        if ids.shape.rank != 2:
            raise InputError(f"sparse {name} have the wrong shape", expected="two dimensions", received=str(ids.shape))
        ids = tf.RaggedTensor.from_value_rowids(ids.values, ids.indices[:, 0], nrows=ids.dense_shape[0])
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids)
    elif combiner is not None and (ids.ragged_rank != 1 or ids.flat_values.shape.rank != 1):
        raise InputError(f"ragged {name} cannot be combined", expected="two dimensions", received=str(ids.shape))
    if not ids.dtype.is_integer:
        raise InputError(f"{name} have the wrong type", expected="whole numbers", received=ids.dtype.name)
    if combiner is not None and ids.shape.rank in (None, 0):
        raise InputError(f"{name} cannot be combined", expected="one dimension or more", received=str(ids.shape))
    return Bags(ids, combiner, weights)


def flat_ids(ids: Ids) -> tf.Tensor:
    if isinstance(ids, tf.SparseTensor):
        return ids.values
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.flat_values
    return tf.reshape(ids, [-1])


def combine(rows: tf.Tensor, positions: tf.Tensor, features: Sequence[Bags], dim: int) -> list[DenseOrRagged]:
    """Return each feature's combined rows. ``positions`` maps each id, feature by feature, to its row in ``rows``."""
    counts = tf.stack([one.nr_rows() for one in features])
    if all(one.is_one_row_each for one in features):
        sums = tf.gather(rows, positions)
    else:
        sums = _combined(rows, positions, features, counts)
    parts = tf.split(sums, counts, num=len(features)) if len(features) > 1 else [sums]
    return [one.shaped(part, dim) for one, part in zip(features, parts, strict=True)]


def _combined(rows: tf.Tensor, positions: tf.Tensor, features: Sequence[Bags], counts: tf.Tensor) -> tf.Tensor:
    """Return the sums or means of the bags of all features, concatenated."""
    starts = tf.unstack(tf.cumsum(counts, exclusive=True), num=len(features))
    row_of_id = tf.concat([one.row_of_id() + start for one, start in zip(features, starts, strict=True)], axis=0)
    total = tf.reduce_sum(counts)
    weighted = any(one.weights is not None for one in features)
    if weighted:
        weights = tf.concat([one.flat_weights() for one in features], axis=0)
        sums = tf.math.unsorted_segment_sum(tf.gather(rows, positions) * weights[:, None], row_of_id, total)
    else:
        sums = _sums(rows, positions, row_of_id, total)
    if not any(one.combiner == "mean" for one in features):
        return sums
    if weighted:
        lengths = tf.math.unsorted_segment_sum(weights, row_of_id, total)
    else:
        lengths = tf.cast(tf.math.bincount(row_of_id, minlength=total, maxlength=total), tf.float32)
    is_mean = tf.repeat(tf.constant([one.combiner == "mean" for one in features]), counts)
    return tf.math.divide_no_nan(sums, tf.where(is_mean, lengths, 1.0)[:, None])


@tf.custom_gradient
def _sums(
    rows: tf.Tensor, positions: tf.Tensor, row_of_id: tf.Tensor, total: tf.Tensor
) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, None, None, None]]]:
    def back(upstream: tf.Tensor) -> tuple[tf.Tensor, None, None, None]:
        return sum_rows(upstream, positions, tf.shape(rows)[0], take=row_of_id), None, None, None

    return tf.sparse.segment_sum(rows, positions, row_of_id, num_segments=total), back
