"""A sharded form of Keras' Embedding, which large ones made inside ``embedding_scope()`` are."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.src.api_export import REGISTERED_OBJS_TO_NAMES

from xmc_tf.collective.keras_2 import keras_2_refused
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.row_access import set_rows
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.table_variable import TableVariable
from xmc_tf.collective.tables.whole_rows import whole_rows
from xmc_tf.collective.tables.wire import WireFormat
from xmc_tf.common.errors import InputError

logger = logging.getLogger(__name__)

# name, rows, dim, initializer, trainable -> table
MakeTable = Callable[[str, int, int, Initializer, bool], ShardedTable]


class EmbeddingScope(NamedTuple):
    """The settings of an embedding scope, and the makers of its tables.

    Args:
        make: makes the table of a sharded embedding.
        wants: returns whether an embedding with this number of rows and columns is sharded.
        wire: the format in which rows are sent.
        make_growing: makes the table of a ``GrowingEmbedding``.
    """

    make: MakeTable
    wants: Callable[[int, int], bool]
    wire: WireFormat
    make_growing: Callable[[Any], Any]


_SCOPE: ContextVar[EmbeddingScope | None] = ContextVar("embedding_scope", default=None)


def embedding_scope_of(layer: str, fix: str) -> EmbeddingScope:
    """Return the scope in which a layer is made, and refuse to make it outside of one."""
    if (scope := _SCOPE.get()) is None:
        raise InputError(f"{layer} outside of an embedding scope", expected="a strategy that owns its rows", fix=fix)
    return scope


class ShardedEmbedding(keras.layers.Embedding):
    """An Embedding of which each rank holds a range of rows.

    It takes the arguments of Keras' Embedding. ``embeddings`` has the local rows; ``table`` describes which these are.
    """

    table: ShardedTable

    def __init__(self, input_dim: int, output_dim: int, *args: Any, weights: Any = None, **kwargs: Any) -> None:
        scope = embedding_scope_of("ShardedEmbedding", "make a keras.layers.Embedding")
        super().__init__(input_dim, output_dim, *args, **kwargs)
        self.supports_jit = False
        self._make_table, self._wire = scope.make, scope.wire
        given = weights[0] if isinstance(weights, list) else weights
        self._first_rows = None if given is None else np.asarray(given, np.float32)
        unsupported = ("embeddings_regularizer", "embeddings_constraint", "activity_regularizer", "lora_rank")
        for option in (*unsupported, "quantization_mode"):
            if getattr(self, option):
                raise InputError(
                    f"embedding {self.name!r}: {option} is not supported for sharded embeddings",
                    expected="an Embedding without it (weight decay is the optimizer's)",
                    fix="leave it out, or create the layer outside embedding_scope()",
                )

    def build(self, input_shape: Any = None) -> None:
        """Create this rank's rows."""
        first = self.embeddings_initializer if self._first_rows is None else self._first_rows
        self.table = self._make_table(self.name, self.input_dim, self.output_dim, first, self.trainable)
        self._first_rows = None
        self._embeddings = TableVariable(self.table)
        self.built = True

    def call(self, inputs: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        """Return the rows for ids; collective."""
        if isinstance(inputs, tf.SparseTensor):
            raise InputError(
                f"embedding {self.name!r}: sparse ids",
                expected="dense or ragged ids",
                fix="tf.RaggedTensor.from_sparse",
            )
        ids = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int64)
        rows = lookup(self.table, ids, wire=self._wire)
        return rows if rows.dtype == self.compute_dtype else tf.cast(rows, self.compute_dtype)

    def save_own_variables(self, store: Any) -> None:
        """Save the whole table, as an ordinary Embedding does."""
        if self.built:
            store["0"] = whole_rows(self.table)

    def load_own_variables(self, store: Any) -> None:
        """Load this rank's rows of a whole table."""
        if "0" not in store.keys():  # noqa: SIM118  Keras' stores are no mappings
            raise InputError(f"embedding {self.name!r}: the file has no rows of it")
        load_rows(self.table, store["0"])


# In saved models it has the name of the layer that loads it in a plain process (check_saved_models_are_whole of
# tests/collective/world_keras.py). The first is that of its configuration, the second that of its weights.
REGISTERED_OBJS_TO_NAMES[ShardedEmbedding] = "keras.layers.Embedding"
ShardedEmbedding.__name__ = "Embedding"


def load_rows(table: ShardedTable, whole: np.ndarray, slot: str | None = None) -> None:
    """Set this rank's rows, or those of a slot, from a whole table.

    Args:
        table: the table.
        whole: the rows of the whole table.
        slot: the name of a slot; default: the rows themselves.
    """
    if tuple(whole.shape) != (table.rows, table.dim):
        raise InputError(
            f"table {table.name!r}: the saved rows do not fit",
            expected=f"shape ({table.rows}, {table.dim})",
            received=f"shape {tuple(whole.shape)}",
        )
    target = table.variable if slot is None else table.slot(slot)
    set_rows(target, 0, tf.constant(whole[table.start : table.start + table.local_rows]))


@contextmanager
def shard_embeddings(scope: EmbeddingScope) -> Iterator[None]:
    """Make the large Keras Embeddings of the block sharded ones, also those that Keras builds later or loads."""
    original = keras.layers.Embedding.__new__

    def new(cls: type, *args: Any, **kwargs: Any) -> keras.layers.Embedding:
        # A subclass may work differently.
        if cls is keras.layers.Embedding:
            named = [kwargs[name] for name in ("input_dim", "output_dim")[len(args) :] if name in kwargs]
            rows, dim = [*args, *named][:2]
            if scope.wants(rows, dim):
                return original(ShardedEmbedding, *args, **kwargs)
            logger.info("an embedding of %d rows is small and stays replicated", rows)
        return original(cls, *args, **kwargs)

    token = _SCOPE.set(scope)
    keras.layers.Embedding.__new__ = new
    try:
        with keras_2_refused("layers.Embedding", "__init__", "an Embedding inside embedding_scope()"):
            yield
    finally:
        del keras.layers.Embedding.__new__
        _SCOPE.reset(token)
