from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from xmc_tf.collective.saved_model import Signature
from xmc_tf.sequences.data.windows import MASK, PAD
from xmc_tf.sequences.model.folder import ITEMS
from xmc_tf.sequences.model.ranking import best_items
from xmc_tf.sequences.model.recommender import Recommender


def export_model(folder: str | Path, model: Recommender, model_folder: str | Path, k: int) -> Path:
    """Write a SavedModel for TensorFlow Serving with one signature; collective.

    ``serving_default`` maps ``history``, names of items ``[requests, any]`` with the oldest first and empty strings as
    padding anywhere, to ``items``, ``numbers`` and ``scores``, ``[requests, k]``. Unknown names are left out.
    """
    names = str(Path(model_folder) / ITEMS)
    lines = tf.lookup.TextFileIndex
    numbers = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(names, tf.string, lines.WHOLE_LINE, tf.int64, lines.LINE_NUMBER), PAD
    )
    back = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(names, tf.int64, lines.LINE_NUMBER, tf.string, lines.WHOLE_LINE), ""
    )

    def serve(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = inputs_of(model, numbers.lookup(inputs["history"]))
        best = best_items(model.table, model.last_vectors(rows), k)
        return {"items": back.lookup(best.items), "numbers": best.items, "scores": best.scores}

    signature = Signature(serve, {"history": tf.TensorSpec([None, None], tf.string, "history")})
    return model.strategy.export_saved_model(folder, {"serving_default": signature}, track=[numbers, back])


def inputs_of(model: Recommender, numbers: tf.Tensor) -> tf.Tensor:
    """Return model inputs for histories of item numbers, ``[histories, any]``, in which ``PAD`` stands for no item."""
    width = model.params.max_len - (not model.shape.causal)
    kept = tf.ragged.boolean_mask(numbers, numbers >= 0)
    ends, begins = kept.row_splits[1:], kept.row_splits[:-1]
    at = ends[:, None] + tf.range(-width, 0, dtype=tf.int64)
    there = at >= begins[:, None]
    flat = tf.concat([kept.flat_values, [0]], axis=0)
    rows = tf.where(there, tf.gather(flat, tf.where(there, at, 0)), PAD)
    if model.shape.causal:
        return rows
    return tf.concat([rows, tf.fill([tf.shape(rows)[0], 1], tf.constant(MASK, tf.int64))], axis=1)
