"""The rows of many features: a few operations for all features of a stack, instead of a few for each."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.tables.lookup import Combiner, Ids, bag_layout, combined, flat_ids, shaped, whole_numbers
from xmc_tf.common.errors import InputError


class Bags(NamedTuple):
    """The ids of a feature.

    Args:
        ids: dense or ragged ids.
        combiner: the combiner of each bag, or None.
        weights: the weights of the ids, or None.
    """

    ids: tf.Tensor | tf.RaggedTensor
    combiner: Combiner
    weights: tf.Tensor | tf.RaggedTensor | None

    @property
    def is_one_row_each(self) -> bool:
        """Whether the result has one row for each id: no bags, or bags of one id."""
        if self.combiner is None:
            return True
        one_each = self.ids.shape.rank == 1 or self.ids.shape[-1] == 1
        return self.weights is None and not isinstance(self.ids, tf.RaggedTensor) and one_each

    def shaped(self, rows: tf.Tensor, dim: int) -> tf.Tensor | tf.RaggedTensor:
        """Return one row for each id, in the shape of the ids, or of the bags of one id."""
        if self.combiner is None or self.ids.shape.rank == 1:
            return shaped(rows, self.ids, dim)
        return shaped(rows, self.ids[..., 0], dim)


def bags(name: str, ids: Ids, combiner: Combiner, weights: tf.Tensor | tf.RaggedTensor | None) -> Bags:
    """Return the ids of a feature after checking them.

    Args:
        name: the feature.
        ids: a dense, ragged or sparse tensor of whole numbers; of one dimension: one id for each example.
        combiner: the combiner of its table.
        weights: the weights of the ids, in their shape, or None.
    """
    ids = whole_numbers(ids, f"ids of feature {name!r}")
    if weights is not None and combiner is None:
        raise InputError(f"weights of feature {name!r}", expected="a table with combiner 'sum' or 'mean'")
    if weights is not None and not isinstance(ids, tf.RaggedTensor) and ids.shape.rank == 1:
        ids, weights = ids[:, None], tf.reshape(weights, [-1, 1])
    return Bags(ids, combiner, weights)


def combine(
    rows: tf.Tensor, positions: tf.Tensor, features: Sequence[Bags], dim: int
) -> list[tf.Tensor | tf.RaggedTensor]:
    """Return the rows of each feature, combined as each of them wants.

    Args:
        rows: the different rows, ``[n, dim]``.
        positions: the row of each id, feature by feature.
        features: the features.
        dim: the width of a row.
    """
    sizes = [tf.size(flat_ids(one.ids)) for one in features]
    of_feature = tf.split(positions, sizes) if len(features) > 1 else [positions]
    results: list[tf.Tensor | tf.RaggedTensor | None] = [None] * len(features)
    single = [number for number, one in enumerate(features) if one.is_one_row_each]
    whole = [number for number, one in enumerate(features) if not one.is_one_row_each and one.weights is None]
    if single:
        found = tf.gather(rows, tf.concat([of_feature[number] for number in single], axis=0))
        for number, part in zip(single, tf.split(found, [sizes[number] for number in single]), strict=True):
            results[number] = features[number].shaped(part, dim)
    if whole:
        bags_of_whole = [features[number] for number in whole]
        for number, part in zip(whole, _sums(rows, [of_feature[n] for n in whole], bags_of_whole, dim), strict=True):
            results[number] = part
    for number, one in enumerate(features):
        if results[number] is None:
            results[number] = combined(rows, of_feature[number], one.ids, one.combiner or "sum", one.weights, dim)
    return [result for result in results if result is not None]


def _sums(rows: tf.Tensor, positions: Sequence[tf.Tensor], features: Sequence[Bags], dim: int) -> list[tf.Tensor]:
    """Return the sums or means of the bags of several features, in one summation."""
    layouts = [bag_layout(one.ids, dim) for one in features]
    counts = [tf.cast(layout.bags, tf.int32) for layout in layouts]
    before = tf.cumsum(tf.stack(counts), exclusive=True)
    bag_of_id = [tf.cast(layout.bag_of_id, tf.int32) + before[n] for n, layout in enumerate(layouts)]
    every_bag = tf.concat(bag_of_id, axis=0)
    total = tf.add_n(counts)
    sums = tf.sparse.segment_sum(rows, tf.concat(positions, axis=0), every_bag, num_segments=total)
    if any(one.combiner == "mean" for one in features):
        lengths = tf.cast(tf.math.bincount(every_bag, minlength=total, maxlength=total), tf.float32)
        is_mean = tf.repeat(tf.constant([one.combiner == "mean" for one in features]), tf.stack(counts))
        sums /= tf.where(is_mean, tf.maximum(lengths, 1.0), 1.0)[:, None]
    return [layout.shaped(part) for layout, part in zip(layouts, tf.split(sums, counts), strict=True)]
