"""Lookups in growing tables, and a Keras layer that embeds strings or arbitrary whole numbers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from xmc_tf.collective.dynamic_tables.eviction import Rule, rules_of
from xmc_tf.collective.dynamic_tables.index import hash_ids
from xmc_tf.collective.dynamic_tables.saving import served_form
from xmc_tf.collective.dynamic_tables.table import GrowingTable
from xmc_tf.collective.tables.bags import Combiner, DenseOrRagged, Ids, flat_ids
from xmc_tf.collective.tables.keras_embedding import embedding_scope_of
from xmc_tf.collective.tables.lookup import lookup, request_from_owners
from xmc_tf.collective.tables.row_exchange import WireFormat
from xmc_tf.collective.tables.table_variable import TableVariable
from xmc_tf.common.errors import InputError


@tf.autograph.experimental.do_not_convert
def growing_lookup(
    table: GrowingTable,
    ids: Ids,
    combiner: Combiner = None,
    *,
    weights: DenseOrRagged | None = None,
    wire: WireFormat = "fp32",
    training: bool = True,
) -> DenseOrRagged:
    """Return the rows of ids, with zeros for ids that have no row. Training adds new ids. All ranks must call it."""
    hashes = hash_ids(ids)
    served = served_form(table)
    if served is not None:
        return lookup(served.rows, _mapped(hashes, served.positions), combiner, weights=weights)
    if table.size == 1:
        local = _mapped(hashes, lambda flat: table.rows_of(flat, training))
        return lookup(table, local, combiner, weights=weights)
    rows_of = partial(table.rows_of, training=training)  # makes rows for new ids
    request = request_from_owners(table, flat_ids(hashes), rows_of, check=False)
    return lookup(table, hashes, combiner, weights=weights, wire=wire, request=request)


def _mapped(hashes: Ids, change: Callable[[tf.Tensor], tf.Tensor]) -> Ids:
    """Apply a function to the flat hashes, and return the result in the structure of ``hashes``."""
    if isinstance(hashes, tf.SparseTensor):
        return hashes.with_values(change(hashes.values))
    if isinstance(hashes, tf.RaggedTensor):
        flat = hashes.flat_values
        return hashes.with_flat_values(tf.reshape(change(tf.reshape(flat, [-1])), tf.shape(flat)))
    made = tf.reshape(change(tf.reshape(hashes, [-1])), tf.shape(hashes))
    return tf.ensure_shape(made, hashes.shape)


class GrowingEmbedding(keras.layers.Layer):
    """An Embedding without a fixed number of rows: an id gets a row when training first sees it.

    Create it inside ``strategy.embedding_scope()``. Ids are strings or whole numbers, dense or ragged. In inference, an
    unknown id gives zeros. The initial values of a row depend on the seed and the id, not on the number of ranks.

    Example:
        >>> with strategy.scope(), strategy.embedding_scope():
        ...     item = keras.Input([], dtype=tf.string)
        ...     items = GrowingEmbedding(64, admit_after=2, evict=LeastFrequent(max_rows=1_000_000))
        ...     model = keras.Model(item, keras.layers.Dense(1)(items(item)))
        ...     model.compile("adam", "mse")

    Args:
        output_dim: the width of a row.
        admit_after: the number of steps in which an id must be seen before it gets a row. Until then, it gives zeros.
            Values above 1 save the memory of rare ids, but the first steps with an id do not train it.
        evict: ``OlderThan``, ``LeastFrequent``, or a list of them. Default: ids are never evicted.
        embeddings_initializer: the initial values, from a Keras initializer that does not depend on the number of rows.
        combiner: how to combine the rows of the last dimension of the ids: "sum" or "mean". Default: one row per id.
        **options: further arguments of Keras layers, such as ``name``.
    """

    def __init__(
        self,
        output_dim: int,
        *,
        admit_after: int = 1,
        evict: Rule | Sequence[Rule] | None = None,
        embeddings_initializer: str | keras.initializers.Initializer = "uniform",
        combiner: Combiner = None,
        **options: Any,
    ) -> None:
        super().__init__(autocast=False, **options)
        self.supports_jit = False
        self._scope = embedding_scope_of("GrowingEmbedding", "create it inside `with strategy.embedding_scope():`")
        self.output_dim, self.admit_after, self.combiner = output_dim, admit_after, combiner
        self.rules = rules_of(evict)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Any = None) -> None:
        """Create this rank's part of the table. It has no rows yet.

        Args:
            input_shape: ignored, because ids may have any shape.
        """
        self.table: GrowingTable = self._scope.make_growing(self)
        self.embeddings = TableVariable(self.table)
        self.built = True

    def call(self, inputs: tf.Tensor | tf.RaggedTensor, training: bool | None = None) -> tf.Tensor | tf.RaggedTensor:
        """Return the rows of ids. All ranks must call it.

        Args:
            inputs: the ids: strings or whole numbers, of any shape, dense or ragged.
            training: whether new ids get a row. If not, they give zeros.
        """
        rows = growing_lookup(self.table, inputs, self.combiner, wire=self._scope.wire, training=bool(training))
        return rows if rows.dtype == self.compute_dtype else tf.cast(rows, self.compute_dtype)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> keras.KerasTensor:
        """Return the shape and type of the rows of ids.

        Args:
            inputs: symbolic ids.
            training: ignored.
        """
        ragged = bool(getattr(inputs, "ragged", False)) and self.combiner is None
        leading = inputs.shape if self.combiner is None else inputs.shape[:-1]
        return keras.KerasTensor((*leading, self.output_dim), dtype=self.compute_dtype, ragged=ragged)

    def save_own_variables(self, store: Any) -> None:
        """Raise InputError, because Keras' files need a fixed number of rows.

        Args:
            store: ignored.
        """
        raise InputError(
            f"{self.name!r} has a growing table, which Keras cannot save",
            fix="save_training(folder, model, strategy.communicator), or strategy.export_saved_model(folder, model)",
        )
