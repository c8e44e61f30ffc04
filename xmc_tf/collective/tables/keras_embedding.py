"""A sharded form of Keras' Embedding, which large ones made inside ``embedding_scope()`` become."""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
import tf_keras

from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat
from xmc_tf.common.errors import InputError

logger = logging.getLogger(__name__)

# name, rows, dim, initializer, trainable -> table
MakeTable = Callable[[str, int, int, Initializer, bool], ShardedTable]


class ShardedEmbedding(tf_keras.layers.Embedding):
    """An Embedding of which each rank holds a range of rows.

    It takes the arguments of Keras' Embedding. ``embeddings`` has the local rows; ``table`` describes which these are.
    """

    table: ShardedTable
    _make_table: MakeTable
    _wire: WireFormat

    @classmethod
    def convert(cls, layer: tf_keras.layers.Embedding, make: MakeTable, wire: WireFormat) -> None:
        """Convert a layer without weights to this class."""
        for option in ("embeddings_regularizer", "embeddings_constraint", "activity_regularizer", "sparse"):
            if getattr(layer, option):
                raise InputError(
                    f"embedding {layer.name!r}: {option} is not supported for sharded embeddings",
                    expected="an Embedding without it (weight decay is the optimizer's)",
                    fix="leave it out, or create the layer outside embedding_scope()",
                )
        layer.__class__ = cls
        layer._make_table, layer._wire = make, wire

    def build(self, input_shape: Any = None) -> None:
        """Create this rank's rows."""
        self.table = self._make_table(
            self.name, self.input_dim, self.output_dim, self.embeddings_initializer, self.trainable
        )
        self.embeddings = self.table.variable
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


@contextmanager
def shard_embeddings(make: MakeTable, wants: Callable[[int, int], bool], wire: WireFormat) -> Iterator[None]:
    """Shard the large Keras Embeddings that are made in the block.

    Keras builds layers on their first call, perhaps long after the block, so the layers themselves are changed.

    Args:
        make: makes a table.
        wants: returns whether an embedding with this number of rows and columns is sharded.
        wire: the format in which rows are sent.
    """
    original = tf_keras.layers.Embedding.__init__

    @functools.wraps(original)
    def made(self: tf_keras.layers.Embedding, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if type(self) is not tf_keras.layers.Embedding:
            return  # a subclass may work differently
        if wants(self.input_dim, self.output_dim):
            ShardedEmbedding.convert(self, make, wire)
        else:
            logger.info("embedding %r is small and stays replicated", self.name)

    tf_keras.layers.Embedding.__init__ = made
    try:
        yield
    finally:
        tf_keras.layers.Embedding.__init__ = original


@contextmanager
def replace_compiled_optimizer(change: Callable[[tf_keras.Model], tf_keras.optimizers.Optimizer]) -> Iterator[None]:
    """Give models that are compiled in the block the optimizer that ``change`` returns."""
    original = tf_keras.Model.compile

    @functools.wraps(original)
    def compile_and_change(self: tf_keras.Model, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.optimizer = change(self)

    tf_keras.Model.compile = compile_and_change
    try:
        yield
    finally:
        tf_keras.Model.compile = original
